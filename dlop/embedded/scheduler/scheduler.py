"""Puts pods on the node, or says on them why they do not fit.

Pods are looked at in the order of their priority and age. One that does not fit keeps none of the others waiting, and is
looked at again when something has been freed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from dlop.embedded.kubelet.events import SCHEDULER, Events, PodEvent
from dlop.embedded.scheduler.predicates import Amounts, can_ever_fit, explanation, problems, requests_of, total
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import KubeError
from dlop.kube.resources import PODS
from dlop.kube.timestamps import to_the_second
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

_FINISHED = ("Succeeded", "Failed")
_MOST_AT_ONCE = 16
_RETRY_SECONDS = 1.0


class Scheduler:
    """The scheduler of one node."""

    def __init__(
        self,
        client: Client,
        *,
        node_name: str,
        labels: Mapping[str, str],
        allocatable: Amounts,
        pods: Callable[[], Iterable[JsonObject]],
        events: Events,
        clock: Callable[[], float],
        takes_all: bool = False,
    ) -> None:
        """`pods` gives all pods of the cluster as they are known. With `takes_all` those of other schedulers are ours too."""
        self._client = client
        self._node_name = node_name
        self._labels = labels
        self._allocatable = allocatable
        self._pods = pods
        self._events = events
        self._clock = clock
        self._takes_all = takes_all
        self._look = asyncio.Event()
        self._bound: dict[str, Amounts] = {}
        """What was bound, by uid, and is not seen as such yet."""
        self._told: dict[str, str] = {}
        """The last explanation of each waiting pod, by uid."""
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    def look(self) -> None:
        """Something has changed."""
        self._look.set()

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._look.wait()
                self._look.clear()
                self._look_at_all(group)

    def _look_at_all(self, group: asyncio.TaskGroup) -> None:
        pods = list(self._pods())
        waiting = sorted((pod for pod in pods if self._is_waiting(pod)), key=_rank)
        if not waiting:
            self._told.clear()
        seen = {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}
        self._bound = {uid: amounts for uid, amounts in self._bound.items() if uid not in seen}
        here = [requests_of(pod["spec"]) for pod in pods if self._is_here(pod)] if waiting else []
        taken = total([*here, *self._bound.values()])
        for pod in waiting:
            if pod["metadata"]["uid"] in self._bound:
                continue
            reasons = problems(pod["spec"], labels=self._labels, allocatable=self._allocatable, taken=taken)
            if reasons:
                self._refuse(group, pod, reasons)
            else:
                asked = self._bound[pod["metadata"]["uid"]] = requests_of(pod["spec"])
                taken = total((taken, asked))
                group.create_task(self._bind(pod))

    def _is_waiting(self, pod: JsonObject) -> bool:
        spec, status = pod["spec"], pod.get("status") or {}
        return (
            not spec.get("nodeName")
            and not spec.get("schedulingGates")
            and not pod["metadata"].get("deletionTimestamp")
            and (self._takes_all or spec.get("schedulerName", SCHEDULER) == SCHEDULER)
            and status.get("phase") not in _FINISHED
        )

    def _is_here(self, pod: JsonObject) -> bool:
        return pod["spec"].get("nodeName") == self._node_name and (pod.get("status") or {}).get("phase") not in _FINISHED

    # --- carrying it out ---------------------------------------------------------------------------------------------

    async def _bind(self, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node_name},
        }
        try:
            async with self._places:
                await self._client.create(PODS, body, namespace=namespace, name=name, subresource="binding")
        except KubeError as error:
            log.info("a pod could not be bound", pod=name, namespace=namespace, error=str(error))
            self._look_again(metadata["uid"])
            return
        message = f"Successfully assigned {namespace}/{name} to {self._node_name}"
        self._events.tell(pod, PodEvent(reason="Scheduled", message=message, component=SCHEDULER))

    def _look_again(self, uid: str) -> None:
        def forget() -> None:
            self._bound.pop(uid, None)
            self._told.pop(uid, None)
            self.look()

        asyncio.get_running_loop().call_later(_RETRY_SECONDS, forget)

    def _refuse(self, group: asyncio.TaskGroup, pod: JsonObject, reasons: list[str]) -> None:
        hopeless = not can_ever_fit(pod["spec"], labels=self._labels, allocatable=self._allocatable)
        message = explanation(reasons, is_hopeless=hopeless)
        uid = pod["metadata"]["uid"]
        if self._told.get(uid) != message:
            self._told[uid] = message
            self._events.tell(pod, PodEvent(reason="FailedScheduling", message=message, is_warning=True, component=SCHEDULER))
            group.create_task(self._mark(pod, message))

    async def _mark(self, pod: JsonObject, message: str) -> None:
        metadata = pod["metadata"]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "observedGeneration": metadata.get("generation") or 1,
            "lastProbeTime": None,
            "lastTransitionTime": to_the_second(self._clock()),
        }
        body = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}}
        try:
            async with self._places:
                await self._client.patch(
                    PODS,
                    metadata["name"],
                    body,
                    patch_type=PatchType.STRATEGIC,
                    namespace=metadata["namespace"],
                    subresource="status",
                )
        except KubeError as error:
            log.info("a pod could not be told why it waits", pod=metadata["name"], error=str(error))
            self._look_again(metadata["uid"])


def _rank(pod: JsonObject) -> tuple[int, str, str]:
    created = pod["metadata"].get("creationTimestamp") or ""
    return -int(pod["spec"].get("priority") or 0), str(created), str(pod["metadata"]["name"])
