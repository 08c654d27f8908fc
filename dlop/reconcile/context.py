"""Everything that one pass knows of one job, looked up once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlop.api.cached_property import cached_property
from dlop.api.child_objects import Create
from dlop.api.gang import POD_GROUPS
from dlop.api.phase import Phase
from dlop.api.record import Record, indexes_of, record_in
from dlop.api.spec import JobSpec, RestartScope, RoleSpec, RunPolicy
from dlop.kube.objects import Pod, PodGroup
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.timestamps import parse_time
from dlop.reconcile.pod_state import attempt_of, by_replica
from dlop.reconcile.record_builder import RecordBuilder
from dlop.reconcile.snapshot import Snapshot

if TYPE_CHECKING:
    from dlop.job import DLJob


@dataclass(frozen=True, slots=True)
class PersistedState:
    """What earlier passes have written down."""

    phase: Phase | None
    """None: nobody has looked at the job yet."""
    record: Record
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class ReplicaId:
    """Which replica."""

    role: RoleSpec
    index: int


@dataclass(frozen=True)
class ReconcileContext:
    """One job in one pass."""

    job: DLJob
    spec: JobSpec
    snapshot: Snapshot
    stored: PersistedState
    now: float

    @property
    def policy(self) -> RunPolicy:
        """How the job is to be run."""
        return self.spec.run_policy

    @cached_property
    def names(self) -> dict[str, ReplicaId]:
        """The name of every pod that the job asks for."""
        return {self.job.replica_name(role, index): ReplicaId(role, index) for role in self.spec.roles for index in range(role.replicas)}

    def record_builder(self) -> RecordBuilder:
        return RecordBuilder(self.stored.record, self.spec, first_pods=self._first_pods)

    @cached_property
    def _first_pods(self) -> dict[str, str]:
        """Pod name of index 0 by role; it changes when an edit renames the pods of the role."""
        return {role.name: self.job.replica_name(role, 0) for role in self.spec.roles}

    @cached_property
    def pods(self) -> dict[str, Pod]:
        """The job's pods by the names of their replicas; those that the job does not ask for by their own."""
        return by_replica(self.snapshot.pods, self.names, lambda replica: self.job.labels(replica.role, replica.index))

    @cached_property
    def service_names(self) -> dict[str, ReplicaId]:
        """The name of every service that the replicas ask for."""
        asked = ((self.job.service_name(replica.role, replica.index), replica) for replica in self.names.values())
        return {name: replica for name, replica in asked if name is not None}

    @cached_property
    def other_objects(self) -> tuple[Create, ...]:
        """Whatever else the job asks for."""
        return self.job.other_objects()

    @cached_property
    def other_places(self) -> frozenset[tuple[Resource, str]]:
        """Where that is to be, and the group of the pods, if they are placed together."""
        places = {(creation.resource, creation.name) for creation in self.other_objects}
        gang = self.job.gang if self.names else None
        return frozenset(places) if gang is None else frozenset({*places, gang.place})

    @cached_property
    def group(self) -> PodGroup | None:
        """The group that the job has, if its pods are placed together."""
        gang = self.job.gang
        if gang is None:
            return None
        found = (found for resource, found in self.snapshot.others if (resource, found.metadata.name) == gang.place)
        return next((each for each in found if isinstance(each, PodGroup)), None)

    @property
    def passing_resources(self) -> tuple[Resource, ...]:
        """Of what kind those of the other objects are that go when the job holds still or has come to its end."""
        return (*POD_GROUPS, *self.job.passing_resources)

    @cached_property
    def unreadable(self) -> tuple[Resource, ...]:
        """What the job asks for and the operator may not read."""
        asked = {resource for resource, _ in self.other_places} if self.snapshot.unreadable else ()
        return tuple(resource for resource in self.snapshot.unreadable if resource in asked)

    @cached_property
    def services(self) -> frozenset[str]:
        """The names of the job's services that are there."""
        return frozenset(service.metadata.name for service in self.snapshot.services)

    @cached_property
    def others(self) -> frozenset[tuple[Resource, str]]:
        """The job's other objects that are there."""
        return frozenset((resource, found.metadata.name) for resource, found in self.snapshot.others)

    @cached_property
    def taken(self) -> frozenset[tuple[Resource, str]]:
        """The names that somebody else's objects have, among those that the job needs."""
        return frozenset(
            (foreign.resource, foreign.name) for foreign in self.snapshot.foreign if self.is_asked_for(foreign.resource, foreign.name)
        )

    def is_there(self, resource: Resource, name: str) -> bool:
        """Whether the job has such an object."""
        if resource == PODS:
            return name in self.pods
        return name in self.services if resource == SERVICES else (resource, name) in self.others

    def is_asked_for(self, resource: Resource, name: str) -> bool:
        """Whether the job needs an object of this name."""
        if (resource == PODS and name in self.names) or (resource == SERVICES and name in self.service_names):
            return True
        return (resource, name) in self.other_places

    @cached_property
    def outdated(self) -> tuple[Pod, ...]:
        """Pods of attempts that are over."""
        names = self.outdated_names
        return tuple(pod for name, pod in self.pods.items() if name in names) if names else ()

    @cached_property
    def outdated_names(self) -> frozenset[str]:
        """The names of the replicas that those were."""
        return frozenset(name for name, age in self._ages if age > 0)

    @property
    def is_edited(self) -> bool:
        """Whether the spec is another one than that of the record."""
        return self.stored.record.observed_generation != self.job.metadata.generation

    @cached_property
    def is_idle(self) -> bool:
        """Whether the job asks for no replica of a role that decides, and none has finished: there is nothing to judge."""
        if all(role.replicas for role in self.spec.roles):
            return False  # as nearly always
        roles = frozenset(self.job.deciding_roles())
        if any(role.replicas for role in self.spec.roles if role.name in roles):
            return False
        return not any(indexes_of(self.stored.record.completed.get(role, "")) for role in roles)

    @cached_property
    def surplus(self) -> tuple[Pod, ...]:
        """Pods that the spec does not ask for."""
        return tuple(pod for name, pod in self.pods.items() if name not in self.names)

    def has_outdated(self, role: RoleSpec) -> bool:
        """Whether pods of an attempt that is over keep a role from starting anew. It is not known which role a surplus pod had."""
        if any(attempt_of(pod) < self.stored.record.attempt for pod in (*self.outdated, *self.surplus)):
            return True  # the whole job was begun anew
        scope, attempt = self.policy.restart_scope, self.attempts[role.name]
        if scope is not RestartScope.REPLICA and any(attempt_of(pod) < attempt for pod in self.surplus):
            return True
        if scope is RestartScope.JOB:
            return bool(self.outdated)
        return any(self.names[name].role.name == role.name for name in self.outdated_names)

    @cached_property
    def attempts(self) -> dict[str, int]:
        """The attempt that counts, by role."""
        return {role.name: self.stored.record.attempt_of(role.name) for role in self.spec.roles}

    @cached_property
    def _ages(self) -> tuple[tuple[str, int], ...]:
        """How many attempts the pod of each replica lags behind, where there is one."""
        names, attempts = self.names, self.attempts
        found = ((name, pod, names.get(name)) for name, pod in self.pods.items())
        return tuple((name, attempts[replica.role.name] - attempt_of(pod)) for name, pod, replica in found if replica is not None)

    @cached_property
    def missed_attempts(self) -> dict[str, int]:
        """How many attempts that there are pods of the record does not know of, by role."""
        missed: dict[str, int] = {}
        for name, age in self._ages:
            if age < 0:
                role = self.names[name].role.name
                missed[role] = max(missed.get(role, 0), -age)
        return missed


def persisted_state(job: DLJob) -> PersistedState:
    """What the stored status of a job tells."""
    status = job.stored_status
    record = record_in(status)
    phase = _phase(record.phase) if record and record.phase else job.phase_in(status)
    if record is not None:
        return PersistedState(phase, record, started_at=parse_time(record.started_at), finished_at=parse_time(record.finished_at))
    return PersistedState(phase, Record(), started_at=parse_time(status.get("startTime")), finished_at=parse_time(job.finished_in(status)))


def _phase(text: str) -> Phase | None:
    return next((phase for phase in Phase if phase == text), None)
