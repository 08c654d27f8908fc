"""An operator that runs as a task of a test, with a faulty transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random

from dlop.api.types import Options
from dlop.job import DLJob
from dlop.kube.transport import Transport
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings
from dlop.testing.faulty_transport import FaultyTransport


class RunningOperator:
    """One operator and its task. Its writes are in `transport.writes`."""

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
        self.transport = FaultyTransport(transport)
        self.operator = Operator(settings, frameworks, transport=self.transport, clock=clock, rng=rng, identity=identity, options=options)
        self._expects_end = False
        self._task: asyncio.Task[None] | None = None

    def start(self, *, on_end: Callable[[], None] = lambda: None) -> None:
        """Start the operator. `on_end` is called when it ends, for any reason."""
        self._task = asyncio.get_running_loop().create_task(self.operator.run(), name="operator")
        self._task.add_done_callback(lambda _: on_end())

    async def crash(self) -> None:
        """Stop the operator like SIGKILL. Its pending requests fail."""
        self._expects_end = True
        self.transport.disconnect()
        await self._cancel()

    async def stop(self) -> None:
        """Stop the operator like SIGTERM. It finishes the current reconciles."""
        self._expects_end = True
        self.operator.stop()
        if self._task is not None:
            await self._task

    def raise_if_stopped(self) -> None:
        """Raise an error if the operator ended and the test did not stop it."""
        if self._expects_end or self.transport.disconnected.is_set() or self._task is None or not self._task.done():
            return
        self._task.result()
        raise AssertionError("the operator ended unexpectedly")

    async def _cancel(self) -> None:
        if self._task is None or self._task.done():
            return
        self._task.cancel()
        await asyncio.wait((self._task,))
