"""Everything that one reconcile pass knows about a job. Derived values are computed once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlop.api.cached_property import cached_property
from dlop.api.child_objects import Create
from dlop.api.gang import POD_GROUPS
from dlop.api.phase import MemberPod, Phase
from dlop.api.record import Record, RecordBuilder, ScaleRecord, parse_counts, parse_indexes, parse_record
from dlop.api.spec import JobSpec, RestartScope, RoleSpec, RunPolicy
from dlop.kube.objects import Pod, PodGroup, Workload
from dlop.kube.resources import PODS, SERVICES, WORKLOADS, Resource
from dlop.kube.timestamps import parse_time
from dlop.policies.git_sync import find_source_without_image
from dlop.policies.kueue import KUEUE_RESOURCES, may_use_kueue, workload_ref
from dlop.policies.tensorboard import tensorboard_children
from dlop.reconcile.pod_state import match_pods, pod_attempt, pod_replacement
from dlop.reconcile.snapshot import Snapshot

if TYPE_CHECKING:
    from dlop.job import DLJob


@dataclass(frozen=True, slots=True)
class PersistedState:
    """The state that earlier passes have stored in the status."""

    phase: Phase | None
    """None if no operator has written a status yet."""
    record: Record
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class ReplicaId:
    role: RoleSpec
    index: int


def find_workload(job: DLJob, snapshot: Snapshot) -> Workload | None:
    """The existing Workload of a job, whose spec may be invalid."""
    if not snapshot.children:
        return None  # the common case
    ref = workload_ref(job)
    matches = (child for resource, child in snapshot.children if (resource, child.metadata.name) == ref)
    return next((child for child in matches if isinstance(child, Workload)), None)


@dataclass(frozen=True)
class ReconcileContext:
    """One job in one pass. A "ref" is a pair of resource and object name."""

    job: DLJob
    spec: JobSpec
    snapshot: Snapshot
    stored: PersistedState
    now: float
    scaling: tuple[ScaleRecord, ...] = ()
    """Decisions of the autoscaler or a scale plan that take effect in this pass."""
    is_scaling: bool = False
    """Whether a scale plan is executed in this pass."""
    has_new_ports: bool = False
    """Whether the job is assigned ports of the host network in this pass."""
    awaits_flavors: bool = False
    """Whether it is not known yet where Kueue has admitted the job."""
    must_store_record: bool = False
    """Whether the record has changes that must be stored before anything is created for a replica, or deleted because it is surplus."""

    def with_record(self, record: Record, *, scaling: tuple[ScaleRecord, ...] = ()) -> ReconcileContext:
        """The same context with a record that must be stored."""
        job = self.job.with_record(record)
        stored = replace(self.stored, record=record)
        return replace(self, job=job, spec=job.spec, stored=stored, scaling=scaling or self.scaling, must_store_record=True)

    @property
    def awaits_host_ports(self) -> bool:
        """Whether the job needs ports of the host network and has none, or too few."""
        assigned, count = self.stored.record.host_ports, self.spec.host_ports
        return count > 0 and (assigned is None or assigned.count < count)

    @property
    def lacks_git_sync_image(self) -> bool:
        """Whether pods cannot be created, because no image clones the repositories of the job."""
        return bool(self.policy.code_sync) and find_source_without_image(self.job) is not None

    @property
    def policy(self) -> RunPolicy:
        return self.spec.run_policy

    @property
    def has_tensorboard(self) -> bool:
        """Whether the job asks for a TensorBoard, or has the pod of one."""
        return self.policy.tensorboard is not None or self.snapshot.companion is not None

    @cached_property
    def desired_pods(self) -> dict[str, ReplicaId]:
        """Replicas by the names of their pods."""
        job, pod_name = self.job, self.job.naming.pod_name
        return {pod_name(job, role, index): ReplicaId(role, index) for role in self.spec.roles for index in range(role.replicas)}

    def record_builder(self) -> RecordBuilder:
        return RecordBuilder(self.stored.record, self.spec, first_pods=self._first_pods)

    @cached_property
    def _first_pods(self) -> dict[str, str]:
        """Pod name of index 0 by role. It changes if a change of the spec renames the pods of the role."""
        return {role.name: self.job.naming.pod_name(self.job, role, 0) for role in self.spec.roles}

    @cached_property
    def pods(self) -> dict[str, Pod]:
        """Existing pods by the desired names of their replicas; surplus pods by their own names."""
        naming = self.job.naming
        pods = tuple(pod for pod in self.snapshot.pods if pod.metadata.name not in self.members) if self.members else self.snapshot.pods
        return match_pods(pods, self.desired_pods, lambda replica: naming.labels(self.job, replica.role, replica.index))

    @cached_property
    def members(self) -> dict[str, MemberPod]:
        """The existing members of the job by the names of their pods."""
        policy = self.job.members
        if policy is None:
            return {}  # the common case
        identified = ((policy.identify(pod.metadata.labels), pod) for pod in self.snapshot.pods)
        return {pod.metadata.name: MemberPod(member, pod) for member, pod in identified if member is not None}

    @cached_property
    def desired_services(self) -> dict[str, ReplicaId]:
        """Replicas by the names of their services."""
        job, service_name = self.job, self.job.naming.service_name
        names = ((service_name(job, replica.role, replica.index), replica) for replica in self.desired_pods.values())
        return {name: replica for name, replica in names if name is not None}

    @cached_property
    def child_objects(self) -> tuple[Create, ...]:
        """The desired child objects of the kind, without the PodGroup."""
        return self.job.child_objects()

    @cached_property
    def desired_children(self) -> frozenset[tuple[Resource, str]]:
        """Refs of all desired child objects, including the PodGroup and the Workload."""
        refs = {(create.resource, create.name) for create in self.child_objects}
        gang = self.job.gang if self.desired_pods else None
        if gang is not None:
            refs.add(gang.ref)
        if self.queue and not self.policy.suspend:
            refs.add(workload_ref(self.job))
        return frozenset(refs)

    @cached_property
    def pod_group(self) -> PodGroup | None:
        """The existing PodGroup of the job."""
        gang = self.job.gang
        if gang is None:
            return None
        matches = (child for resource, child in self.snapshot.children if (resource, child.metadata.name) == gang.ref)
        return next((child for child in matches if isinstance(child, PodGroup)), None)

    @cached_property
    def queue(self) -> str:
        """The queue of Kueue in which the job waits, or from which it was admitted; empty if it runs without one.

        A job that was started without a queue continues without one.
        """
        if not self.policy.scheduling.queue or not may_use_kueue(self.job):
            return ""
        is_known = bool(self.stored.record.queue) or self.workload is not None
        if not is_known and (self._has_started or self.unreadable_for_queue):
            return ""
        return self.policy.scheduling.queue

    @property
    def _has_started(self) -> bool:
        """The pods of a suspended job are about to be gone."""
        phase = self.stored.phase
        return phase in (Phase.RUNNING, Phase.RESTARTING) or (bool(self.snapshot.pods) and phase is not Phase.SUSPENDED)

    @cached_property
    def unreadable_for_queue(self) -> tuple[Resource, ...]:
        """Resources of Kueue that the operator cannot read: forbidden, or not installed in the cluster."""
        return tuple(each for each in (*self.snapshot.forbidden, *self.snapshot.not_installed) if each in KUEUE_RESOURCES)

    @cached_property
    def workload(self) -> Workload | None:
        """The existing Workload of the job."""
        return find_workload(self.job, self.snapshot)

    @property
    def ephemeral_resources(self) -> tuple[Resource, ...]:
        """Resources whose objects are deleted when the job is suspended or finished."""
        kinds = (child for child in self.job.all_children() if child.is_ephemeral)
        return (*POD_GROUPS, *(resource for child in kinds for resource in child.resources))

    @property
    def pruned_resources(self) -> tuple[Resource, ...]:
        """Resources whose objects are deleted when the job no longer needs them."""
        kinds = (child for child in self.job.all_children() if child.on_demand)
        return (*self.ephemeral_resources, *(resource for child in kinds for resource in child.resources))

    @cached_property
    def unwatched(self) -> tuple[Resource, ...]:
        """Resources that the job needs, or has needed before, and that the operator does not watch yet."""
        if not self.snapshot.unwatched:
            return ()
        recorded, phase = self.stored.record.watched, self.stored.phase
        if phase is not None and phase.is_finished:  # it needs no other child objects, and its spec may be invalid
            needed = {create.resource for create in tensorboard_children(self.job)}
        else:
            needed = self._resources_of(self.desired_children)
        return tuple(each for each in self.snapshot.unwatched if each in needed or each.qualified_name in recorded)

    @cached_property
    def unavailable(self) -> tuple[Resource, ...]:
        """Resources that the job needs and the operator cannot read: forbidden, or not installed in the cluster."""
        return self._unavailable_of(self.desired_children) if self.snapshot.forbidden or self.snapshot.not_installed else ()

    @cached_property
    def blocking_resources(self) -> tuple[Resource, ...]:
        """Unavailable resources without which no pod is created. A job that runs does not wait for the Ingress of its TensorBoard."""
        return self._unavailable_of(self.desired_children - self.companion_refs) if self.unavailable else ()

    @cached_property
    def companion_refs(self) -> frozenset[tuple[Resource, str]]:
        """Refs of the service and the Ingress of the TensorBoard of a job that runs, which does not wait for them."""
        if self.policy.tensorboard is None or self.stored.phase not in (Phase.RUNNING, Phase.RESTARTING):
            return frozenset()
        return frozenset((create.resource, create.name) for create in tensorboard_children(self.job))

    def _unavailable_of(self, children: Iterable[tuple[Resource, str]]) -> tuple[Resource, ...]:
        unavailable = (*self.snapshot.forbidden, *self.snapshot.not_installed)
        needed, members = self._resources_of(children), self.job.members
        if members is not None and members.needs_plans(self.job):
            needed.add(members.plan_type.resource)
        return tuple(resource for resource in unavailable if resource in needed)

    def _resources_of(self, children: Iterable[tuple[Resource, str]]) -> set[Resource]:
        """The resources of child objects, and those that are read for them. Those of Kueue are read only if there are Workloads."""
        resources, snapshot = {resource for resource, _ in children}, self.snapshot
        lacks_workloads = WORKLOADS in (*snapshot.unwatched, *snapshot.forbidden, *snapshot.not_installed)
        return resources.union(KUEUE_RESOURCES) if self.queue and not lacks_workloads else resources

    @cached_property
    def existing_services(self) -> frozenset[str]:
        return frozenset(service.metadata.name for service in self.snapshot.services)

    @cached_property
    def existing_children(self) -> frozenset[tuple[Resource, str]]:
        return frozenset((resource, child.metadata.name) for resource, child in self.snapshot.children)

    @cached_property
    def name_conflicts(self) -> frozenset[tuple[Resource, str]]:
        """Refs of desired objects whose names are used by objects of other owners."""
        conflicts = self.snapshot.name_conflicts
        return frozenset((conflict.resource, conflict.name) for conflict in conflicts if self.is_desired(conflict.resource, conflict.name))

    def exists(self, resource: Resource, name: str) -> bool:
        """Whether the job has this object."""
        if resource == PODS:
            return name in self.pods
        return name in self.existing_services if resource == SERVICES else (resource, name) in self.existing_children

    def is_desired(self, resource: Resource, name: str) -> bool:
        """Whether the job needs this object."""
        if (resource == PODS and name in self.desired_pods) or (resource == SERVICES and name in self.desired_services):
            return True
        return (resource, name) in self.desired_children

    @cached_property
    def stale_pods(self) -> tuple[Pod, ...]:
        """Pods of earlier attempts."""
        names = self.stale_pod_names
        return tuple(pod for name, pod in self.pods.items() if name in names) if names else ()

    @cached_property
    def stale_pod_names(self) -> frozenset[str]:
        """The keys of stale pods in `pods`."""
        return frozenset(name for name, lag in self._attempt_lags if lag > 0)

    @cached_property
    def replacements(self) -> dict[str, dict[int, int]]:
        """By role and index, how many pods were lost in this attempt, according to the stored record."""
        return {role: parse_counts(counts) for role, counts in self.stored.record.replacements.items()}

    @cached_property
    def accounted_pods(self) -> tuple[Pod, ...]:
        """Pods of the current attempt that the stored record counts as lost. They are deleted and replaced."""
        if not self.replacements:
            return ()  # the common case
        pods = ((pod, self.desired_pods.get(name)) for name, pod in self.pods.items() if name not in self.stale_pod_names)
        return tuple(pod for pod, replica in pods if replica is not None and pod_replacement(pod) < self.replacement(replica))

    @cached_property
    def accounted_uids(self) -> frozenset[str]:
        return frozenset(pod.metadata.uid for pod in self.accounted_pods)

    def replacement(self, replica: ReplicaId) -> int:
        """The replacement number of a replica's next pod."""
        return self.replacements.get(replica.role.name, {}).get(replica.index, 0)

    @property
    def spec_changed(self) -> bool:
        """Whether the spec, or the ports that the operator assigns, have changed since the last stored pass."""
        return self.has_new_ports or self.stored.record.observed_generation != self.job.metadata.generation

    @property
    def may_have_drifted(self) -> bool:
        """Whether pods and services may be different now. They stay as they are until the new ones can be rendered."""
        return self.spec_changed and not self.awaits_host_ports and not self.awaits_flavors

    @cached_property
    def is_idle(self) -> bool:
        """Whether the required roles have no replicas and none has completed. The job can neither run nor succeed."""
        if all(role.replicas for role in self.spec.roles):
            return False  # the common case
        roles = frozenset(self.job.lifecycle.required_roles(self.job))
        if any(role.replicas for role in self.spec.roles if role.name in roles):
            return False
        return not any(parse_indexes(self.stored.record.completed_indexes.get(role, "")) for role in roles)

    @cached_property
    def surplus_pods(self) -> tuple[Pod, ...]:
        """Pods that the spec does not contain."""
        return tuple(pod for name, pod in self.pods.items() if name not in self.desired_pods)

    def has_stale_pods(self, role: RoleSpec) -> bool:
        """Whether pods of an earlier attempt prevent a role from starting. The role of a surplus pod is unknown."""
        if any(pod_attempt(pod) < self.stored.record.attempt for pod in (*self.stale_pods, *self.surplus_pods)):
            return True  # the whole job was restarted
        scope, attempt = self.policy.restart_scope, self.attempts[role.name]
        if scope is not RestartScope.REPLICA and any(pod_attempt(pod) < attempt for pod in self.surplus_pods):
            return True
        if scope is RestartScope.JOB:
            return bool(self.stale_pods)
        return any(self.desired_pods[name].role.name == role.name for name in self.stale_pod_names)

    @cached_property
    def attempts(self) -> dict[str, int]:
        """The current attempt by role."""
        return {role.name: self.stored.record.attempt_of(role.name) for role in self.spec.roles}

    @cached_property
    def _attempt_lags(self) -> tuple[tuple[str, int], ...]:
        """How many attempts the pod of each replica lags behind the record. Negative if the record lags behind."""
        replicas, attempts = self.desired_pods, self.attempts
        pods = ((name, pod, replicas.get(name)) for name, pod in self.pods.items())
        return tuple((name, attempts[replica.role.name] - pod_attempt(pod)) for name, pod, replica in pods if replica is not None)

    @cached_property
    def unrecorded_attempts(self) -> dict[str, int]:
        """By role, how many attempts the record lags behind the pods."""
        unrecorded: dict[str, int] = {}
        for name, lag in self._attempt_lags:
            if lag < 0:
                role = self.desired_pods[name].role.name
                unrecorded[role] = max(unrecorded.get(role, 0), -lag)
        return unrecorded


def persisted_state(job: DLJob) -> PersistedState:
    """The state in the stored status of a job, which another operator may have written."""
    status = job.stored_status
    record = parse_record(status)
    phase = _phase(record.phase) if record and record.phase else job.status.read_phase(status)
    if record is not None:
        return PersistedState(phase, record, started_at=parse_time(record.started_at), finished_at=parse_time(record.finished_at))
    started_at, finished_at = parse_time(status.get("startTime")), parse_time(job.status.read_finish_time(status))
    return PersistedState(phase, Record(), started_at=started_at, finished_at=finished_at)


def _phase(text: str) -> Phase | None:
    return next((phase for phase in Phase if phase == text), None)
