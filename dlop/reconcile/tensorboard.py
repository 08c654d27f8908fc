"""The TensorBoard of a job. It is a companion: not a replica, and no reason for the job to wait, to restart or to fail.

Its pod is created when the job runs, so that it does not take the place of a replica. It is replaced when it has failed, and when its
configuration has changed. A suspended job has none. After the end of the job it stays for its time to live.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dlop.api.child_objects import Create
from dlop.api.constants import TEMPLATE_HASH_ANNOTATION, Reason
from dlop.api.fields import ManifestField
from dlop.api.job_annotations import decode_annotation
from dlop.api.phase import Phase
from dlop.api.template_hash import parse_template_hash
from dlop.api.tensorboard import TENSORBOARD_ANNOTATION, TensorBoard, is_tensorboard, read_tensorboard_config, tensorboard_name
from dlop.kube.objects import ObjectMeta
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.timestamps import earliest
from dlop.policies.ingress import INGRESSES
from dlop.policies.tensorboard import tensorboard_children, tensorboard_pod
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.plan import Delete, Event, EventType

REPLACE_AFTER_SECONDS = 60
"""From the creation of a pod that has failed to its replacement. The kubelet restarts the container itself, with its own back-off."""


@dataclass(frozen=True, slots=True)
class TensorBoardStep:
    """What a pass does for a TensorBoard."""

    deletes: tuple[Delete, ...] = ()
    creates: tuple[Create, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_at: float | None = None


NOTHING = TensorBoardStep()


def tensorboard_step(context: ReconcileContext, phase: Phase) -> TensorBoardStep:
    """The step for a job that has not finished. Until it runs, its service and its Ingress are created like other child objects."""
    step = _pod_step(context, may_create=phase in (Phase.RUNNING, Phase.RESTARTING))
    return replace(step, creates=(*step.creates, *_missing_children(context))) if context.companion_refs else step


def finished_tensorboard_step(context: ReconcileContext) -> TensorBoardStep:
    """The step for a finished job, whose child objects nothing else creates or deletes."""
    tensorboard, finished_at = context.policy.tensorboard, context.stored.finished_at
    expires_at = None if tensorboard is None or finished_at is None else tensorboard.expires_at(finished_at)
    if expires_at is None or context.now >= expires_at:
        return _expire(context)
    step = _pod_step(context, may_create=True)
    creates = (*step.creates, *_missing_children(context))
    return replace(step, creates=creates, requeue_at=earliest(expires_at, step.requeue_at))


def _missing_children(context: ReconcileContext) -> Iterator[Create]:
    """The service and the Ingress, unless they exist or may exist."""
    snapshot = context.snapshot
    unreadable = (*snapshot.unwatched, *snapshot.forbidden, *snapshot.not_installed)
    for create in tensorboard_children(context.job):
        if create.resource not in unreadable and not context.exists(create.resource, create.name):
            yield create


def _expire(context: ReconcileContext) -> TensorBoardStep:
    """Delete everything that exists."""
    deletes = tuple(
        Delete(resource, metadata.name, metadata.uid) for resource, metadata in _existing(context) if metadata.deletion_timestamp is None
    )
    events = (_event("Deleted the TensorBoard of the finished job"),) if any(delete.resource == PODS for delete in deletes) else ()
    return TensorBoardStep(deletes, events=events)


def _pod_step(context: ReconcileContext, *, may_create: bool) -> TensorBoardStep:
    """Create, keep or replace the pod, and replace an Ingress with another configuration."""
    desired, pod = tensorboard_pod(context.job), context.snapshot.companion
    deletes = tuple(_outdated_ingresses(context))
    if pod is None:
        return TensorBoardStep(deletes, (desired,) if desired is not None and may_create else ())
    metadata = pod.metadata
    if metadata.deletion_timestamp is not None:
        return TensorBoardStep(deletes)
    if desired is None:
        cause = "the job no longer asks for it"
    elif not _is_current(context, metadata, desired):
        cause = "its configuration has changed"
    elif pod.status.phase in ("Failed", "Succeeded"):
        created_at = metadata.creation_timestamp
        replace_at = (0.0 if created_at is None else created_at.timestamp()) + REPLACE_AFTER_SECONDS
        if context.now < replace_at:
            return TensorBoardStep(deletes, requeue_at=replace_at)
        cause = f"its pod has ended{f' ({pod.status.reason})' if pod.status.reason else ''}"
    else:
        return TensorBoardStep(deletes)
    event = _event(f"Deleted pod {metadata.name} of the TensorBoard: {cause}")
    return TensorBoardStep((*deletes, Delete(PODS, metadata.name, metadata.uid)), events=(event,))


def _outdated_ingresses(context: ReconcileContext) -> Iterator[Delete]:
    desired = next((create for create in tensorboard_children(context.job) if create.resource == INGRESSES), None)
    if desired is None:
        return
    for resource, metadata in _existing(context):
        if resource == INGRESSES and metadata.deletion_timestamp is None and not _is_current(context, metadata, desired):
            yield Delete(resource, metadata.name, metadata.uid)


def _existing(context: ReconcileContext) -> Iterator[tuple[Resource, ObjectMeta]]:
    """The objects of the TensorBoard. A service with its name can also be that of a role."""
    snapshot, name = context.snapshot, tensorboard_name(context.job.metadata.name)
    if snapshot.companion is not None:
        yield PODS, snapshot.companion.metadata
    for service in snapshot.services:
        if service.metadata.name == name and is_tensorboard(service.metadata):
            yield SERVICES, service.metadata
    for resource, child in snapshot.children:
        if resource == INGRESSES and child.metadata.name == name:
            yield resource, child.metadata


def _is_current(context: ReconcileContext, metadata: ObjectMeta, desired: Create) -> bool:
    """Whether an object has the desired contents. One of a newer generation was created by an operator whose cache is ahead."""
    generation, digest = parse_template_hash(metadata.annotations.get(TEMPLATE_HASH_ANNOTATION, ""))
    if not digest:
        return _has_same_config(metadata, context.policy.tensorboard)
    desired_digest = parse_template_hash(desired.body["metadata"]["annotations"][TEMPLATE_HASH_ANNOTATION])[1]
    return generation > context.job.metadata.generation or digest == desired_digest


def _has_same_config(metadata: ObjectMeta, tensorboard: TensorBoard | None) -> bool:
    """Whether KubeDL created an object from the same configuration. Its times do not matter."""
    config = decode_annotation(ManifestField(TENSORBOARD_ANNOTATION, metadata.annotations.get(TENSORBOARD_ANNOTATION, "")))
    existing = read_tensorboard_config(config)
    return existing is not None and tensorboard is not None and _contents(existing) == _contents(tensorboard)


def _contents(tensorboard: TensorBoard) -> tuple[object, ...]:
    return tensorboard.log_dir, tensorboard.image, tensorboard.path_prefix, tensorboard.ingress


def _event(message: str) -> Event:
    return Event(EventType.NORMAL, Reason.DELETED_TENSORBOARD, message)
