"""A whole cluster with an operator in it, for tests of a framework.

    @virtual_time
    async def test_a_ring_finishes() -> None:
        async with OperatorKit(frameworks=[RingJob]) as kit:
            kit.script.when("*-worker-*").run().after(60).succeed()
            job = await kit.submit(MANIFEST)
            await kit.until(job, phase="Succeeded")
            assert list(job.pods) == ["ring-worker-0", "ring-worker-1"]

On virtual time (`@virtual_time`, or `run(...)` for a coroutine) hours cost milliseconds. On an ordinary event loop, as in
a plain `async def` test under pytest-asyncio, the same test takes the time that it tells of.
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

from dlop.api.crd import definitions
from dlop.api.types import Options
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
from dlop.testing.faulty_transport import Write
from dlop.testing.kubelet import Kubelet
from dlop.testing.observed_job import ObservedJob
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script
from dlop.testing.virtual_time import DEFAULT_START, LoopClock

A_DAY = 86_400.0
OUTSIDE = Settings.model_validate({"leader_election": False, "bind_address": "off"})
"""How an operator runs that nobody competes with."""


class OperatorKit:
    """Operator, embedded cluster and scripted kubelet, for as long as the context lasts."""

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
        """`start_seconds` is when the test begins, since the epoch. One second of the script lasts `time_scale` seconds.

        Without `operator`, start one with `start_operator`. `options` are those of all operators.
        """
        self._time_scale = time_scale
        self.frameworks: tuple[type[DLJob], ...] = tuple(frameworks)
        self.script = Script() if script is None else script
        self.operators: list[RunningOperator] = []
        self._seed = seed
        self._start_seconds = start_seconds
        self._starts_operator = operator
        self._options = options
        self._stack = AsyncExitStack()
        self._changed = asyncio.Event()
        self._jobs: dict[str, ObservedJob] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> Self:
        self.clock = LoopClock(start=self._start_seconds)
        self.cluster = await self._stack.enter_async_context(
            EmbeddedCluster(clock=self.clock, new_uid=_counted_uids(), randomness=self._random(), token="test")  # noqa: S106 - no secret
        )
        self.cluster.store.listeners.append(self._note_change)
        self.client: Client = self.cluster.client()
        await apply(self.client, _definitions(self.frameworks), say=lambda _: None)
        kubelet = Kubelet(self.client, self.script, clock=self.clock, rng=self._random(), time_scale=self._time_scale)
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
        self, server: ApiServer | None = None, *, settings: Settings = OUTSIDE, options: Options | None = None
    ) -> RunningOperator:
        """Start one more operator on this cluster, by default without a lease, and over an API server of its own.

        What the test does to that server (`server.faults`) nobody but the operator notices. `options` are those of the kit by default.
        """
        operator = RunningOperator(
            InProcessTransport(server or self.new_server()),
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
        """One more API server over the same store."""
        return ApiServer(self.cluster.verbs, Faults(self.cluster.store), token=self.cluster.server.token)

    def later(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do something beside the test, as soon as the test waits. It ends with the kit."""
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._changed_by)

    @property
    def operator(self) -> RunningOperator:
        """The operator that was started last."""
        return self.operators[-1]

    @property
    def writes(self) -> list[Write]:
        """Every write that any operator has sent, in order."""
        return sorted((write for operator in self.operators for write in operator.wire.writes), key=lambda write: write.at)

    async def writes_at_rest(self, *, settle_seconds: float = 60.0, seconds: float = 3600.0) -> list[Write]:
        """What the operators write in so many seconds after the world has settled: nothing, if all is as it should be."""
        await asyncio.sleep(settle_seconds)
        before = len(self.writes)
        await asyncio.sleep(seconds)
        self._demand_operators()
        return self.writes[before:]

    # --- jobs --------------------------------------------------------------------------------------------------------

    async def submit(self, manifest: JsonObject | str | Path) -> ObservedJob:
        """Create a job from plain data, YAML text or a file."""
        body = _read(manifest)
        framework = self._framework_of(body)
        namespace = body["metadata"].get("namespace", "default")
        await self.client.create(framework.job_type.resource, body, namespace=namespace)
        view = ObservedJob(self.cluster.store, framework, namespace=namespace, name=body["metadata"]["name"])
        self._jobs[str(view)] = view
        return view

    async def edit(self, job: ObservedJob | str, patch: JsonObject) -> None:
        """Change a job as `kubectl patch --type=merge` does."""
        view = self.job(job)
        resource = view.framework.job_type.resource
        await self.client.patch(resource, view.name, patch, namespace=view.namespace, patch_type=PatchType.MERGE)

    def job(self, job: ObservedJob | str) -> ObservedJob:
        """A job that was submitted, by `namespace/name`."""
        return job if isinstance(job, ObservedJob) else self._jobs[job]

    async def until(
        self,
        job: ObservedJob | str,
        *,
        phase: str | None = None,
        reached: Callable[[ObservedJob], bool] = lambda _: True,
        within_seconds: float = A_DAY,
    ) -> ObservedJob:
        """Wait until the job is in a phase, and until `reached` says so.

        Raises:
            AssertionError: when that has not come true in time, with everything that is known of the job.
        """
        view = self.job(job)
        try:
            async with asyncio.timeout(within_seconds):
                await self._until(lambda: (phase is None or view.phase == phase) and reached(view))
        except TimeoutError:
            raise AssertionError(f"not reached within {within_seconds:g} s: phase {phase or 'any'}; {view.describe()}") from None
        return view

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._demand_operators()
            self._changed.clear()
            await self._changed.wait()

    def _note_change(self, change: StoreEvent) -> None:
        self._changed.set()

    def _changed_by(self, task: asyncio.Task[object]) -> None:
        self._changed.set()

    def _demand_operators(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        for operator in self.operators:
            operator.demand()

    def _framework_of(self, body: JsonObject) -> type[DLJob]:
        wanted = (body.get("apiVersion"), body.get("kind"))
        for framework in self.frameworks:
            if (framework.job_type.api_version, framework.job_type.kind) == wanted:
                return framework
        known = ", ".join(str(framework.job_type) for framework in self.frameworks)
        raise LookupError(f"the kit has no framework for {wanted[0]} {wanted[1]}; it has {known}")

    def _random(self) -> Random:
        return Random(self._seed)  # noqa: S311 - the same every time, on purpose


def _read(manifest: JsonObject | str | Path) -> JsonObject:
    if isinstance(manifest, dict):
        return manifest
    text = manifest.read_text() if isinstance(manifest, Path) else manifest
    body: JsonObject = yaml.safe_load(text)
    return body


@functools.lru_cache(maxsize=64)
def _definitions(frameworks: tuple[type[DLJob], ...]) -> tuple[JsonObject, ...]:
    """Made once for all tests of a kind: it is a good part of what a short test costs."""
    return tuple(definitions(frameworks))


def _counted_uids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: str(UUID(int=next(numbers)))
