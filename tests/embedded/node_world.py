"""A node on a cluster, and eyes that follow what becomes of its pods.

Every version of every pod is kept as it comes, so that a test can ask for what has been as well as for what is, and never
has to look twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.image_map import ImageMap
from dlop.embedded.kubelet.kubelet import Node
from dlop.embedded.kubelet.logs import ContainerLog, LogQuery
from dlop.embedded.kubelet.node_context import Timings
from dlop.embedded.kubelet.restart_backoff import RestartPace
from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.kube.client import Client
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject
from dlop.kube.resources import CORE_EVENTS, PODS, Resource
from dlop.kube.types import JsonObject

PATIENCE_SECONDS = 30.0

HURRIED = Timings(
    restarts=RestartPace(0.2, 0.8),
    images=RestartPace(0.2, 0.8),
    volumes=RestartPace(0.1, 0.4),
    retry_seconds=0.2,
    shortest_grace_seconds=0.3,
)
"""The kubelet's pace, fifty times as fast."""


class Absent:
    """In a pattern: there is nothing there."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


def difference(pattern: Any, found: Any, path: str = "") -> str:
    """Where something does not look like a pattern; empty if it does.

    A pattern is a part of what is expected: of mappings some keys, of lists those elements that have the same `name` or `type`,
    of texts a regular expression if it is one.
    """
    if pattern is ABSENT:
        return "" if found in (None, "", [], {}) else f"{path} is {found!r} and should not be there"
    if isinstance(pattern, dict):
        return _difference_of_mappings(pattern, found, path)
    if isinstance(pattern, list) and pattern and isinstance(pattern[0], dict):
        return _difference_of_lists(pattern, found, path)
    if isinstance(pattern, re.Pattern):
        fits = isinstance(found, str) and pattern.search(found) is not None
    elif callable(pattern):
        fits = bool(pattern(found))
    else:
        fits = pattern == found
    return "" if fits else f"{path} is {found!r} and not {pattern!r}"


def _difference_of_mappings(pattern: dict[str, Any], found: Any, path: str) -> str:
    if not isinstance(found, dict):
        return f"{path} is {found!r} and not {pattern!r}"
    problems = (difference(value, found.get(key), f"{path}.{key}") for key, value in pattern.items())
    return next((problem for problem in problems if problem), "")


def _difference_of_lists(pattern: list[dict[str, Any]], found: Any, path: str) -> str:
    for position, wanted in enumerate(pattern):
        key = next((key for key in ("name", "type") if key in wanted), None)
        elements = found or []
        if key is None:
            element = elements[position] if position < len(elements) else None
        else:
            element = next((each for each in elements if each.get(key) == wanted[key]), None)
        if problem := difference(wanted, element, f"{path}[{wanted.get(key) if key else position}]"):
            return problem
    return ""


@dataclass
class Sight:
    """All that was seen of one pod."""

    versions: list[JsonObject] = field(default_factory=list)
    is_gone: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, pod: JsonObject | None) -> None:
        """Another version, or None for its end."""
        if pod is None:
            self.is_gone = True
        else:
            self.is_gone = False
            self.versions.append(pod)
        self.changed.set()


@dataclass
class NodeWorld:
    """A cluster with one node of ours."""

    client: Client
    node: Node
    folder: Path
    namespace: str = "default"
    sights: dict[tuple[str, str], Sight] = field(default_factory=dict)
    patience_seconds: float = PATIENCE_SECONDS

    async def create(self, resource: Resource, body: JsonObject) -> JsonObject:
        """Create an object in the world's namespace."""
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self.client.create(resource, whole, namespace=self.namespace)

    async def run_pod(self, name: str, spec: JsonObject, **metadata: Any) -> JsonObject:
        """Create a pod, maybe after another of its name."""
        self.sight(name).is_gone = False
        return await self.create(PODS, {"metadata": {"name": name, **metadata}, "spec": spec})

    def sight(self, name: str) -> Sight:
        """What was seen of a pod of the world's namespace."""
        return self.sights.setdefault((self.namespace, name), Sight())

    async def sees(self, name: str, pattern: JsonObject, *, since: int = 0) -> int:
        """Wait for a version of a pod, at or after one, whose status looks like this. Says which one it was."""
        return await self.sees_pod(name, {"status": pattern}, since=since)

    async def sees_pod(self, name: str, pattern: JsonObject, *, since: int = 0) -> int:
        """The same for the whole pod."""
        sight, at = self.sight(name), since
        try:
            async with asyncio.timeout(self.patience_seconds):
                while True:
                    for position in range(at, len(sight.versions)):
                        if not difference(pattern, sight.versions[position]):
                            return position
                    at = max(at, len(sight.versions))
                    assert not sight.is_gone, f"{name} is gone, and was never like this: {pattern}"
                    sight.changed.clear()
                    await sight.changed.wait()
        except TimeoutError:
            last = sight.versions[-1] if sight.versions else {}
            raise AssertionError(f"{difference(pattern, last)}; the last that was seen: {last.get('status')}") from None

    async def sees_the_end(self, name: str) -> JsonObject:
        """Wait until a pod has succeeded or failed, and give its status."""
        at = await self.sees(name, {"phase": re.compile("^(Succeeded|Failed)$")})
        status: JsonObject = self.sight(name).versions[at]["status"]
        return status

    async def sees_it_gone(self, name: str) -> JsonObject:
        """Wait until a pod is no more, and give its last status."""
        sight = self.sight(name)
        async with asyncio.timeout(self.patience_seconds):
            while not sight.is_gone:
                sight.changed.clear()
                await sight.changed.wait()
        status: JsonObject = sight.versions[-1]["status"]
        return status

    async def delete(self, name: str, *, grace_seconds: int | None = None) -> None:
        """Delete a pod."""
        await self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=grace_seconds)

    async def hears(self, name: str, pattern: JsonObject) -> JsonObject:
        """Wait for an event of a pod that looks like this."""
        heard: list[JsonObject] = []
        async with asyncio.timeout(self.patience_seconds):
            async with self.client.watch(CORE_EVENTS, namespace=self.namespace, resource_version="0") as events:
                async for event in events:
                    told = event.decode()
                    if (told.get("involvedObject") or {}).get("name") != name:
                        continue
                    heard.append(told)
                    if not difference(pattern, told):
                        return told
        raise AssertionError(f"{pattern} was not heard of {name}: {heard}")

    async def hears_say(self, name: str, text: str, container: str = "main") -> None:
        """Wait until a container that has started has said this."""
        log, said = self._log(name, container), b""
        assert log is not None
        async with asyncio.timeout(self.patience_seconds), aclosing(log.read(LogQuery(follow=True))) as pieces:
            async for piece in pieces:
                said += piece
                if text.encode() in said:
                    return
        raise AssertionError(f"{text!r} was never said, but {said!r}")

    def output(self, name: str, container: str = "main") -> str:
        """What a container of a pod has said."""
        log = self._log(name, container)
        return "" if log is None else log.text().decode()

    def _log(self, name: str, container: str) -> ContainerLog | None:
        worker = self.node._find(self.namespace, name)
        assert worker is not None
        return worker.containers[container].logs.current


@asynccontextmanager
async def embedded_world(
    runtime: Runtime, folder: Path, *, pace: Timings = HURRIED, images: ImageMap | None = None, **size: Any
) -> AsyncIterator[NodeWorld]:
    """The embedded cluster, with a node."""
    async with EmbeddedCluster() as cluster:
        node = Node(cluster.client(), runtime=runtime, folder=folder, pace=pace, images=images, **{"cpus": 1000, **size})
        async with world_of(cluster.client(), node, folder) as world:
            yield world


@asynccontextmanager
async def world_of(
    client: Client, node: Node, folder: Path, *, namespace: str = "default", patience_seconds: float = PATIENCE_SECONDS
) -> AsyncIterator[NodeWorld]:
    """A node, and eyes on all pods."""
    world = NodeWorld(client, node, folder, namespace, patience_seconds=patience_seconds)
    informer = Informer(client, PODS, CustomObject, rng=Random(0), handlers=[_eyes(world.sights)])
    async with node:
        watching = asyncio.create_task(informer.run())
        try:
            await informer.wait_synced()
            yield world
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def _eyes(sights: dict[tuple[str, str], Sight]) -> Callable[[Any], None]:
    def see(change: Any) -> None:
        metadata = change.object.metadata
        sight = sights.setdefault((metadata.namespace, metadata.name), Sight())
        sight.see(None if change.new is None else change.new.body())

    return see
