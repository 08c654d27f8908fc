"""What the state of a node says about its pods."""

from __future__ import annotations

from collections.abc import Iterable

from dlop.kube.cache import Cache
from dlop.kube.objects import Node, Pod

_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def node_problem(node: Node | None) -> str:
    """Why a node does not confirm the deletion of its pods, in words that follow its name; empty if it is ready.

    None is a node that no longer exists. A node that has never reported its state counts as ready.
    """
    if node is None:
        return "no longer exists"
    if any(taint.key == _OUT_OF_SERVICE for taint in node.spec.taints):
        return f"has the taint {_OUT_OF_SERVICE}"
    if node.ready is None or node.ready.status == "True":
        return ""
    details = ": ".join(filter(None, (node.ready.reason, node.ready.message)))
    return f"is not ready{f' ({details})' if details else ''}"


def accepts_pods(node: Node) -> bool:
    """Whether a pod without tolerations can be scheduled on a node. A taint of effect PreferNoSchedule does not prevent it."""
    is_tainted = any(taint.effect in ("NoSchedule", "NoExecute") for taint in node.spec.taints)
    return not (node.spec.unschedulable or is_tainted or node_problem(node))


def down_nodes(nodes: Cache[Node], pods: Iterable[Pod]) -> dict[str, str]:
    """The problems of the nodes of terminating pods, by node name. Without nodes that have none."""
    names = {pod.spec.node_name for pod in pods if pod.metadata.deletion_timestamp is not None and pod.spec.node_name}
    problems = {name: node_problem(nodes.get(name)) for name in names}
    return {name: problem for name, problem in problems.items() if problem}
