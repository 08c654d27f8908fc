"""A node on a cluster, with a recorded history of its pods.

Every version of every pod is kept, so that a test can wait for past and future states without polling.
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
from dlop.embedded.kubelet.crash_loop_backoff import BackoffPolicy
from dlop.embedded.kubelet.image_map import ImageMap
from dlop.embedded.kubelet.kubelet import EmbeddedKubelet
from dlop.embedded.kubelet.logs import ContainerLog, LogQuery
from dlop.embedded.kubelet.node_context import Timings
from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.kube.client import Client
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject
from dlop.kube.resources import CORE_EVENTS, PODS, Resource
from dlop.kube.types import JsonObject

TIMEOUT_SECONDS = 30.0

FAST_TIMINGS = Timings(
    restarts=BackoffPolicy(0.2, 0.8),
    images=BackoffPolicy(0.2, 0.8),
    volumes=BackoffPolicy(0.1, 0.4),
    retry_seconds=0.2,
)
"""The kubelet's retries, fifty times as fast."""


class Absent:
    """In a pattern, the field must be absent or empty."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


def find_mismatch(pattern: Any, value: Any, path: str = "") -> str:
    """The first difference between a value and a pattern. Empty if it matches.

    A pattern is partial: some keys of an object, the elements of a list with the same `name` or `type`, a regular expression for a string,
    or a predicate.
    """
    if pattern is ABSENT:
        return "" if value in (None, "", [], {}) else f"{path} is {value!r} but must be absent"
    if isinstance(pattern, dict):
        return _find_object_mismatch(pattern, value, path)
    if isinstance(pattern, list) and pattern and isinstance(pattern[0], dict):
        return _find_list_mismatch(pattern, value, path)
    if isinstance(pattern, re.Pattern):
        matches = isinstance(value, str) and pattern.search(value) is not None
    elif callable(pattern):
        matches = bool(pattern(value))
    else:
        matches = pattern == value
    return "" if matches else f"{path} is {value!r}, expected {pattern!r}"


def _find_object_mismatch(pattern: dict[str, Any], value: Any, path: str) -> str:
    if not isinstance(value, dict):
        return f"{path} is {value!r}, expected {pattern!r}"
    mismatches = (find_mismatch(field_pattern, value.get(key), f"{path}.{key}") for key, field_pattern in pattern.items())
    return next((mismatch for mismatch in mismatches if mismatch), "")


def _find_list_mismatch(pattern: list[dict[str, Any]], value: Any, path: str) -> str:
    for position, element_pattern in enumerate(pattern):
        key = next((key for key in ("name", "type") if key in element_pattern), None)
        elements = value or []
        if key is None:
            element = elements[position] if position < len(elements) else None
        else:
            element = next((item for item in elements if item.get(key) == element_pattern[key]), None)
        if mismatch := find_mismatch(element_pattern, element, f"{path}[{element_pattern.get(key) if key else position}]"):
            return mismatch
    return ""


@dataclass
class PodHistory:
    versions: list[JsonObject] = field(default_factory=list)
    is_deleted: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, pod: JsonObject | None) -> None:
        """Add a version, or None for the deletion."""
        if pod is None:
            self.is_deleted = True
        else:
            self.is_deleted = False
            self.versions.append(pod)
        self.changed.set()


@dataclass
class NodeEnv:
    """A cluster with one node."""

    client: Client
    node: EmbeddedKubelet
    directory: Path
    namespace: str = "default"
    histories: dict[tuple[str, str], PodHistory] = field(default_factory=dict)
    timeout_seconds: float = TIMEOUT_SECONDS

    async def create(self, resource: Resource, body: JsonObject) -> JsonObject:
        manifest = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self.client.create(resource, manifest, namespace=self.namespace)

    async def run_pod(self, name: str, spec: JsonObject, **metadata: Any) -> JsonObject:
        """Create a pod, maybe after another one of the same name."""
        self.history(name).is_deleted = False
        return await self.create(PODS, {"metadata": {"name": name, **metadata}, "spec": spec})

    def history(self, name: str) -> PodHistory:
        return self.histories.setdefault((self.namespace, name), PodHistory())

    async def wait_for_status(self, name: str, pattern: JsonObject, *, since: int = 0) -> int:
        """Wait for a version of a pod, starting at `since`, whose status matches. Returns the index of the version."""
        return await self.wait_for_pod(name, {"status": pattern}, since=since)

    async def wait_for_pod(self, name: str, pattern: JsonObject, *, since: int = 0) -> int:
        """Wait for a version of a pod, starting at `since`, that matches. Returns the index of the version."""
        history, index = self.history(name), since
        try:
            async with asyncio.timeout(self.timeout_seconds):
                while True:
                    for position in range(index, len(history.versions)):
                        if not find_mismatch(pattern, history.versions[position]):
                            return position
                    index = max(index, len(history.versions))
                    assert not history.is_deleted, f"{name} was deleted and never matched: {pattern}"
                    history.changed.clear()
                    await history.changed.wait()
        except TimeoutError:
            last = history.versions[-1] if history.versions else {}
            raise AssertionError(f"{find_mismatch(pattern, last)}; last status: {last.get('status')}") from None

    async def wait_finished(self, name: str) -> JsonObject:
        """Wait until a pod has succeeded or failed. Returns its status."""
        index = await self.wait_for_status(name, {"phase": re.compile("^(Succeeded|Failed)$")})
        status: JsonObject = self.history(name).versions[index]["status"]
        return status

    async def wait_deleted(self, name: str) -> JsonObject:
        """Wait until a pod is deleted. Returns its last status."""
        history = self.history(name)
        async with asyncio.timeout(self.timeout_seconds):
            while not history.is_deleted:
                history.changed.clear()
                await history.changed.wait()
        status: JsonObject = history.versions[-1]["status"]
        return status

    async def delete(self, name: str, *, grace_seconds: int | None = None) -> None:
        await self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=grace_seconds)

    async def wait_for_event(self, name: str, pattern: JsonObject) -> JsonObject:
        """Wait for an event of a pod that matches. Returns it."""
        received: list[JsonObject] = []
        async with asyncio.timeout(self.timeout_seconds):
            async with self.client.watch(CORE_EVENTS, namespace=self.namespace, resource_version="0") as events:
                async for event in events:
                    body = event.decode()
                    if (body.get("involvedObject") or {}).get("name") != name:
                        continue
                    received.append(body)
                    if not find_mismatch(pattern, body):
                        return body
        raise AssertionError(f"{name} has no event {pattern}: {received}")

    async def wait_for_output(self, name: str, text: str, container: str = "main") -> None:
        """Wait until a container has written this text."""
        log, output = self._log(name, container), b""
        assert log is not None
        async with asyncio.timeout(self.timeout_seconds), aclosing(log.read(LogQuery(follow=True))) as chunks:
            async for chunk in chunks:
                output += chunk
                if text.encode() in output:
                    return
        raise AssertionError(f"{text!r} is not in the output {output!r}")

    def output(self, name: str, container: str = "main") -> str:
        """The output of a container so far."""
        log = self._log(name, container)
        return "" if log is None else log.read_available().decode()

    def _log(self, name: str, container: str) -> ContainerLog | None:
        worker = self.node.find_worker(self.namespace, name)
        assert worker is not None
        return worker.containers[container].logs.current


@asynccontextmanager
async def embedded_node_env(
    runtime: Runtime, directory: Path, *, timings: Timings = FAST_TIMINGS, images: ImageMap | None = None, **size: Any
) -> AsyncIterator[NodeEnv]:
    """An embedded cluster with a node."""
    async with EmbeddedCluster() as cluster:
        node = EmbeddedKubelet(
            cluster.client(), runtime=runtime, root_dir=directory, timings=timings, images=images, **{"cpus": 1000, **size}
        )
        async with node_env(cluster.client(), node, directory) as env:
            yield env


@asynccontextmanager
async def node_env(
    client: Client, node: EmbeddedKubelet, directory: Path, *, namespace: str = "default", timeout_seconds: float = TIMEOUT_SECONDS
) -> AsyncIterator[NodeEnv]:
    """Run a node and record all pods."""
    env = NodeEnv(client, node, directory, namespace, timeout_seconds=timeout_seconds)
    informer = Informer(client, PODS, CustomObject, rng=Random(0), handlers=[_recorder(env.histories)])
    async with node:
        informer_task = asyncio.create_task(informer.run())
        try:
            await informer.wait_synced()
            yield env
        finally:
            informer_task.cancel()
            await asyncio.gather(informer_task, return_exceptions=True)


def _recorder(histories: dict[tuple[str, str], PodHistory]) -> Callable[[Any], None]:
    def add(change: Any) -> None:
        metadata = change.object.metadata
        history = histories.setdefault((metadata.namespace, metadata.name), PodHistory())
        history.add(None if change.new is None else change.new.body())

    return add
