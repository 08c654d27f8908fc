"""The TensorBoard of a job: whether it can be reached, why not, and how long it is kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import msgspec

from dlop.api.phase import Phase
from dlop.api.spec import SpecError
from dlop.api.start_order import is_ready
from dlop.api.tensorboard import TENSORBOARD_ANNOTATION, TensorBoard, tensorboard_name
from dlop.jobs.errors import JobsError, WaitFailedError
from dlop.jobs.list_watch import ChangeSet, WatchScope, list_and_watch, merge
from dlop.jobs.lookup import JobHandle
from dlop.jobs.pending_reasons import suspension_reason
from dlop.jobs.queries import job_scope, list_scope
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, NotFoundError
from dlop.kube.objects import CustomObject, Pod
from dlop.kube.resources import PODS
from dlop.kube.timestamps import format_time
from dlop.policies.ingress import INGRESSES
from dlop.reconcile.blocked import waiting_reason
from dlop.reconcile.context import persisted_state

_LATEST = 253_402_300_799.0
"""The end of the year 9999. A time to live may have any length."""


class TensorBoardState(msgspec.Struct, frozen=True):
    is_ready: bool
    message: str = ""
    """Why it is not ready."""


def tensorboard_of(job: JobHandle) -> TensorBoard:
    """What a job asks for.

    Raises:
        JobsError: it asks for none, or its spec is invalid.
    """
    try:
        tensorboard = job.dl_job().spec.run_policy.tensorboard
    except SpecError as error:
        raise JobsError(f"the spec of {job} is invalid: {error}") from error
    if tensorboard is None:
        raise JobsError(f"{job} has no TensorBoard; add one with the directory of its event files: {_command_to_add(job)}")
    return tensorboard


def _command_to_add(job: JobHandle) -> str:
    if isinstance(job.dl_job().raw_spec, dict):
        patch = '{"spec": {"runPolicy": {"tensorBoard": {"logDir": "/logs"}}}}'
        return f"kubectl patch {job.reference} -n {job.namespace} --type merge -p '{patch}'"
    config = '{"logDir": "/logs", "ttlSecondsAfterJobFinished": 3600}'
    return f"kubectl annotate {job.reference} -n {job.namespace} {TENSORBOARD_ANNOTATION}='{config}'"


class TensorBoardView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The TensorBoard of a job, as `dlop describe` shows it. Times are RFC 3339 strings."""

    is_ready: bool
    message: str
    """Why it is not ready."""
    pod: str
    """Empty if it has none."""
    command: str
    """Opens it; empty if its time is over."""
    address: str
    """Of its Ingress; empty if the job asks for none."""
    ingress_problem: str
    """Why nothing serves the address; empty if nothing is known to prevent it."""
    ttl_seconds: int
    """Time from the end of the job until it is deleted."""
    deleted_at: str
    """When it is deleted, by its own time to live or by that of the job; empty if the job has not finished."""


async def get_tensorboard_view(client: Client, job: JobHandle, *, now: float) -> TensorBoardView | None:
    """The TensorBoard of a job; None if the job asks for none, or its spec is invalid. `now` is in seconds since the epoch.

    Raises:
        KubeError: its pod cannot be read.
    """
    try:
        tensorboard = tensorboard_of(job)
    except JobsError:
        return None
    pod = _own_pod(job, await list_scope(client, _pod_scope(job), Pod))
    try:
        state, command = tensorboard_state(job, pod, now=now), f"dlop tensorboard {job.name} -n {job.namespace}"
    except WaitFailedError as error:
        state, command = TensorBoardState(is_ready=False, message=str(error)), ""
    ingress = tensorboard.ingress
    return TensorBoardView(
        is_ready=state.is_ready,
        message=state.message,
        pod="" if pod is None else pod.metadata.name,
        command=command,
        address="" if ingress is None else f"http://{ingress.host}{tensorboard.path(job.namespace, job.name)}/",
        ingress_problem="" if ingress is None else await _ingress_problem(client, job),
        ttl_seconds=tensorboard.ttl_seconds,
        deleted_at=_deleted_at(job, tensorboard),
    )


async def _ingress_problem(client: Client, job: JobHandle) -> str:
    name = tensorboard_name(job.name)
    missing = f"the job has no Ingress {name}"
    try:
        metadata = (await client.get(INGRESSES, name, namespace=job.namespace))["metadata"]
    except NotFoundError:
        return missing
    except ForbiddenError:
        return ""
    return "" if job.uid in (owner.get("uid") for owner in metadata.get("ownerReferences", ())) else missing


def _deleted_at(job: JobHandle, tensorboard: TensorBoard) -> str:
    dl_job = job.dl_job()
    finished_at, job_ttl = persisted_state(dl_job).finished_at, dl_job.spec.run_policy.ttl_seconds_after_finished
    if finished_at is None:
        return ""
    return format_time(min(tensorboard.expires_at(finished_at), _LATEST if job_ttl is None else finished_at + job_ttl, _LATEST))


def _pod_scope(job: JobHandle) -> WatchScope:
    return WatchScope(resource=PODS, namespace=job.namespace, field_selector=f"metadata.name={tensorboard_name(job.name)}")


def _own_pod(job: JobHandle, pods: Iterable[Pod]) -> Pod | None:
    return next((pod for pod in pods if pod.metadata.controller and pod.metadata.controller.uid == job.uid), None)


async def watch_tensorboard(client: Client, job: JobHandle, *, clock: Callable[[], float]) -> AsyncGenerator[TensorBoardState, None]:
    """The state of the TensorBoard, now and after every change.

    Raises:
        JobsError: it will not become ready, because the job was deleted or no longer asks for it, or its time is over.
        KubeError: the job or the pod cannot be watched.
    """
    sources: tuple[AsyncGenerator[ChangeSet[Any], None], ...] = (
        list_and_watch(client, job_scope(job), CustomObject),
        list_and_watch(client, _pod_scope(job), Pod),
    )
    known: list[dict[str, Any]] = [{}, {}]
    listed: set[int] = set()
    last: TensorBoardState | None = None
    async with merge(*sources) as changes:
        async for source, change_set in changes:
            listed.add(source)
            for item in change_set.deleted:
                known[source].pop(item.metadata.uid, None)
            known[source].update({item.metadata.uid: item for item in change_set.upserted})
            if len(listed) < len(known):
                continue
            if job.uid not in known[0]:
                raise WaitFailedError(f"{job} was deleted, and its TensorBoard with it.")
            state = tensorboard_state(JobHandle(job.kind, known[0][job.uid]), _own_pod(job, known[1].values()), now=clock())
            if state != last:
                last = state
                yield state


def tensorboard_state(job: JobHandle, pod: Pod | None, *, now: float) -> TensorBoardState:
    """The state, given the pod of the TensorBoard if it exists.

    Raises:
        JobsError: the job no longer asks for it, or its time is over.
    """
    tensorboard, stored = tensorboard_of(job), persisted_state(job.dl_job())
    if pod is not None and pod.metadata.deletion_timestamp is None:
        if is_ready(pod):
            return TensorBoardState(is_ready=True)
        reason, message = waiting_reason(pod)
        detail = f"{reason}{f': {message}' if message else ''}" if reason else "it is starting"
        return TensorBoardState(is_ready=False, message=f"pod {pod.metadata.name} is not ready: {detail}")
    if stored.finished_at is not None and now >= tensorboard.expires_at(stored.finished_at):
        raise WaitFailedError(
            f"the TensorBoard of {job} was deleted {tensorboard.ttl_seconds} seconds after the end of the job; "
            "raise ttlSecondsAfterJobFinished to get it back."
        )
    if stored.phase is Phase.SUSPENDED:
        return TensorBoardState(is_ready=False, message=suspension_reason(job).message)
    if stored.phase is None:
        return TensorBoardState(is_ready=False, message="no operator has reconciled the job yet")
    return TensorBoardState(is_ready=False, message=f"it starts when the job runs; the phase of the job is {stored.phase}")
