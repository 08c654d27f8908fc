"""Runs a scenario stage by stage, and takes a snapshot of the cluster after each stage.

A run with a fault must have the same snapshots as the reference run, create and delete every object as often, and write
nothing at rest. A forked run may stop some stages after its fault; it is compared up to there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from dlop.api.types import Options
from dlop.deploy.apply import apply
from dlop.embedded.apiserver.store import StoreEvent
from dlop.job import DLJob
from dlop.kube.types import JsonObject
from dlop.testing.faulty_transport import RecordedWrite
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.script import Script
from tests.sim.forked_runs import ForkedRuns
from tests.sim.invariants import InvariantChecker, masked_state

# Time for the cluster to settle after a stage. Longer than any back-off.
_SETTLE_SECONDS = 120.0
# Time without writes that is required at the end.
_IDLE_SECONDS = 1200.0


@dataclass
class RunResult:
    snapshots: dict[str, dict[str, JsonObject]] = field(default_factory=dict)
    """Masked objects at the end of each stage."""
    counts: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """Number of creates and deletes by object, at the end of each stage."""
    violations: list[str] = field(default_factory=list)
    writes: list[RecordedWrite] = field(default_factory=list)
    writes_when_idle: list[RecordedWrite] = field(default_factory=list)
    commits: int = 0
    """Number of changes of objects that an operator watches."""
    errors: list[str] = field(default_factory=list)
    """Logged errors. A pass that fails because of a bug is retried, and would not be noticed otherwise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario:
    """What happens to one job, from its creation to its deletion."""

    name: str
    framework: type[DLJob]
    script: Callable[[], Script]
    steps: Callable[[ScenarioRun], Awaitable[None]]
    options: Options | None = None
    """Options of the operators."""
    crds: tuple[JsonObject, ...] = ()
    """CRDs to install in addition to that of the job."""

    def __str__(self) -> str:
        return self.name


class ScenarioRun:
    """One run of a scenario."""

    def __init__(self, kit: OperatorKit, scenario: Scenario, forks: ForkedRuns, *, stages_after: int | None) -> None:
        self.kit = kit
        self.result = RunResult()
        self.job: ObservedJob | None = None
        self._framework = scenario.framework
        self._forks = forks
        self._stages_after = stages_after
        self._on_commit: list[Callable[[], None]] = []
        self._checker = InvariantChecker(kit.cluster.store, scenario.framework, on_commit=self._count_commit)

    # --- for scenarios -----------------------------------------------------------------------------------------------

    async def submit(self, manifest: JsonObject) -> None:
        self.job = await self.kit.submit(manifest)

    async def edit(self, spec: JsonObject) -> None:
        """Patch the spec of the job."""
        await self.kit.edit(self._job, {"spec": spec})

    async def reach(self, stage: str, reached: Callable[[ObservedJob], bool] = lambda _: True, *, phase: str | None = None) -> None:
        """Wait for a state, let the cluster settle, and take a snapshot."""
        await self.kit.until(self._job, phase=phase, reached=reached, within_seconds=3000)
        await asyncio.sleep(_SETTLE_SECONDS)
        self.result.snapshots[stage] = masked_state(self.kit.cluster.store, jobs=self._framework.job_type.resource.qualified_name)
        self.result.counts[stage] = self._checker.object_counts()
        self._stop_if_done()

    @property
    def _job(self) -> ObservedJob:
        if self.job is None:
            raise LookupError("no job was submitted")
        return self.job

    # --- for faults --------------------------------------------------------------------------------------------------

    def fork(self, fault: str) -> bool:
        """Whether this is the fork in which the fault happens. The parent continues without it."""
        return self._forks.fork(fault)

    def on_each_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` at every change of an object that an operator watches."""
        self._on_commit.append(callback)

    # --- running -----------------------------------------------------------------------------------------------------

    def _count_commit(self, _: StoreEvent) -> None:
        self.result.commits += 1
        for callback in self._on_commit:
            callback()

    def _stop_if_done(self) -> None:
        """Stop a fork after its last stage. Once the job is finished, the run goes to the end, because timers are pending."""
        if not self._forks.fault or self._stages_after is None or self._checker.job_finished:
            return
        self._stages_after -= 1
        if self._stages_after < 0:
            raise _StoppedError

    async def finish(self) -> RunResult:
        """Record writes at rest and return the result."""
        result = self.result
        result.writes = self.kit.writes
        result.writes_when_idle = await self.kit.writes_when_idle(seconds=_IDLE_SECONDS)
        result.violations = self._checker.violations
        return result


class _StoppedError(Exception):
    """The run stops before the end of the scenario."""


FaultSetup = Callable[[ScenarioRun], Awaitable[None]]
"""Starts one or more operators and arranges for a fault."""


async def without_faults(run: ScenarioRun) -> None:
    await run.kit.start_operator()


async def run_scenario(
    scenario: Scenario, setup: FaultSetup = without_faults, *, forks: ForkedRuns | None = None, stages_after: int | None = None
) -> RunResult:
    """Run a scenario. Forks stop `stages_after` stages after the stage of their fault; None runs them to the end."""
    async with OperatorKit([scenario.framework], script=scenario.script(), operator=False, options=scenario.options) as kit:
        await apply(kit.client, scenario.crds, report=lambda _: None)
        run = ScenarioRun(kit, scenario, forks or ForkedRuns(), stages_after=stages_after)
        with _collect_errors(run.result.errors):
            await setup(run)
            with suppress(_StoppedError):
                await scenario.steps(run)
            return await run.finish()


@contextmanager
def _collect_errors(errors: list[str]) -> Iterator[None]:
    """Collect errors and drop all other log lines. Formatting them would take a large part of a run."""

    def collect(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        errors.append(str(dict(event)))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), processors=[collect])
    try:
        yield
    finally:
        structlog.configure(**before)
