"""How a story is lived through: stage by stage, each with a picture of the world once it has come to rest.

A run in which something goes wrong must show the same pictures, make and delete every object as often, and be quiet at
the end. A branch of a run may be cut short, at the next picture but so many: what it has shown until then is compared.
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
from dlop.testing.faulty_transport import Write
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.script import Script
from tests.sim.branches import Branches
from tests.sim.oracles import Ledger, masked_world

# How long the world is given to come to rest: longer than any pause after an error.
_REST_SECONDS = 120.0
# How long it is then looked at, to see that nothing is written.
_QUIET_SECONDS = 1200.0


@dataclass
class Run:
    """What came of one run."""

    pictures: dict[str, dict[str, JsonObject]] = field(default_factory=dict)
    """By stage, what there was at its end."""
    counts: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """By stage and object, how often it had been created and deleted until then."""
    violations: list[str] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    writes_at_rest: list[Write] = field(default_factory=list)
    commits: int = 0
    """How often something changed that an operator reads, whoever changed it."""
    errors: list[str] = field(default_factory=list)
    """What was logged as an error: a pass that failed by our own mistake is tried again, and would else go unseen."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """What happens to one job, from its submission to its end."""

    name: str
    framework: type[DLJob]
    script: Callable[[], Script]
    tell: Callable[[Telling], Awaitable[None]]
    options: Options | None = None
    """What the operators are told at their start."""
    definitions: tuple[JsonObject, ...] = ()
    """What there is besides the kind of the job."""

    def __str__(self) -> str:
        return self.name


class Telling:
    """One run of a story, while it is being lived through."""

    def __init__(self, kit: OperatorKit, story: Story, branches: Branches, *, stages_after: int | None) -> None:
        self.kit = kit
        self.run = Run()
        self.job: ObservedJob | None = None
        self._framework = story.framework
        self._branches = branches
        self._stages_after = stages_after
        self._on_commit: list[Callable[[], None]] = []
        self._ledger = Ledger(kit.cluster.store, story.framework, on_commit=self._committed)

    # --- for stories -------------------------------------------------------------------------------------------------

    async def submit(self, manifest: JsonObject) -> None:
        """Create the job that the story is about."""
        self.job = await self.kit.submit(manifest)

    async def edit(self, spec: JsonObject) -> None:
        """Change a part of its spec."""
        await self.kit.edit(self._job, {"spec": spec})

    async def reach(self, stage: str, reached: Callable[[ObservedJob], bool] = lambda _: True, *, phase: str | None = None) -> None:
        """Wait for a state, let the world come to rest, and take a picture."""
        await self.kit.until(self._job, phase=phase, reached=reached, within_seconds=3000)
        await asyncio.sleep(_REST_SECONDS)
        self.run.pictures[stage] = masked_world(self.kit.cluster.store, jobs=self._framework.job_type.resource.qualified_name)
        self.run.counts[stage] = self._ledger.counts()
        self._cut_short()

    @property
    def _job(self) -> ObservedJob:
        if self.job is None:
            raise LookupError("nothing has been submitted")
        return self.job

    # --- for troubles ------------------------------------------------------------------------------------------------

    def branch(self, trouble: str) -> bool:
        """Whether this is the branch in which something goes wrong; the trunk goes on without it."""
        return self._branches.branch(trouble)

    def at_each_commit(self, happen: Callable[[], None]) -> None:
        """Call this whenever something has changed that an operator reads."""
        self._on_commit.append(happen)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _committed(self, change: StoreEvent) -> None:
        self.run.commits += 1
        for happen in self._on_commit:
            happen()

    def _cut_short(self) -> None:
        """A job that has ended is followed to its last: there are timers yet to fire."""
        if not self._branches.story or self._stages_after is None or self._ledger.has_ended:
            return
        self._stages_after -= 1
        if self._stages_after < 0:
            raise _EnoughError

    async def finish(self) -> Run:
        """See that nothing is written any more, and sum up."""
        run = self.run
        run.writes = self.kit.writes
        run.writes_at_rest = await self.kit.writes_at_rest(seconds=_QUIET_SECONDS)
        run.violations = self._ledger.violations
        return run


class _EnoughError(Exception):
    """The story is not told to its end."""


Disturb = Callable[[Telling], Awaitable[None]]
"""Starts the operator, or several, and arranges for what is to go wrong."""


async def undisturbed(telling: Telling) -> None:
    await telling.kit.start_operator()


async def live(story: Story, disturb: Disturb = undisturbed, *, branches: Branches | None = None, stages_after: int | None = None) -> Run:
    """One run of a story. Branches end with the stage of their trouble and so many after it; None: with the story."""
    async with OperatorKit([story.framework], script=story.script(), operator=False, options=story.options) as kit:
        await apply(kit.client, story.definitions, say=lambda _: None)
        telling = Telling(kit, story, branches or Branches(), stages_after=stages_after)
        with _noting_errors(telling.run.errors):
            await disturb(telling)
            with suppress(_EnoughError):
                await story.tell(telling)
            return await telling.finish()


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
