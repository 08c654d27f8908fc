"""The operator on an embedded cluster, for tests of a framework.

    @virtual_time
    async def test_a_ring_finishes() -> None:
        async with OperatorKit(frameworks=[RingJob]) as kit:
            kit.script.when("*-worker-*").run().after(60).succeed()
            job = await kit.submit(MANIFEST)
            await kit.until(job, phase="Succeeded")
            assert list(job.pods) == ["ring-worker-0", "ring-worker-1"]

With `@virtual_time`, or `run(...)` for a coroutine, hours take milliseconds. On an ordinary event loop, such as that of
pytest-asyncio, the same test runs in real time.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import yaml

from dlop.api.crd import build_crds
from dlop.api.types import ForceDeletion, Options
from dlop.deploy.apply import apply
from dlop.embedded.apiserver.faults import Faults
from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.store import StoreEvent
from dlop.embedded.apiserver.transports.inprocess import InProcessTransport
from dlop.embedded.cluster import EmbeddedCluster
from dlop.job import DLJob
from dlop.kube.client import Client, PatchType
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.faulty_transport import RecordedWrite
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.observed_job import ObservedJob
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script
from dlop.testing.virtual_time import DEFAULT_START, LoopClock

A_DAY = 86_400.0
STANDALONE = Settings.model_validate({"leader_election": False, "bind_address": "off"})
"""Settings of an operator without leader election and without endpoints."""


class OperatorKit:
    """Runs an operator, an embedded cluster and a scripted kubelet while the context is open."""

    def __init__(
        self,
        frameworks: Iterable[type[DLJob]],
        *,
        script: Script | None = None,
        seed: int = 0,
        start_seconds: float = DEFAULT_START,
        time_scale: float = 1.0,
        operator: bool = True,
        options: Options | None = None,
    ) -> None:
        """`start_seconds` is the initial time of the clock, since the epoch. One scripted second takes `time_scale` seconds.

        Without `operator`, start one with `start_operator`. `options` apply to all operators.
        By default pods on lost nodes are force-deleted after a timeout, because the cluster has no nodes.
        """
        self._time_scale = time_scale
        self.frameworks: tuple[type[DLJob], ...] = tuple(frameworks)
        self.script = Script() if script is None else script
        self.operators: list[RunningOperator] = []
        self._seed = seed
        self._start_seconds = start_seconds
        self._starts_operator = operator
        self._options = options or Options(force_deletion=ForceDeletion.TIMEOUT)
        self._stack = AsyncExitStack()
        self._changed = asyncio.Event()
        self._jobs: dict[str, ObservedJob] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> Self:
        self.clock = LoopClock(start=self._start_seconds)
        self.cluster = await self._stack.enter_async_context(
            EmbeddedCluster(clock=self.clock, new_uid=_sequential_uids(), rng=self._random(), token="test")  # noqa: S106 - no secret
        )
        self.cluster.store.listeners.append(self._on_change)
        self.client: Client = self.cluster.client()
        await apply(self.client, _cached_crds(self.frameworks), report=lambda _: None)
        kubelet = ScriptedKubelet(self.client, self.script, clock=self.clock, rng=self._random(), time_scale=self._time_scale)
        self.kubelet = await self._stack.enter_async_context(kubelet)
        if self._starts_operator:
            await self.start_operator()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for operator in self.operators:
            await operator.crash()
        await self._stack.__aexit__(kind, error, traceback)

    # --- the operator ------------------------------------------------------------------------------------------------

    async def start_operator(
        self, server: ApiServer | None = None, *, settings: Settings = STANDALONE, options: Options | None = None
    ) -> RunningOperator:
        """Start another operator with its own API server, by default without leader election.

        Faults of that server (`server.faults`) affect only this operator. `options` default to those of the kit.
        """
        server = server or self.new_server()
        operator = RunningOperator(
            InProcessTransport(server, token=server.token),
            frameworks=self.frameworks,
            clock=self.clock,
            rng=self._random(),
            settings=settings,
            identity=f"operator-{len(self.operators)}",
            options=options or self._options,
        )
        self.operators.append(operator)
        operator.start(on_end=self._changed.set)
        return operator

    def new_server(self) -> ApiServer:
        """Another API server on the same store."""
        return ApiServer(self.cluster.storage, Faults(self.cluster.store), token=self.cluster.server.token)

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine in the background. It is cancelled when the kit is closed."""
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    @property
    def operator(self) -> RunningOperator:
        """The operator that was started last."""
        return self.operators[-1]

    @property
    def writes(self) -> list[RecordedWrite]:
        """The writes of all operators, in order."""
        return sorted((write for operator in self.operators for write in operator.transport.writes), key=lambda write: write.at)

    async def writes_when_idle(self, *, settle_seconds: float = 60.0, seconds: float = 3600.0) -> list[RecordedWrite]:
        """Wait until the cluster has settled, and return the writes of the following `seconds`. There should be none."""
        await asyncio.sleep(settle_seconds)
        before = len(self.writes)
        await asyncio.sleep(seconds)
        self._raise_if_stopped()
        return self.writes[before:]

    # --- jobs --------------------------------------------------------------------------------------------------------

    async def submit(self, manifest: JsonObject | str | Path) -> ObservedJob:
        """Create a job from a dict, YAML text or a file."""
        body = _parse_manifest(manifest)
        framework = self._framework_of(body)
        namespace = body["metadata"].get("namespace", "default")
        await self.client.create(framework.job_type.resource_in(body["apiVersion"]), body, namespace=namespace)
        job = ObservedJob(self.cluster.store, framework, namespace=namespace, name=body["metadata"]["name"])
        self._jobs[str(job)] = job
        return job

    async def edit(self, job: ObservedJob | str, patch: JsonObject) -> None:
        """Update a job like `kubectl patch --type=merge`."""
        view = self.job(job)
        resource = view.framework.job_type.resource
        await self.client.patch(resource, view.name, patch, namespace=view.namespace, patch_type=PatchType.MERGE)

    def job(self, job: ObservedJob | str) -> ObservedJob:
        """A submitted job by `namespace/name`."""
        return job if isinstance(job, ObservedJob) else self._jobs[job]

    async def until(
        self,
        job: ObservedJob | str,
        *,
        phase: str | None = None,
        reached: Callable[[ObservedJob], bool] = lambda _: True,
        within_seconds: float = A_DAY,
    ) -> ObservedJob:
        """Wait until the job has the phase and `reached` returns true.

        Raises:
            AssertionError: the condition was not met in time; the message describes the job.
        """
        view = self.job(job)
        try:
            async with asyncio.timeout(within_seconds):
                await self._until(lambda: (phase is None or view.phase == phase) and reached(view))
        except TimeoutError:
            raise AssertionError(f"not reached within {within_seconds:g} s: phase {phase or 'any'}; {view.describe()}") from None
        return view

    # --- internals ---------------------------------------------------------------------------------------------------

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._raise_if_stopped()
            self._changed.clear()
            await self._changed.wait()

    def _on_change(self, change: StoreEvent) -> None:
        self._changed.set()

    def _on_task_done(self, task: asyncio.Task[object]) -> None:
        self._changed.set()

    def _raise_if_stopped(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        for operator in self.operators:
            operator.raise_if_stopped()

    def _framework_of(self, body: JsonObject) -> type[DLJob]:
        version_and_kind = (body.get("apiVersion"), body.get("kind"))
        for framework in self.frameworks:
            job_type = framework.job_type
            if any((api_version, job_type.kind) == version_and_kind for api_version in job_type.api_versions):
                return framework
        known = ", ".join(str(framework.job_type) for framework in self.frameworks)
        raise LookupError(f"the kit has no framework for {version_and_kind[0]} {version_and_kind[1]}; it has {known}")

    def _random(self) -> Random:
        return Random(self._seed)  # noqa: S311 - reproducible


def _parse_manifest(manifest: JsonObject | str | Path) -> JsonObject:
    if isinstance(manifest, dict):
        return manifest
    text = manifest.read_text() if isinstance(manifest, Path) else manifest
    body: JsonObject = yaml.safe_load(text)
    return body


@functools.lru_cache(maxsize=64)
def _cached_crds(frameworks: tuple[type[DLJob], ...]) -> tuple[JsonObject, ...]:
    # Cached, because building the CRDs takes a large part of a short test.
    return tuple(build_crds(frameworks))


def _sequential_uids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: str(UUID(int=next(numbers)))
