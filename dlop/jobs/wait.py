"""Waits for jobs, by watching them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from enum import StrEnum

from dlop.api.phase import Phase
from dlop.jobs.errors import OutOfReachError, WaitTimeoutError
from dlop.jobs.list_watch import follow
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import scope_of
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject


class Goal(StrEnum):
    """What can be waited for."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    FINISHED = "finished"
    RUNNING = "running"
    DELETED = "deleted"


_REACHED = {
    Goal.SUCCEEDED: (Phase.SUCCEEDED,),
    Goal.FAILED: (Phase.FAILED, Phase.INVALID),
    Goal.FINISHED: (Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID),
    # Whoever has succeeded has run, be it too briefly to be seen running.
    Goal.RUNNING: (Phase.RUNNING, Phase.SUCCEEDED),
    Goal.DELETED: (),
}
_NOT_YET = {
    Goal.SUCCEEDED: "had not succeeded",
    Goal.FAILED: "had not failed",
    Goal.FINISHED: "had not finished",
    Goal.RUNNING: "was not running",
    Goal.DELETED: "was not gone",
}


async def wait_for(client: Client, found: JobHandle, goal: Goal, *, timeout_seconds: float | None = None) -> JobHandle:
    """Wait until a job is as it should be, and return it so.

    Raises:
        NotInTimeError: it was not, in time.
        OutOfReachError: it never will be: the job is over, or deleted.
        KubeError: it cannot be watched.
    """
    last = [found]
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _wait(client, found, goal, last)
    except TimeoutError as error:
        phase = last[-1].phase()
        stands = "no operator has looked at it yet" if phase is None else f"it is {phase}"
        raise WaitTimeoutError(
            f"{found} {_NOT_YET[goal]} after {timeout_seconds:g} s; {stands}. `dlop describe {found.name}` tells why."
        ) from error


async def _wait(client: Client, found: JobHandle, goal: Goal, last: list[JobHandle]) -> JobHandle:
    async with aclosing(follow(client, scope_of(found), CustomObject)) as changes:
        async for news in changes:
            now = next((JobHandle(found.kind, each) for each in news.there if each.metadata.uid == found.uid), None)
            if now is not None:
                last[:] = [now]
                if _is_reached(now, goal):
                    return now
            # News without it: it is gone, or another one has its name.
            elif goal is Goal.DELETED:
                return last[-1]
            else:
                raise OutOfReachError(f"{found} was deleted before it was {goal}.")
    raise AssertionError("a following never ends by itself")


def _is_reached(found: JobHandle, goal: Goal) -> bool:
    phase = found.phase()
    if phase in _REACHED[goal]:
        return True
    if phase is not None and phase.is_final and goal is not Goal.DELETED:
        raise OutOfReachError(f"{found} is {phase}, and will not be {goal} any more. `dlop describe {found.name}` tells why.")
    return False
