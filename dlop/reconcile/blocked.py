"""Why a job cannot progress, reported at once and not only after a deadline.

Name conflicts, objects that are still terminating, rejected writes, resources that the operator cannot read, and pods that
cannot start. Terminating objects are reported after a delay, because most of them disappear quickly.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from dlop.api.constants import GANG_PERMISSIONS, Reason, rbac_hint
from dlop.api.progress import Progress, ReplicaState
from dlop.api.record import Blocked
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS, SERVICES, WORKLOADS, Resource
from dlop.kube.timestamps import earliest, format_time
from dlop.reconcile.code_sync import blocked_by_failed_clone, replicas_without_image
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.deletion import overdue_pods
from dlop.reconcile.snapshot import RejectedWrite, TerminatingConflict

REPORT_AFTER_SECONDS = 30
"""Time until an object that is still terminating, or not admitted yet, is reported."""

_RBAC_ERROR = re.compile(r"cannot \w+ resource|attempting to grant")
"""Matches the API server's message if the operator lacks permissions. Quota errors are Forbidden, too, but have another message."""

_WAITING_REASONS = {
    "ErrImagePull": "ImagePullBackOff",
    "ImagePullBackOff": "ImagePullBackOff",
    "ImageInspectError": "ImagePullBackOff",
    "ErrImageNeverPull": "ErrImageNeverPull",
    "InvalidImageName": "InvalidImageName",
    "RegistryUnavailable": "ImagePullBackOff",
    "CreateContainerConfigError": "CreateContainerConfigError",
    "CreateContainerError": "CreateContainerError",
    "RunContainerError": "RunContainerError",
}
"""Waiting reasons of containers that do not start without intervention. Reasons that alternate are reported under one name."""


def find_blocked(context: ReconcileContext, progress: Progress) -> Blocked | None:
    """The first cause; None if there is none. It keeps its message and time until object, reason or spec change."""
    blocked = next(_causes(context, progress), None)
    previous = None if context.spec_changed else context.stored.record.blocked
    is_same = blocked is not None and previous is not None and (blocked.object, blocked.reason) == (previous.object, previous.reason)
    return previous if is_same else blocked


def blocked_without_replicas(context: ReconcileContext) -> Blocked | None:
    """Why a job whose required roles have no replicas neither runs nor finishes."""
    if not context.is_idle:
        return None
    roles = context.job.lifecycle.required_roles(context.job)
    message = f"the required roles have no replicas: raise the replicas of {' or '.join(roles)} above 0"
    previous = context.stored.record.blocked
    if previous is not None and previous.message == message:
        return previous
    return Blocked(object=f"role {roles[0]}", reason=Reason.NO_REPLICAS, message=message, since=format_time(context.now))


def blocked_by_unavailable(context: ReconcileContext) -> Blocked | None:
    """Resources that the operator cannot read, also if pods are created without them. The message does not change."""
    if not context.unavailable:
        return None
    blocked, previous = _unavailable(context), context.stored.record.blocked
    return previous if previous is not None and previous.message == blocked.message else blocked


def _causes(context: ReconcileContext, progress: Progress) -> Iterator[Blocked]:
    if context.blocking_resources:
        yield _unavailable(context)
    if context.policy.code_sync:
        yield from replicas_without_image(context, progress)
    for conflict in context.snapshot.name_conflicts:
        if (conflict.resource, conflict.name) in context.name_conflicts - context.companion_refs:
            owner = f" by {conflict.owner}" if conflict.owner else ""
            text = f"the name is already used{owner}: delete that object or rename the job"
            yield _blocked(context, conflict.resource, conflict.name, Reason.NAME_CONFLICT, text)
    yield from _terminating(context)
    for pod in overdue_pods(context):
        subject = f"pod {pod.metadata.name}"
        message = f"{subject} {describe_terminating(PODS, pod.metadata.finalizers)}"
        yield Blocked(object=subject, reason=Reason.TERMINATING, message=message, since=format_time(context.now))
    for rejected in _in_create_order(context, context.snapshot.rejected_writes):
        yield _rejected(context, rejected)
    for pod in waiting_pods(progress):
        if context.policy.code_sync:
            yield from blocked_by_failed_clone(context, pod)
        reason, message = waiting_reason(pod)
        if reason:
            text = f"cannot start: {reason}{f': {message}' if message else ''}"
            yield _blocked(context, PODS, pod.metadata.name, reason, text)


def _unavailable(context: ReconcileContext) -> Blocked:
    """Resources that are not installed are reported first, because permissions alone do not help there."""
    not_installed = [resource for resource in context.unavailable if resource in context.snapshot.not_installed]
    names = ", ".join(resource.qualified_name for resource in not_installed or context.unavailable)
    if not_installed:
        message = f"the cluster does not serve {names}, which this job needs: {_install_hint(context, not_installed)}"
        return Blocked(object="cluster", reason=Reason.CRD_NOT_INSTALLED, message=message, since=format_time(context.now))
    message = f"the operator is not allowed to read {names}, which this job needs: {_rbac_hint(context, context.unavailable)}"
    return Blocked(object="operator", reason=Reason.FORBIDDEN, message=message, since=format_time(context.now))


def _install_hint(context: ReconcileContext, resources: Collection[Resource]) -> str:
    if WORKLOADS in resources:
        return "install Kueue 0.15 or newer, or remove the queue of the job"
    if context.job.gang is None or context.job.gang.resource not in resources:
        # Groups of Kubernetes itself have no CRDs.
        is_built_in = all("." not in resource.group or resource.group.endswith(".k8s.io") for resource in resources)
        return "use a cluster that serves them, or remove the fields that ask for them" if is_built_in else "install the CRDs"
    return f"install the scheduler {context.job.gang.scheduler}, or start the operator without --gang-scheduler-name"


def _rbac_hint(context: ReconcileContext, resources: Collection[Resource]) -> str:
    """How to grant the operator the permissions for these resources."""
    if context.job.gang is not None and context.job.gang.resource in resources:
        return rbac_hint(GANG_PERMISSIONS, namespace=context.job.metadata.namespace)
    permission_sets = (child.permission_set for child in context.job.all_children() if any(each in resources for each in child.resources))
    name = next((permission_set.name for permission_set in permission_sets if permission_set is not None), "")
    return rbac_hint(name, namespace=context.job.metadata.namespace)


def _rejected(context: ReconcileContext, rejected: RejectedWrite) -> Blocked:
    is_update = context.exists(rejected.resource, rejected.name)
    text = f"could not be {'updated' if is_update else 'created'}: {rejected.message}"
    if rejected.resource in (PODS, SERVICES) or not _RBAC_ERROR.search(rejected.message):
        reason = Reason.FAILED_UPDATE if is_update else Reason.FAILED_CREATE
        return _blocked(context, rejected.resource, rejected.name, reason, text)
    text = f"{text}; {_rbac_hint(context, (rejected.resource,))}"
    return _blocked(context, rejected.resource, rejected.name, Reason.FORBIDDEN, text)


def _in_create_order(context: ReconcileContext, rejected: tuple[RejectedWrite, ...]) -> list[RejectedWrite]:
    """Sorted by the order of creation instead of the order of the responses. The first one is also retried first."""
    order = {name: number for number, name in enumerate(context.desired_pods)} if len(rejected) > 1 else {}
    return sorted(rejected, key=lambda write: (write.resource == PODS, order.get(write.name, -1)))


def _blocked(context: ReconcileContext, resource: Resource, name: str, reason: str, text: str) -> Blocked:
    subject = f"{resource.kind.lower()} {name}"
    return Blocked(object=subject, reason=reason, message=f"{subject}: {text}", since=format_time(context.now))


def waiting_pods(progress: Progress) -> Iterator[Pod]:
    """Pods that are not running yet and that the job needs.

    A pod in phase Unknown was running already, on a node that may be lost. Elastic replicas above the minimum are optional.
    """
    for role in progress.roles:
        for replica in role.replicas:
            is_pending = replica.state is ReplicaState.PENDING and replica.pod is not None and replica.pod.status.phase != "Unknown"
            if is_pending and replica.pod is not None and not role.spec.is_optional(replica.index):
                yield replica.pod


def waiting_reason(pod: Pod) -> tuple[str, str]:
    """Reason and message why a pod cannot start; both are empty if it is only slow."""
    for container in pod.status.init_container_statuses + pod.status.container_statuses:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in _WAITING_REASONS:
            return _WAITING_REASONS[waiting.reason], waiting.message
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return condition.reason, condition.message
    return "", ""


# --- objects that are still terminating ----------------------------------------------------------------------------------


def _terminating(context: ReconcileContext) -> Iterator[Blocked]:
    """Objects of a deleted job of the same name that should be gone by now."""
    for conflict in _relevant_conflicts(context):
        if context.now >= _report_time(conflict):
            subject = f"{conflict.resource.kind.lower()} {conflict.name}"
            state = describe_terminating(conflict.resource, conflict.finalizers, is_terminating=conflict.is_terminating)
            message = f"{subject} of the deleted {conflict.owner} {state}"
            yield Blocked(object=subject, reason=Reason.TERMINATING, message=message, since=format_time(context.now))


def next_terminating_report(context: ReconcileContext) -> float | None:
    """When the next terminating object is to be reported."""
    return earliest(*(_report_time(conflict) for conflict in _relevant_conflicts(context) if context.now < _report_time(conflict)))


def describe_terminating(resource: Resource, finalizers: Sequence[str], *, is_terminating: bool = True) -> str:
    """Why an object still exists and what to do. The text continues a sentence that starts with its name."""
    if not is_terminating:
        return "still exists: delete it, or wait for the garbage collector"
    if finalizers:
        return f"is still terminating: finalizers {', '.join(finalizers)}; remove them, or wait"
    if resource == PODS:
        return "is still terminating: its node has not confirmed the deletion; force-delete it if the node is down, or wait"
    return "is still terminating: wait"


def _relevant_conflicts(context: ReconcileContext) -> Iterator[TerminatingConflict]:
    return (conflict for conflict in context.snapshot.terminating_conflicts if context.is_desired(conflict.resource, conflict.name))


def _report_time(conflict: TerminatingConflict) -> float:
    return conflict.since + REPORT_AFTER_SECONDS
