"""Read the logs of all replicas of a job once, one replica after the other.

A run is one execution of a container between two restarts. The kubelet keeps the logs of the latest run and of the previous one.
`dlop.jobs.log_stream` follows logs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from dlop.api.spec import JobSpec, RoleSpec, SpecError
from dlop.jobs.errors import JobsError
from dlop.jobs.log_lines import LogCursor, LogLine, LogSource, read_lines
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import list_pods
from dlop.jobs.replicas import ReplicaView, replica_views
from dlop.kube.client import Client
from dlop.kube.errors import BadRequestError, KubeError, NotFoundError, ServerError, TransportError
from dlop.kube.objects import ContainerStatus, Pod
from dlop.reconcile.pod_state import main_container

READ_ERRORS = (BadRequestError, NotFoundError, ServerError, TransportError)
"""Errors that concern a single log. Other logs may still be readable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelector:
    """Which logs to read, and how much of them."""

    role: str | None = None
    index: int | None = None
    container: str | None = None
    """Default: the main container."""
    previous: bool = False
    """Only the previous run."""
    tail_lines: int | None = None
    """Per run."""
    since_seconds: int | None = None

    def matches(self, replica: ReplicaView) -> bool:
        has_role = self.role is None or self.role.lower() == replica.role.lower()
        return has_role and self.index in (None, replica.index)


def validate_selector(job: JobHandle, selector: LogSelector) -> None:
    """Raise JobsError if the job has no such role."""
    roles = [role.name for role in job.kind.replica_types]
    if selector.role is not None and selector.role.lower() not in [role.lower() for role in roles]:
        raise JobsError(f"{job} has no role {selector.role}; a {job.kind.job_type} has {', '.join(roles)}.")


def select_replicas(job: JobHandle, pods: Iterable[Pod], selector: LogSelector) -> list[ReplicaView]:
    dl_job, phase = job.dl_job(), job.phase()
    try:
        spec = dl_job.spec
    except SpecError:
        spec = JobSpec(roles=())
    is_finished = phase is not None and phase.is_finished
    replicas = replica_views(dl_job, spec, pods, record=job.record(), is_finished=is_finished)
    return [replica for replica in replicas if selector.matches(replica)]


def container_status(pod: Pod, container: str) -> ContainerStatus | None:
    status = next((candidate for candidate in pod.status.container_statuses if candidate.name == container), None)
    return status or (main_container(pod, RoleSpec(name="", replicas=0)) if not container else None)


def latest_run(pod: Pod, container: str) -> int | None:
    """The restart count of the latest run with a log; None if the container was never started."""
    status = container_status(pod, container)
    if status is None:
        return None
    has_started = status.state.running or status.state.terminated or status.last_state.terminated
    return status.restart_count if has_started else None


def has_previous_run(pod: Pod, container: str) -> bool:
    """Whether the log of the previous run can be read. While a container waits for its restart, the latest run takes its place."""
    status = container_status(pod, container)
    return status is not None and status.restart_count > 0 and status.state.waiting is None


async def read_logs(client: Client, job: JobHandle, selector: LogSelector) -> AsyncGenerator[LogLine, None]:
    """The log lines of all selected replicas.

    Raises:
        JobsError: the job has no such role or no such replica.
        KubeError: the logs cannot be read.
    """
    validate_selector(job, selector)
    pods = {pod.metadata.uid: pod for pod in await list_pods(client, job)}
    replicas = select_replicas(job, pods.values(), selector)
    if not replicas:
        raise JobsError(f"{job} has no such replica; `dlop describe {job.name}` shows its replicas.")
    for replica in replicas:
        async with aclosing(_read_replica(client, job, replica, pods.get(replica.pod_uid), selector)) as lines:
            async for line in lines:
                yield line


async def _read_replica(
    client: Client, job: JobHandle, replica: ReplicaView, pod: Pod | None, selector: LogSelector
) -> AsyncGenerator[LogLine, None]:
    if pod is None:
        yield make_note(replica, "no pod, so there is no log")
        return
    container = selector.container or replica.container
    run = latest_run(pod, container)
    if run is None:
        yield make_note(replica, f"not started yet ({replica.reason or replica.state})")
        return
    if has_previous_run(pod, container) or selector.previous:
        async with aclosing(read_run(client, job, replica, container, run=run - 1, selector=selector, previous=True)) as lines:
            async for line in lines:
                yield line
    if not selector.previous:
        async with aclosing(read_run(client, job, replica, container, run=run, selector=selector)) as lines:
            async for line in lines:
                yield line


async def read_run(
    client: Client,
    job: JobHandle,
    replica: ReplicaView,
    container: str,
    *,
    run: int,
    selector: LogSelector,
    previous: bool = False,
) -> AsyncGenerator[LogLine, None]:
    """The log lines of one run. If they cannot be read, a note says why."""
    source = LogSource(namespace=job.namespace, pod=replica.pod, container=container)
    lines = read_lines(client, source, LogCursor(), previous=previous, tail_lines=selector.tail_lines, since_seconds=selector.since_seconds)
    try:
        async with aclosing(lines):
            async for timestamp, text in lines:
                yield make_line(replica, container, run=run, timestamp=timestamp, text=text)
    except READ_ERRORS as error:
        yield make_note(replica, describe_read_error(run, error))


def describe_read_error(run: int, error: KubeError) -> str:
    return f"{'the log' if run <= 0 else f'the log of run {run + 1}'} cannot be read: {error}"


def make_line(replica: ReplicaView, container: str, *, run: int, timestamp: str, text: str) -> LogLine:
    return LogLine(role=replica.role, index=replica.index, pod=replica.pod, container=container, run=run, time=timestamp, text=text)


def make_note(replica: ReplicaView, text: str) -> LogLine:
    """A note about a replica's log."""
    return LogLine(role=replica.role, index=replica.index, pod=replica.pod, container=replica.container, text=text, is_note=True)
