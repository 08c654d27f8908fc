"""Git repositories that cannot be cloned: because the operator has no image for it, or because the init container fails."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dlop.api.code_sync import CodeSource
from dlop.api.constants import Reason
from dlop.api.phase import JobResult
from dlop.api.progress import Progress, ReplicaState
from dlop.api.record import Blocked, LastFailure, describe_failure
from dlop.kube.objects import ContainerStateTerminated, Pod
from dlop.kube.timestamps import format_time
from dlop.policies.git_sync import describe_missing_image, find_source_without_image
from dlop.reconcile.context import ReconcileContext

_MAX_MESSAGE_LENGTH = 1000
_WITHOUT_POD = (ReplicaState.MISSING, ReplicaState.RESTARTING, ReplicaState.DISRUPTED)


def replicas_without_image(context: ReconcileContext, progress: Progress) -> Iterator[Blocked]:
    """Why pods of replicas are not created. Pods that exist have an image and are not affected."""
    if any(role.count(*_WITHOUT_POD) for role in progress.roles):
        yield from blocked_without_image(context)


def blocked_without_image(context: ReconcileContext) -> Iterator[Blocked]:
    """Why pods are not created. The message does not change while there is no image."""
    source, previous = find_source_without_image(context.job), context.stored.record.blocked
    if source is None:
        return
    message = describe_missing_image(source)
    if previous is not None and previous.message == message:
        yield previous
    else:
        yield Blocked(object="operator", reason=Reason.NO_GIT_SYNC_IMAGE, message=message, since=format_time(context.now))


def blocked_by_failed_clone(context: ReconcileContext, pod: Pod) -> Iterator[Blocked]:
    """Why a pod does not start. It stays blocked while the container is restarted, until the clone has succeeded."""
    failed = _failed_clone(pod, context.policy.code_sync)
    if failed is not None:
        source, terminated = failed
        subject = f"pod {pod.metadata.name}"
        message = f"{subject}: {_describe(source, terminated)}"
        yield Blocked(object=subject, reason=Reason.CODE_SYNC_FAILED, message=message, since=format_time(context.now))


def explain_failed_clone(failure: LastFailure, pod: Pod, sources: tuple[CodeSource, ...]) -> LastFailure:
    """The failure of a pod, with the repository if the clone has caused it."""
    failed = _failed_clone(pod, sources)
    if failed is None or (failure.exit_code, failure.reason) != (failed[1].exit_code, failed[1].reason):
        return failure
    return msgspec.structs.replace(failure, reason=Reason.CODE_SYNC_FAILED, message=_describe(*failed))


def with_failed_clone(message: str, result: JobResult) -> str:
    """The message of a failed job, with the repository if a clone has failed it. Messages of some kinds have no cause."""
    failure = result.failed_replica.failure if result.failed_replica is not None else None
    if failure is None or failure.reason != Reason.CODE_SYNC_FAILED or failure.message in message:
        return message
    return f"{message} {describe_failure(failure)}"


def _failed_clone(pod: Pod, sources: tuple[CodeSource, ...]) -> tuple[CodeSource, ContainerStateTerminated] | None:
    """The repository whose clone has failed last and has not succeeded since; None if there is none."""
    statuses = {status.name: status for status in pod.status.init_container_statuses}
    for source in sources:
        status = statuses.get(source.container_name)
        terminated = None if status is None else status.state.terminated or status.last_state.terminated
        if terminated is not None and terminated.exit_code != 0:
            return source, terminated
    return None


def _describe(source: CodeSource, terminated: ContainerStateTerminated) -> str:
    """The last line of the message says why git has failed."""
    lines = terminated.message.strip().splitlines()
    details = lines[-1].strip()[:_MAX_MESSAGE_LENGTH] if lines else f"{source.container_name} exited with code {terminated.exit_code}"
    return f"{source.path}: cannot clone {source}: {details}"
