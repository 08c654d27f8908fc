"""The reference run: create, run, a restart and another one, suspend, resume, scale up and down, succeed, TTL.

After each stage the world is let come to rest and photographed. A run in which something goes wrong must show the same
pictures, make and delete every object as often, and be quiet at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from dlop.kube.errors import JsonObject
from dlop.testing.job_view import JobView
from dlop.testing.kit import OperatorKit
from dlop.testing.script import Script
from dlop.testing.steps import Exit
from dlop.testing.wire import Write
from tests.sim.oracles import Ledger, masked_world
from tests.sim.ring import RINGS, RingJob, ring

TTL_SECONDS = 300
# How long the world is given to come to rest: longer than any pause after an error.
_REST_SECONDS = 120.0


@dataclass
class Run:
    """What came of one run."""

    pictures: dict[str, dict[str, JsonObject]] = field(default_factory=dict)
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    writes_at_rest: list[Write] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """The versions of the store, one for every commit of something that an operator reads, whoever made it."""
    errors: list[str] = field(default_factory=list)
    """What was logged as an error: a pass that failed by our own mistake is tried again, and would else go unseen."""


Disturb = Callable[[OperatorKit], Awaitable[None]]
"""Starts the operator, or several, and arranges for what is to go wrong."""


async def undisturbed(kit: OperatorKit) -> None:
    await kit.start_operator()


async def live(disturb: Disturb = undisturbed) -> Run:
    """One run from the first to the last stage."""
    run = Run()
    async with OperatorKit([RingJob], script=_script(), operator=False) as kit:
        with _noting_errors(run.errors):
            await _watched_by_oracles(kit, run, disturb)
    return run


async def _watched_by_oracles(kit: OperatorKit, run: Run, disturb: Disturb) -> None:
    ledger = Ledger(kit.cluster.store, jobs=RINGS)
    await disturb(kit)
    await _stages(kit, run)
    run.writes = kit.writes
    run.writes_at_rest = await kit.writes_at_rest(seconds=1200)
    run.counts, run.versions, run.violations = ledger.counts(), ledger.versions, ledger.violations


@contextmanager
def _noting_errors(errors: list[str]) -> Iterator[None]:
    """Note errors in place of logging anything: lines that nobody reads are a good part of what a run costs."""

    def note(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        errors.append(str(dict(event)))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), processors=[note])
    try:
        yield
    finally:
        structlog.configure(**before)


def _script() -> Script:
    script = Script()
    script.when("ring-worker-1", times=1).run().after(5).fail(137)
    script.when("ring-worker-0", times=1).run().after(10).fail(139)
    script.when("*").run()
    return script


async def _stages(kit: OperatorKit, run: Run) -> None:
    async def reach(stage: str, reached: Callable[[JobView], bool], *, phase: str | None = None) -> None:
        await kit.until(job, phase=phase, reached=reached, within_seconds=3000)
        await asyncio.sleep(_REST_SECONDS)
        run.pictures[stage] = masked_world(kit.cluster.store, jobs=RINGS)

    job = await kit.submit(ring(backoffLimit=3, ttlSecondsAfterFinished=TTL_SECONDS))
    await reach("restarted", lambda job: restarts(job) == 2 and all_run(job, 2), phase="Running")
    await kit.edit(job, {"spec": {"runPolicy": {"suspend": True}}})
    await reach("suspended", lambda job: not job.pods, phase="Suspended")
    await kit.edit(job, {"spec": {"runPolicy": {"suspend": False}}})
    await reach("resumed", lambda job: all_run(job, 2), phase="Running")
    await kit.edit(job, {"spec": {"replicaSpecs": {"Worker": {"replicas": 3}}}})
    await reach("scaled up", lambda job: all_run(job, 3))
    await kit.edit(job, {"spec": {"replicaSpecs": {"Worker": {"replicas": 2}}}})
    await reach("scaled down", lambda job: all_run(job, 2))
    for index in range(2):
        await kit.kubelet.perform(f"default/ring-worker-{index}", Exit(0))
    await reach("succeeded", lambda _: True, phase="Succeeded")
    await reach("gone", lambda job: not job.exists)


def restarts(job: JobView) -> int:
    return sum(job.status.get("dlop", {}).get("restarts", {}).values())


def all_run(job: JobView, count: int) -> bool:
    return list(job.pod_phases.values()) == ["Running"] * count
