"""Faults that are injected at every write or commit of a scenario, and the comparison with a run without faults.

For every kind of fault there is one run without it, which forks at every write (or commit). The fault happens in the fork.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.embedded.apiserver.server import ApiServer
from dlop.kube.transport import Request
from dlop.operator.settings import Settings
from dlop.testing.faulty_transport import Crash, Rejected, ResponseLost, SideEffect, WriteFault
from dlop.testing.kit import OperatorKit
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.stale_view import add_stale_server
from dlop.testing.virtual_time import run as run_on_virtual_time
from tests.sim.forked_runs import ForkedRuns
from tests.sim.scenario_run import FaultSetup, RunResult, Scenario, ScenarioRun, run_scenario

# How long watch events are delayed, or a server is stale.
_LAG_SECONDS = 25.0
# Time between the moments at which the watches of a stale server catch up. Longer than a pass.
_SYNC_GAP_SECONDS = 3.0
# Time between a commit and the start of an operator that sees the state at that commit. Longer than the replacement of a pod.
_STALENESS_SECONDS = 20.0

# Long durations, so that a run has few lease renewals.
_ELECTED = Settings.model_validate(
    {
        "leader_election": True,
        "bind_address": "off",
        "lease_duration_seconds": 40,
        "renew_deadline_seconds": 30,
        "retry_period_seconds": 10,
    }
)


# --- faults at a write -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FaultContext:
    """An operator with an API server of its own."""

    kit: OperatorKit
    operator: RunningOperator
    server: ApiServer


FaultFactory = Callable[[FaultContext], WriteFault]
"""Makes the fault for the write that is about to be sent."""


def lose_response(_: FaultContext) -> WriteFault:
    return ResponseLost()


def reject(code: int) -> FaultFactory:
    return lambda _: Rejected(code, retry_after_seconds=1 if code == 429 else None)


def crash(context: FaultContext) -> WriteFault:
    """Kill the operator after the write and start another one."""

    async def take_over() -> None:
        await context.operator.transport.disconnected.wait()
        await context.operator.crash()
        await context.kit.start_operator()

    context.kit.start_soon(take_over)
    return Crash()


def delay_watches(plural: str | None) -> FaultFactory:
    """After the write, delay watch events of one resource, or of all."""

    def fault(context: FaultContext) -> WriteFault:
        def hold() -> None:
            held = context.server.faults.hold_watches(match=RequestMatch(plural=plural))
            asyncio.get_running_loop().call_later(_LAG_SECONDS, held.release)

        return SideEffect(hold)

    return fault


def add_second_leader(context: FaultContext) -> WriteFault:
    """After the write, start a second operator that reconciles as well."""
    return SideEffect(lambda: context.kit.start_soon(context.kit.start_operator))


def lose_lease(context: FaultContext) -> WriteFault:
    """After the write, the leader cannot reach its lease."""
    return SideEffect(context.operator.transport.disconnect_leases)


WRITE_FAULTS: Mapping[str, FaultFactory] = {
    "crash": crash,
    "response lost": lose_response,
    "409": reject(409),
    "429": reject(429),
    "500": reject(500),
    "pod events delayed": delay_watches("pods"),
    "all events delayed": delay_watches(None),
    "second operator": add_second_leader,
}


def at_each_write(faults: Callable[[int], Mapping[str, FaultFactory]], *, elected: bool = False) -> FaultSetup:
    """Inject the faults that `faults` returns for the number of a write, each in its own fork."""

    async def setup(run: ScenarioRun) -> None:
        context = await _fault_context(run.kit, elected=elected)

        def choose(number: int, request: Request) -> WriteFault | None:
            for name, fault in faults(number).items():
                if run.fork(f"{name} at write {number}, {request.method} {request.path}"):
                    return fault(context)
            return None

        context.operator.transport.inject_faults_by(choose)

    return setup


async def _fault_context(kit: OperatorKit, *, elected: bool) -> FaultContext:
    server = kit.new_server()
    if not elected:
        return FaultContext(kit, await kit.start_operator(server), server)
    leader = await kit.start_operator(server, settings=_ELECTED)
    await leader.operator.wait_synced()
    await kit.start_operator(settings=_ELECTED)
    return FaultContext(kit, leader, server)


# --- faults at a commit ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StaleOperator:
    """An operator that starts on a stale API server. When the server catches up, one resource does so later than the others."""

    alone: bool
    """Whether the first operator is killed before."""
    syncs_last: str
    """The resource that catches up last."""

    def __str__(self) -> str:
        return f"{'successor' if self.alone else 'rival'} that syncs {self.syncs_last} last"


def stale_server_at_each_commit(stale_operator: Callable[[int], StaleOperator | None]) -> FaultSetup:
    """Some time after a commit, start another operator on an API server that still shows the state at that commit.

    `stale_operator` returns the operator for the number of a commit, or None.
    """

    async def setup(run: ScenarioRun) -> None:
        kit = run.kit
        operator = await kit.start_operator()

        async def start_late(late: StaleOperator, version: int) -> None:
            await asyncio.sleep(_STALENESS_SECONDS)
            if late.alone:
                await operator.crash()
            server, view = add_stale_server(kit.cluster, version=version)
            await kit.start_operator(server)
            await asyncio.sleep(_LAG_SECONDS)
            held = server.faults.hold_watches(match=RequestMatch(plural=late.syncs_last))
            kit.cluster.store.listeners.append(lambda change: view.advance(change.version))
            view.advance()
            await asyncio.sleep(_SYNC_GAP_SECONDS)
            held.release()

        def on_commit() -> None:
            number, version = run.result.commits, kit.cluster.store.version
            late = stale_operator(number)
            if late is not None and run.fork(f"{late}, on a server stale at commit {number}, version {version}"):
                kit.start_soon(lambda: start_late(late, version))

        run.on_each_commit(on_commit)

    return setup


# --- comparison ------------------------------------------------------------------------------------------------------


def run_with_faults(
    scenario: Scenario, reference: RunResult, setup: FaultSetup, *, stages_after: int | None = None, expected_error: str | None = None
) -> ForkedRuns:
    """Run a scenario and all its forks, and compare each with the reference.

    `expected_error` must be logged in every fork, exactly once, and no other error.
    """
    forks = ForkedRuns()

    def compare() -> list[str]:
        result = run_on_virtual_time(run_scenario(scenario, setup, forks=forks, stages_after=stages_after))
        expected = [expected_error] if expected_error and forks.fault else []
        return list(differences(result, reference, expected_errors=expected))

    forks.run_all(compare)
    return forks


def differences(result: RunResult, reference: RunResult, *, expected_errors: list[str]) -> Iterator[str]:
    yield from result.violations
    if len(result.errors) != len(expected_errors) or any(
        expected not in actual for expected, actual in zip(expected_errors, result.errors, strict=True)
    ):
        yield f"errors: {result.errors}"
    for stage, snapshot in result.snapshots.items():
        yield from _compare(snapshot, reference.snapshots[stage], f"{stage}: ")
        yield from _compare(result.counts[stage], reference.counts[stage], f"{stage}: creates and deletes of ")
    yield from (f"written at rest: {write}" for write in result.writes_when_idle)


def _compare(actual: Mapping[str, object], expected: Mapping[str, object], prefix: str) -> Iterator[str]:
    for name in sorted({*actual, *expected}):
        if actual.get(name) != expected.get(name):
            yield f"{prefix}{name}: got {actual.get(name)}, expected {expected.get(name)}"
