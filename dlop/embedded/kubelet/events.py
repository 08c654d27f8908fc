"""Events of pods, as a kubelet and a scheduler tell them.

They wait in a bounded line and one task sends them, so that nothing ever waits for an event. The same event again counts the
first one up. When the line is full, events are dropped: they are for people, and nothing rests on them.
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
from dlop.kube.timestamps import to_the_second
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

KUBELET = "kubelet"
SCHEDULER = "default-scheduler"

_LONGEST_LINE = 10_000
_MOST_STORIES = 4096
_LONGEST_MESSAGE = 1024
_LONGEST_NAME = 230


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """Something to tell of a pod."""

    reason: str
    message: str
    is_warning: bool = False
    field_path: str = ""
    """Which part of the pod it is about, such as a container."""
    component: str = KUBELET


@dataclass(slots=True)
class _Story:
    """One event, however often it was told."""

    pod: JsonObject
    event: PodEvent
    name: str
    first_at: float
    last_at: float
    count: int = 1
    is_sent: bool = False
    is_waiting: bool = False


class Events:
    """The line of events of a node."""

    def __init__(self, client: Client, *, host: str, clock: Callable[[], float]) -> None:
        self._client = client
        self._host = host
        self._clock = clock
        self._last_stamp = 0
        self._line: asyncio.Queue[_Story] = asyncio.Queue(_LONGEST_LINE)
        self._stories: OrderedDict[tuple[str, PodEvent], _Story] = OrderedDict()

    def tell(self, pod: JsonObject, event: PodEvent) -> None:
        """Tell something of a pod. Returns at once."""
        key = (pod["metadata"]["uid"], event)
        story = self._stories.get(key)
        if story is None:
            now = self._clock()
            name = f"{pod['metadata']['name'][:_LONGEST_NAME]}.{self._stamp(now):x}"
            story = self._stories[key] = _Story(pod, event, name, first_at=now, last_at=now)
        else:
            story.count += 1
            story.last_at = self._clock()
        self._stories.move_to_end(key)
        if len(self._stories) > _MOST_STORIES:
            self._stories.popitem(last=False)
        if not story.is_waiting and not self._line.full():
            story.is_waiting = True
            self._line.put_nowait(story)

    def _stamp(self, now: float) -> int:
        """Nanoseconds, as kubelets put them into the names of events: what happens within a second is then listed in order."""
        self._last_stamp = max(self._last_stamp + 1, int(now * 1e9))
        return self._last_stamp

    async def run(self) -> None:
        """Send events until cancelled."""
        while True:
            story = await self._line.get()
            story.is_waiting = False
            try:
                await self._send(story)
            except KubeError as error:
                log.info("an event could not be sent", reason=story.event.reason, error=str(error))
            finally:
                self._line.task_done()

    async def drain(self, *, within_seconds: float) -> None:
        """Wait until all that was told is sent. That is the work of `run`, which must go on meanwhile."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._line.join()
        except TimeoutError:
            log.info("events were left unsaid", events=self._line.qsize())

    async def _send(self, story: _Story) -> None:
        namespace = story.pod["metadata"]["namespace"]
        if story.is_sent:
            change = {"count": story.count, "lastTimestamp": to_the_second(story.last_at)}
            try:
                await self._client.patch(CORE_EVENTS, story.name, change, namespace=namespace)
                return
            except NotFoundError:
                pass  # it has expired on the server, so it is told anew
        await self._client.create(CORE_EVENTS, self._body(story), namespace=namespace)
        story.is_sent = True

    def _body(self, story: _Story) -> JsonObject:
        metadata, event = story.pod["metadata"], story.event
        about = {
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
            "metadata": {"name": story.name, "namespace": metadata["namespace"]},
            "involvedObject": {**about, "fieldPath": event.field_path} if event.field_path else about,
            "reason": event.reason,
            "message": _shortened(event.message),
            "type": "Warning" if event.is_warning else "Normal",
            "source": {"component": event.component, "host": self._host},
            "reportingComponent": event.component,
            "reportingInstance": self._host,
            "firstTimestamp": to_the_second(story.first_at),
            "lastTimestamp": to_the_second(story.last_at),
            "count": story.count,
        }


def _shortened(message: str) -> str:
    data = message.encode()
    return message if len(data) <= _LONGEST_MESSAGE else data[: _LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."
