"""Records events of pods, as the kubelet and the scheduler do.

Events wait in a bounded queue, and one task sends them, so that recording never blocks. A repeated event increments the count of the
first one. Events are dropped when the queue is full, because they are informational only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from dlop.kube.client import Client
from dlop.kube.errors import KubeError, NotFoundError
from dlop.kube.resources import CORE_EVENTS
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

KUBELET = "kubelet"
SCHEDULER = "default-scheduler"

_MAX_QUEUE_LENGTH = 10_000
_MAX_SERIES = 4096
_MAX_MESSAGE_BYTES = 1024
_MAX_NAME_PREFIX = 230


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    reason: str
    message: str
    is_warning: bool = False
    field_path: str = ""
    """The part of the pod that the event is about, such as a container."""
    component: str = KUBELET


@dataclass(slots=True)
class _Series:
    """All occurrences of one event."""

    pod: JsonObject
    event: PodEvent
    name: str
    first_at: float
    last_at: float
    count: int = 1
    is_sent: bool = False
    is_queued: bool = False


class PodEventRecorder:
    def __init__(self, client: Client, *, host: str, clock: Callable[[], float]) -> None:
        self._client = client
        self._host = host
        self._clock = clock
        self._last_suffix = 0
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(_MAX_QUEUE_LENGTH)
        self._series: OrderedDict[tuple[str, PodEvent], _Series] = OrderedDict()

    def record(self, pod: JsonObject, event: PodEvent) -> None:
        """Queue an event. Does not block."""
        key = (pod["metadata"]["uid"], event)
        series = self._series.get(key)
        if series is None:
            now = self._clock()
            name = f"{pod['metadata']['name'][:_MAX_NAME_PREFIX]}.{self._name_suffix(now):x}"
            series = self._series[key] = _Series(pod, event, name, first_at=now, last_at=now)
        else:
            series.count += 1
            series.last_at = self._clock()
        self._series.move_to_end(key)
        if len(self._series) > _MAX_SERIES:
            self._series.popitem(last=False)
        if not series.is_queued and not self._queue.full():
            series.is_queued = True
            self._queue.put_nowait(series)

    def _name_suffix(self, now: float) -> int:
        """Nanoseconds, as in the event names of kubelets, so that events of the same second are listed in order."""
        self._last_suffix = max(self._last_suffix + 1, int(now * 1e9))
        return self._last_suffix

    async def run(self) -> None:
        """Send events until cancelled."""
        while True:
            series = await self._queue.get()
            series.is_queued = False
            try:
                await self._send(series)
            except KubeError as error:
                log.info("event not sent", reason=series.event.reason, error=str(error))

    async def _send(self, series: _Series) -> None:
        namespace = series.pod["metadata"]["namespace"]
        if series.is_sent:
            change = {"count": series.count, "lastTimestamp": format_time(series.last_at)}
            try:
                await self._client.patch(CORE_EVENTS, series.name, change, namespace=namespace)
                return
            except NotFoundError:
                pass  # the event has expired on the server, so create it again
        await self._client.create(CORE_EVENTS, self._body(series), namespace=namespace)
        series.is_sent = True

    def _body(self, series: _Series) -> JsonObject:
        metadata, event = series.pod["metadata"], series.event
        involved_object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": metadata["namespace"]},
            "involvedObject": {**involved_object, "fieldPath": event.field_path} if event.field_path else involved_object,
            "reason": event.reason,
            "message": _truncate(event.message),
            "type": "Warning" if event.is_warning else "Normal",
            "source": {"component": event.component, "host": self._host},
            "reportingComponent": event.component,
            "reportingInstance": self._host,
            "firstTimestamp": format_time(series.first_at),
            "lastTimestamp": format_time(series.last_at),
            "count": series.count,
        }


def _truncate(message: str) -> str:
    data = message.encode()
    return message if len(data) <= _MAX_MESSAGE_BYTES else data[: _MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
