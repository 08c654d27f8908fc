"""An operator that runs beside a test, over a line that the test can listen to, disturb and cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random

from dlop.api.types import Options
from dlop.job import DLJob
from dlop.kube.leader_election import LeadershipLostError
from dlop.kube.transport import Transport
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings
from dlop.testing.faulty_transport import FaultyTransport


class RunningOperator:
    """One operator and its task. Its writes are in `wire.writes`."""

    def __init__(
        self,
        transport: Transport,
        *,
        frameworks: Iterable[type[DLJob]],
        clock: Callable[[], float],
        rng: Random,
        settings: Settings,
        identity: str = "operator",
        options: Options | None = None,
    ) -> None:
        self.wire = FaultyTransport(transport)
        self.operator = Operator(settings, frameworks, transport=self.wire, clock=clock, rng=rng, identity=identity, options=options)
        self._is_dead = False
        self._task: asyncio.Task[None] | None = None

    def start(self, *, on_end: Callable[[], None] = lambda: None) -> None:
        """Begin to work. `on_end` is called when the operator ends, for whatever reason."""
        self._task = asyncio.get_running_loop().create_task(self.operator.run(), name="operator")
        self._task.add_done_callback(lambda _: on_end())

    async def crash(self) -> None:
        """End it as kill -9 does: nothing that it still wants to say gets through."""
        self._is_dead = True
        self.wire.cut()
        await self._end()

    async def stop(self) -> None:
        """End it as SIGTERM does: it finishes what is under way."""
        self._is_dead = True
        self.operator.stop()
        if self._task is not None:
            await self._task

    async def until_leadership_is_lost(self) -> None:
        """Wait until it has ended because another one leads now, or may lead.

        Raises:
            AssertionError: it has ended without such a reason.
        """
        self._is_dead = True
        if self._task is None:
            return
        await asyncio.wait((self._task,))
        if not isinstance(self._task.exception(), LeadershipLostError):
            raise AssertionError(f"the operator has ended, but not for want of leadership: {self._task}")

    def demand(self) -> None:
        """Raise what has ended the operator, if something has and the test did not ask for it."""
        if self._is_dead or self.wire.was_cut.is_set() or self._task is None or not self._task.done():
            return
        self._task.result()
        raise AssertionError("the operator has ended by itself")

    async def _end(self) -> None:
        if self._task is None or self._task.done():
            return
        self._task.cancel()
        await asyncio.wait((self._task,))
