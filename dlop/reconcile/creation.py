"""What to create in this pass: child objects, then services, then pods.

A rejected create is planned again in every pass; the controller decides when to retry it.

`child_patches` updates existing children, for example a list of the running pods. An annotation holds a hash of their
contents, so that the caches need not keep the contents.

`exceeded_size_limit` refuses a job whose pods are larger in total than what an API server can hold. If every pod lists all peers, the
size grows with the square of the number of replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from dlop.api.child_objects import Create
from dlop.api.constants import TEMPLATE_HASH_ANNOTATION
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.record import parse_counts
from dlop.api.scale_plan import Member
from dlop.api.schema import format_path
from dlop.api.spec import Problem, SpecError
from dlop.api.template_hash import child_with_template_hash, parse_template_hash
from dlop.kube.objects import ObjectMeta
from dlop.kube.resources import PODS, SERVICES
from dlop.kube.types import JsonObject
from dlop.reconcile.backoff import restart_unit
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.gang import awaits_admission, pod_group_creates
from dlop.reconcile.observe import Observation
from dlop.reconcile.plan import Delete, Patch, ReplicaCreate
from dlop.replica import Replica

MAX_JOB_BYTES = 1 << 30
"""Half of etcd's default quota, which all objects of a cluster share."""
_CHECKED_REPLICAS = 680
"""Jobs with fewer replicas cannot exceed the limit, because a pod cannot exceed 1.5 MiB."""


@dataclass(frozen=True, slots=True)
class Creates:
    """The creates of a pass in three steps. A name conflict in one step delays the later steps."""

    children: tuple[Create, ...] = ()
    services: tuple[ReplicaCreate, ...] = ()
    pods: tuple[ReplicaCreate, ...] = ()


def plan_creates(context: ReconcileContext, progress: Progress, *, in_backoff: Container[str] = ()) -> Creates:
    """Everything that is missing and may be created now. `in_backoff` are the restart units whose pods have to wait."""
    if context.blocking_resources or context.unwatched:
        return Creates()
    # The TensorBoard of a running job is created last, so that it holds up nothing.
    own = (create for create in context.child_objects if (create.resource, create.name) not in context.companion_refs)
    missing = [create for create in own if _is_missing(context, create)]
    conflicts = context.name_conflicts - context.companion_refs
    children = pod_group_creates(context, progress) + with_current_bodies(context, progress, missing)
    if (
        awaits_admission(context)
        or context.awaits_host_ports
        or context.awaits_flavors
        or context.lacks_git_sync_image
        or any(resource not in (PODS, SERVICES) for resource, _ in conflicts)
    ):
        return Creates(children=children)
    services = _services(context)
    if any(resource == SERVICES for resource, _ in conflicts):
        return Creates(children=children, services=services)
    return Creates(children=children, services=services, pods=_pods(context, progress, in_backoff))


def _is_missing(context: ReconcileContext, create: Create | ReplicaCreate) -> bool:
    ref = (create.resource, create.name)
    return not context.exists(*ref) and ref not in context.name_conflicts and ref not in context.snapshot.shared


def _services(context: ReconcileContext) -> tuple[ReplicaCreate, ...]:
    unavailable = context.existing_services | {name for resource, name in context.name_conflicts if resource == SERVICES}
    return tuple(
        ReplicaCreate(SERVICES, name, context.job.replica(replica.role, replica.index))
        for name, replica in context.desired_services.items()
        if name not in unavailable
    )


def _pods(context: ReconcileContext, progress: Progress, in_backoff: Container[str]) -> tuple[ReplicaCreate, ...]:
    """The missing pods of all roles that may start and have no pods of an earlier attempt.

    A replica waits until the stored record has no container restarts of its previous pod.
    """
    job = context.job
    creates: list[ReplicaCreate] = []
    for role in progress.roles:
        counted = context.stored.record.counted_restarts.get(role.spec.name)
        recorded = frozenset(parse_counts(counted)) if counted else frozenset()
        missing = [
            replica
            for replica in role.replicas
            if _has_no_pod(replica) and replica.index not in recorded and not _is_delayed(context, replica, in_backoff)
        ]
        if missing and not context.has_stale_pods(role.spec) and job.lifecycle.may_start(job, role.spec, progress):
            attempt, replacements = context.attempts[role.spec.name], context.replacements.get(role.spec.name, {})
            replicas = (
                job.replica(role.spec, replica.index, attempt=attempt, replacement=replacements.get(replica.index, 0))
                for replica in missing
            )
            pods = (ReplicaCreate(PODS, replica.name, replica) for replica in replicas)
            creates += [create for create in pods if _is_missing(context, create)]
    return tuple(creates)


def _is_delayed(context: ReconcileContext, replica: ReplicaProgress, in_backoff: Container[str]) -> bool:
    return bool(in_backoff) and restart_unit(context.policy.restart_scope, replica.role, replica.index) in in_backoff


def _has_no_pod(replica: ReplicaProgress) -> bool:
    return replica.state is ReplicaState.MISSING and replica.pod is None


def assume_created(context: ReconcileContext, progress: Progress, pods: Collection[ReplicaCreate]) -> Progress:
    """The progress after these pods are created, which saves a second status write.

    Nothing is assumed while creates are rejected.
    """
    if not pods or context.snapshot.rejected_writes:
        return progress
    desired = (context.desired_pods[pod.name] for pod in pods if pod.name in context.desired_pods)
    created = {(replica.role.name, replica.index) for replica in desired}

    def update(replica: ReplicaProgress) -> ReplicaProgress:
        is_created = (replica.role, replica.index) in created
        return replace(replica, state=ReplicaState.PENDING) if is_created else replica

    def update_role(role: RoleProgress) -> RoleProgress:
        return replace(role, replicas=tuple(update(replica) for replica in role.replicas))

    return Progress(roles=tuple(update_role(role) for role in progress.roles))


def is_settled(context: ReconcileContext, observation: Observation, progress: Progress, deletes: Collection[Delete]) -> bool:
    """Whether nothing is left to plan after this pass until something changes."""
    unfinished = deletes or observation.lost_replicas or context.surplus_pods or context.stale_pods or context.accounted_pods
    obstructed = context.name_conflicts or context.snapshot.rejected_writes
    return not unfinished and not obstructed and not any(role.count(ReplicaState.MISSING) for role in progress.roles)


def with_current_bodies(context: ReconcileContext, progress: Progress, creates: Iterable[Create]) -> tuple[Create, ...]:
    """The same creates, with the current bodies of updated children."""
    creates = tuple(creates)
    if not creates:
        return creates
    updated = {(child.resource, child.name): child for child in _updated_children(context, progress)}
    return tuple(updated.get((create.resource, create.name), create) for create in creates)


def child_patches(context: ReconcileContext, progress: Progress) -> tuple[Patch, ...]:
    """Patches for existing children whose contents have changed."""
    if not context.snapshot.children:
        return ()
    existing = {(resource, child.metadata.name): child.metadata for resource, child in context.snapshot.children}
    pairs = ((child, existing.get((child.resource, child.name))) for child in _updated_children(context, progress))
    return tuple(
        Patch(child.resource, metadata.uid, child.body)
        for child, metadata in pairs
        if metadata is not None and _is_stale(metadata, child.body)
    )


def _updated_children(context: ReconcileContext, progress: Progress) -> Iterator[Create]:
    job = context.job
    for child in job.all_children():
        for create in child.update(job, progress):
            yield replace(create, body=child_with_template_hash(create.body, generation=job.metadata.generation))


def _is_stale(metadata: ObjectMeta, body: JsonObject) -> bool:
    """Compares only the hashes, because a new generation may render the same contents."""
    if metadata.deletion_timestamp is not None:
        return False
    _, existing = parse_template_hash(metadata.annotations.get(TEMPLATE_HASH_ANNOTATION, ""))
    _, desired = parse_template_hash(body["metadata"]["annotations"][TEMPLATE_HASH_ANNOTATION])
    return existing != desired


# --- jobs that are too large ----------------------------------------------------------------------------------------------


def exceeded_size_limit(context: ReconcileContext) -> SpecError | None:
    """The error for a job that would exceed the limit if all its pods existed; None if it does not, or if they exist."""
    roles, replicas = context.spec.roles, context.job.total_replicas
    if replicas < _CHECKED_REPLICAS or len(context.snapshot.pods) >= replicas:
        return None
    sizes = {role.name: role.replicas * _pod_bytes(context.job.replica(role, 0)) for role in roles if role.replicas}
    if sum(sizes.values()) <= MAX_JOB_BYTES:
        return None
    largest = max(sizes, key=lambda name: sizes[name])
    return _size_error(format_path(context.job.schema.replicas_path(context.job.spec_field, largest) or ()), sum(sizes.values()))


def exceeded_member_size_limit(context: ReconcileContext, members: Sequence[Member], counts: Mapping[str, int]) -> SpecError | None:
    """The error for new members with which all members would exceed the limit. `counts` is the number of all members by role."""
    if len(members) < _CHECKED_REPLICAS:
        return None
    last = {member.role: context.job.member(member) for member in sorted(members, key=lambda member: member.rank)}
    total = sum(counts[role] * _pod_bytes(replica) for role, replica in last.items() if replica is not None)
    return None if total <= MAX_JOB_BYTES else _size_error("spec", total)


def _pod_bytes(replica: Replica) -> int:
    return len(msgspec.json.encode(replica.pod()))


def _size_error(path: str, total: int) -> SpecError:
    message = (
        f"the pods of this job need {total / (1 << 30):.1f} GiB in the API server, more than the limit of {MAX_JOB_BYTES >> 30} GiB; "
        "use fewer replicas, or less text in the pod templates"
    )
    return SpecError((Problem(path, message),))
