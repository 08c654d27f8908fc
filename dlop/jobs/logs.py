"""The logs of all replicas of a job, across restarts.

Read once, replica after replica: the run before the last one, which is all that a cluster keeps of earlier ones, then the last
one. `dlop.jobs.log_stream` goes on from there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from dlop.api.spec import JobSpec, RoleSpec, SpecError
from dlop.jobs.errors import JobsError
from dlop.jobs.log_lines import Cursor, LogLine, LogSource, read_lines
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import pods_of
from dlop.jobs.replicas import ReplicaView, replica_views
from dlop.kube.client import Client
from dlop.kube.errors import BadRequestError, KubeError, NotFoundError, ServerError, TransportError
from dlop.kube.objects import ContainerStatus, Pod
from dlop.reconcile.pod_state import main_container

UNREADABLE = (BadRequestError, NotFoundError, ServerError, TransportError)
"""What may keep one log from being read, and says nothing about the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChoice:
    """Which logs are wanted, and how much of them."""

    role: str | None = None
    index: int | None = None
    container: str | None = None
    """By default the one that takes part in the job."""
    previous: bool = False
    """Only the run before the last one."""
    tail_lines: int | None = None
    """Of each run."""
    since_seconds: int | None = None

    def fits(self, replica: ReplicaView) -> bool:
        """Whether a replica's log is wanted."""
        is_role = self.role is None or self.role.lower() == replica.role.lower()
        return is_role and self.index in (None, replica.index)


def check_choice(found: JobHandle, choice: LogChoice) -> None:
    """Raise JobsError when no replica of the job could ever fit."""
    roles = [role.name for role in found.kind.replica_types]
    if choice.role is not None and choice.role.lower() not in [role.lower() for role in roles]:
        raise JobsError(f"{found} has no role {choice.role}; a {found.kind.job_type} has {', '.join(roles)}.")


def chosen_replicas(found: JobHandle, pods: Iterable[Pod], choice: LogChoice) -> list[ReplicaView]:
    """The replicas whose logs are wanted, in order."""
    job, phase = found.job(), found.phase()
    try:
        spec = job.spec
    except SpecError:
        spec = JobSpec(roles=())
    is_over = phase is not None and phase.is_end
    return [each for each in replica_views(job, spec, pods, record=found.record(), is_over=is_over) if choice.fits(each)]


def status_of(pod: Pod, container: str) -> ContainerStatus | None:
    """What has become of a container."""
    found = next((each for each in pod.status.container_statuses if each.name == container), None)
    return found or (main_container(pod, RoleSpec(name="", replicas=0)) if not container else None)


def last_run(pod: Pod, container: str) -> int | None:
    """The number of the run whose log the cluster shows as the last one; None when the container was never started."""
    found = status_of(pod, container)
    if found is None:
        return None
    has_begun = found.state.running or found.state.terminated or found.last_state.terminated
    return found.restart_count if has_begun else None


def keeps_run_before(pod: Pod, container: str) -> bool:
    """Whether the run before the last one can be read. While a container waits to be started again, the last one has its place."""
    found = status_of(pod, container)
    return found is not None and found.restart_count > 0 and found.state.waiting is None


async def read_logs(client: Client, found: JobHandle, choice: LogChoice) -> AsyncGenerator[LogLine, None]:
    """What all chosen replicas have written so far.

    Raises:
        JobsError: the job has no such role.
        KubeError: the logs cannot be read.
    """
    check_choice(found, choice)
    pods = {pod.metadata.uid: pod for pod in await pods_of(client, found)}
    replicas = chosen_replicas(found, pods.values(), choice)
    if not replicas:
        raise JobsError(f"{found} has no such replica; `dlop describe {found.name}` shows those that it has.")
    for replica in replicas:
        async with aclosing(_of_replica(client, found, replica, pods.get(replica.pod_uid), choice)) as lines:
            async for line in lines:
                yield line


async def _of_replica(
    client: Client, found: JobHandle, replica: ReplicaView, pod: Pod | None, choice: LogChoice
) -> AsyncGenerator[LogLine, None]:
    if pod is None:
        yield note(replica, "it has no pod, and so no log")
        return
    container = choice.container or replica.container
    run = last_run(pod, container)
    if run is None:
        why = replica.reason or replica.state
        yield note(replica, f"it has not started yet ({why})")
        return
    if keeps_run_before(pod, container) or choice.previous:
        async with aclosing(of_run(client, found, replica, container, run=run - 1, choice=choice, previous=True)) as lines:
            async for line in lines:
                yield line
    if not choice.previous:
        async with aclosing(of_run(client, found, replica, container, run=run, choice=choice)) as lines:
            async for line in lines:
                yield line


async def of_run(
    client: Client,
    found: JobHandle,
    replica: ReplicaView,
    container: str,
    *,
    run: int,
    choice: LogChoice,
    previous: bool = False,
) -> AsyncGenerator[LogLine, None]:
    """What one run has written so far. Why it cannot be read is a note."""
    source = LogSource(namespace=found.namespace, pod=replica.pod, container=container)
    lines = read_lines(client, source, Cursor(), previous=previous, tail_lines=choice.tail_lines, since_seconds=choice.since_seconds)
    try:
        async with aclosing(lines):
            async for moment, text in lines:
                yield line_of(replica, container, run=run, moment=moment, text=text)
    except UNREADABLE as error:
        yield note(replica, unreadable(run, error))


def unreadable(run: int, error: KubeError) -> str:
    """Why a run cannot be read, as a note."""
    return f"{'its log' if run <= 0 else f'the log of its run {run + 1}'} cannot be read: {error}"


def line_of(replica: ReplicaView, container: str, *, run: int, moment: str, text: str) -> LogLine:
    """A line that a replica has written."""
    return LogLine(role=replica.role, index=replica.index, pod=replica.pod, container=container, run=run, time=moment, text=text)


def note(replica: ReplicaView, text: str) -> LogLine:
    """Something to be said about a replica's log."""
    return LogLine(role=replica.role, index=replica.index, pod=replica.pod, container=replica.container, text=text, is_note=True)
