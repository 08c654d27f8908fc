"""The capacity of the cluster: what nodes offer and what pods request. Informer events keep it up to date; nothing is listed for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

import msgspec

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.pod_resources import parse_quantities, pod_requests
from dlop.controller.nodes import accepts_pods
from dlop.kube.cache import CacheChange
from dlop.kube.objects import Node, SizedPod, SizedPodSpec
from dlop.reconcile.autoscaler import Amounts, NodeCapacity, to_amounts

_FINISHED = ("Succeeded", "Failed")
_NONE = Amounts()


class ClusterCapacity:
    """Sums over all pods, by node and by job."""

    def __init__(self, *, on_change: Callable[[], None]) -> None:
        """`on_change` is called when the capacity or the demand has changed."""
        self._on_change = on_change
        self._nodes: dict[str, NodeCapacity] = {}
        """Nodes that accept pods, without what is used."""
        self._used: dict[str, Amounts] = {}
        """Requests by node. Pods without a node have the key ""."""
        self._leaving: dict[str, Amounts] = {}
        """Those of pods that are being deleted."""
        self._foreign: Counter[Amounts] = Counter()
        """Number of pods without a node and without a job, by their requests."""
        self._by_job: dict[str, Amounts] = {}
        """Requests of the pods of each job, by its UID."""

    def on_pod(self, change: CacheChange[SizedPod]) -> None:
        old, new = (None if pod is None or pod.status.phase in _FINISHED else pod for pod in (change.old, change.new))
        if old is not None and new is not None and old.spec is new.spec and _is_leaving(old) == _is_leaving(new):
            return
        for pod, sign in ((old, -1), (new, 1)):
            if pod is not None:
                self._count(pod, sign)
        if old is not None or new is not None:
            self._on_change()

    def on_node(self, change: CacheChange[Node]) -> None:
        name, new = change.object.metadata.name, change.new
        node = None if new is None or not accepts_pods(new) else _node_capacity(new)
        if node == self._nodes.get(name):
            return
        if node is None:
            del self._nodes[name]
        else:
            self._nodes[name] = node
        self._on_change()

    def nodes(self) -> Iterator[NodeCapacity]:
        """The nodes that accept pods."""
        for node in self._nodes.values():
            yield replace(node, used=self._used.get(node.name, _NONE), leaving=self._leaving.get(node.name, _NONE))

    def unscheduled(self) -> Amounts:
        """Requests of the pods without a node. Pods without a job that are larger than every node do not count."""
        total = self._used.get("", _NONE)
        for amounts, count in self._foreign.items():
            if not any(amounts.fits(node.allocatable) for node in self._nodes.values()):
                total = total.plus(amounts, -count)
        return total

    def used_by_job(self, uid: str) -> Amounts:
        """Requests of the pods of a job."""
        return self._by_job.get(uid, _NONE)

    def _count(self, pod: SizedPod, sign: int) -> None:
        amounts = _pod_amounts(pod.spec)
        _add(self._used, pod.spec.node_name, amounts, sign)
        if _is_leaving(pod):
            _add(self._leaving, pod.spec.node_name, amounts, sign)
        uid = pod.metadata.labels.get(JOB_UID_LABEL)
        if uid is not None:
            _add(self._by_job, uid, amounts, sign)
        elif not pod.spec.node_name:
            self._foreign[amounts] += sign
            if not self._foreign[amounts]:
                del self._foreign[amounts]


def _is_leaving(pod: SizedPod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _add(sums: dict[str, Amounts], key: str, amounts: Amounts, sign: int) -> None:
    total = sums.get(key, _NONE).plus(amounts, sign)
    if total == _NONE:
        sums.pop(key, None)
    else:
        sums[key] = total


@lru_cache(maxsize=4096)
def _pod_amounts(spec: SizedPodSpec) -> Amounts:
    return to_amounts(pod_requests(msgspec.to_builtins(spec)), pods=1)


def _node_capacity(node: Node) -> NodeCapacity:
    allocatable = parse_quantities(msgspec.to_builtins(node.status.allocatable))
    pods = allocatable.pop("pods", None)
    amounts = to_amounts(allocatable, pods=0 if pods is None else int(pods.value))
    return NodeCapacity(name=node.metadata.name, allocatable=amounts, used=_NONE, labels=node.metadata.labels)
