"""Assigns pods to the node, or reports why they do not fit.

Pods are scheduled by priority and age. A pod that does not fit does not block others and is tried again after the next change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from dlop.embedded.kubelet.events import SCHEDULER, PodEvent, PodEventRecorder
from dlop.embedded.scheduler.predicates import (
    ResourceList,
    failed_scheduling_message,
    fits_empty_node,
    pod_requests,
    sum_resources,
    unschedulable_reasons,
)
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import KubeError
from dlop.kube.resources import PODS
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

_FINISHED = ("Succeeded", "Failed")
_MAX_IN_FLIGHT = 16
_RETRY_SECONDS = 1.0


class Scheduler:
    """The scheduler of one node."""

    def __init__(
        self,
        client: Client,
        *,
        node_name: str,
        labels: Mapping[str, str],
        allocatable: ResourceList,
        pods: Callable[[], Iterable[JsonObject]],
        events: PodEventRecorder,
        clock: Callable[[], float],
        schedule_all: bool = False,
    ) -> None:
        """`pods` returns all cached pods of the cluster. With `schedule_all`, pods with another `schedulerName` are scheduled too."""
        self._client = client
        self._node_name = node_name
        self._labels = labels
        self._allocatable = allocatable
        self._pods = pods
        self._events = events
        self._clock = clock
        self._schedule_all = schedule_all
        self._triggered = asyncio.Event()
        self._assumed: dict[str, ResourceList] = {}
        """Requests by UID of pods that were bound and whose binding is not in the cache yet."""
        self._last_messages: dict[str, str] = {}
        """The last FailedScheduling message of each pending pod, by UID."""
        self._in_flight = asyncio.Semaphore(_MAX_IN_FLIGHT)

    def trigger(self) -> None:
        """To be called when a pod has changed."""
        self._triggered.set()

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._triggered.wait()
                self._triggered.clear()
                self._schedule_pending(group)

    def _schedule_pending(self, group: asyncio.TaskGroup) -> None:
        pods = list(self._pods())
        pending = sorted((pod for pod in pods if self._is_pending(pod)), key=_queue_order)
        if not pending:
            self._last_messages.clear()
        bound_uids = {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}
        self._assumed = {uid: requests for uid, requests in self._assumed.items() if uid not in bound_uids}
        on_node = [pod_requests(pod["spec"]) for pod in pods if self._is_on_node(pod)] if pending else []
        requested = sum_resources([*on_node, *self._assumed.values()])
        for pod in pending:
            uid = pod["metadata"]["uid"]
            if uid in self._assumed:
                continue
            reasons = unschedulable_reasons(pod["spec"], labels=self._labels, allocatable=self._allocatable, requested=requested)
            if reasons:
                self._report_unschedulable(group, pod, reasons)
            else:
                self._assumed[uid] = pod_requests(pod["spec"])
                requested = sum_resources((requested, self._assumed[uid]))
                group.create_task(self._bind(pod))

    def _is_pending(self, pod: JsonObject) -> bool:
        spec, status = pod["spec"], pod.get("status") or {}
        return (
            not spec.get("nodeName")
            and not spec.get("schedulingGates")
            and not pod["metadata"].get("deletionTimestamp")
            and (self._schedule_all or spec.get("schedulerName", SCHEDULER) == SCHEDULER)
            and status.get("phase") not in _FINISHED
        )

    def _is_on_node(self, pod: JsonObject) -> bool:
        return pod["spec"].get("nodeName") == self._node_name and (pod.get("status") or {}).get("phase") not in _FINISHED

    # --- writes ------------------------------------------------------------------------------------------------------

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
            async with self._in_flight:
                await self._client.create(PODS, body, namespace=namespace, name=name, subresource="binding")
        except KubeError as error:
            log.info("binding failed, retrying", pod=name, namespace=namespace, error=str(error))
            self._retry_later(metadata["uid"])
            return
        message = f"Successfully assigned {namespace}/{name} to {self._node_name}"
        self._events.record(pod, PodEvent(reason="Scheduled", message=message, component=SCHEDULER))

    def _retry_later(self, uid: str) -> None:
        def retry() -> None:
            self._assumed.pop(uid, None)
            self._last_messages.pop(uid, None)
            self.trigger()

        asyncio.get_running_loop().call_later(_RETRY_SECONDS, retry)

    def _report_unschedulable(self, group: asyncio.TaskGroup, pod: JsonObject, reasons: list[str]) -> None:
        can_fit = fits_empty_node(pod["spec"], labels=self._labels, allocatable=self._allocatable)
        message = failed_scheduling_message(reasons, can_fit=can_fit)
        uid = pod["metadata"]["uid"]
        if self._last_messages.get(uid) != message:
            self._last_messages[uid] = message
            self._events.record(pod, PodEvent(reason="FailedScheduling", message=message, is_warning=True, component=SCHEDULER))
            group.create_task(self._write_condition(pod, message))

    async def _write_condition(self, pod: JsonObject, message: str) -> None:
        metadata = pod["metadata"]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "observedGeneration": metadata.get("generation") or 1,
            "lastProbeTime": None,
            "lastTransitionTime": format_time(self._clock()),
        }
        body = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}}
        try:
            async with self._in_flight:
                await self._client.patch(
                    PODS,
                    metadata["name"],
                    body,
                    patch_type=PatchType.STRATEGIC,
                    namespace=metadata["namespace"],
                    subresource="status",
                )
        except KubeError as error:
            log.info("PodScheduled condition not written, retrying", pod=metadata["name"], error=str(error))
            self._retry_later(metadata["uid"])


def _queue_order(pod: JsonObject) -> tuple[int, str, str]:
    created = pod["metadata"].get("creationTimestamp") or ""
    return -int(pod["spec"].get("priority") or 0), str(created), str(pod["metadata"]["name"])
