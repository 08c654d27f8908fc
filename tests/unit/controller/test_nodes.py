from __future__ import annotations

import msgspec
import pytest

from dlop.controller.nodes import node_problem
from dlop.kube.objects import Node, object_decoder
from dlop.kube.types import JsonObject

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
UNKNOWN = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
FALSE = {"type": "Ready", "status": "False"}
PRESSURE = {"type": "DiskPressure", "status": "True"}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def node(*conditions: JsonObject, taints: tuple[JsonObject, ...] = ()) -> Node:
    body = {"metadata": {"name": "node-1"}, "spec": {"taints": taints}, "status": {"conditions": conditions}}
    return object_decoder(Node)(msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (None, "no longer exists"),
        (node(READY, taints=(OUT_OF_SERVICE,)), "has the taint node.kubernetes.io/out-of-service"),
        (node(PRESSURE, UNKNOWN), "is not ready (NodeStatusUnknown: Kubelet stopped posting node status.)"),
        (node(FALSE), "is not ready"),
        (node(PRESSURE, READY, taints=(CORDONED,)), ""),
        (node(), ""),
    ],
    ids=["gone", "out of service", "unknown", "not ready", "ready", "new"],
)
def test_a_node_is_down_if_it_is_gone_out_of_service_or_not_ready(state: Node | None, problem: str) -> None:
    assert node_problem(state) == problem
