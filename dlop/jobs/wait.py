"""Wait until a job meets a condition."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from enum import StrEnum

from dlop.api.phase import Phase
from dlop.jobs.errors import WaitFailedError, WaitTimeoutError
from dlop.jobs.list_watch import list_and_watch
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import job_scope
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject


class WaitCondition(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    FINISHED = "finished"
    RUNNING = "running"
    DELETED = "deleted"


_PHASES = {
    WaitCondition.SUCCEEDED: (Phase.SUCCEEDED,),
    WaitCondition.FAILED: (Phase.FAILED, Phase.INVALID),
    WaitCondition.FINISHED: (Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID),
    # A short job may succeed before it is observed as running.
    WaitCondition.RUNNING: (Phase.RUNNING, Phase.SUCCEEDED),
    WaitCondition.DELETED: (),
}
_UNMET = {
    WaitCondition.SUCCEEDED: "had not succeeded",
    WaitCondition.FAILED: "had not failed",
    WaitCondition.FINISHED: "had not finished",
    WaitCondition.RUNNING: "was not running",
    WaitCondition.DELETED: "was not deleted",
}


async def wait_for_job(client: Client, job: JobHandle, condition: WaitCondition, *, timeout_seconds: float | None = None) -> JobHandle:
    """Wait until a job meets the condition, and return its state at that time.

    Raises:
        WaitTimeoutError: the condition was not met within the timeout.
        WaitFailedError: the condition can no longer be met, because the job has finished or was deleted.
        KubeError: the job cannot be watched.
    """
    last = [job]
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _wait(client, job, condition, last)
    except TimeoutError as error:
        phase = last[-1].phase()
        state = "no operator has reconciled it yet" if phase is None else f"its phase is {phase}"
        raise WaitTimeoutError(
            f"{job} {_UNMET[condition]} after {timeout_seconds:g} s; {state}. `dlop describe {job.name}` shows why."
        ) from error


async def _wait(client: Client, job: JobHandle, condition: WaitCondition, last: list[JobHandle]) -> JobHandle:
    async with aclosing(list_and_watch(client, job_scope(job), CustomObject)) as changes:
        async for change_set in changes:
            current = next((JobHandle(job.kind, item) for item in change_set.upserted if item.metadata.uid == job.uid), None)
            if current is not None:
                last[:] = [current]
                if _is_met(current, condition):
                    return current
            # None means that the job was deleted, or replaced by another one of the same name.
            elif condition is WaitCondition.DELETED:
                return last[-1]
            else:
                raise WaitFailedError(f"{job} was deleted; the condition {condition} can no longer be met.")
    raise AssertionError("list_and_watch never ends by itself")


def _is_met(job: JobHandle, condition: WaitCondition) -> bool:
    phase = job.phase()
    if phase in _PHASES[condition]:
        return True
    if phase is not None and phase.is_final and condition is not WaitCondition.DELETED:
        raise WaitFailedError(f"{job} is {phase}; the condition {condition} can no longer be met. `dlop describe {job.name}` shows why.")
    return False
