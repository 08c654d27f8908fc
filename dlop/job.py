"""DLJob: the class that a new framework extends.

A framework declares `job_type`, `replica_types`, `container_properties` and `get_environment_variables`. Everything else is a policy
with a default: `schema`, `naming`, `lifecycle`, `status` and `children`. A framework replaces the policies in which it differs.

An instance wraps the stored custom resource for one reconcile pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dlop.api.cached_property import cached_property
from dlop.api.child_objects import Create
from dlop.api.fields import ManifestField
from dlop.api.gang import Gang, GangMember, min_members
from dlop.api.host_ports import SIZE_PREFIX, port_offsets
from dlop.api.job_resource import JobResource
from dlop.api.kueue import Placement, pod_set_name
from dlop.api.names import label_value
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.scale_plan import Member, MembersRecord
from dlop.api.schema import Schema
from dlop.api.spec import JobSpec, Problem, RoleSpec
from dlop.api.spot_replicas import is_spot_replica
from dlop.api.types import ConfigMapKey, ContainerProperties, FieldRef, JobType, Options, ReplicaType
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.types import JsonObject
from dlop.policies.children import ChildObjects
from dlop.policies.common_children import COMMON_CHILDREN
from dlop.policies.declaration import check_declaration
from dlop.policies.lifecycle import Lifecycle
from dlop.policies.members import Members
from dlop.policies.naming import Naming
from dlop.policies.status import Status
from dlop.replica import MemberReplica, Replica

if TYPE_CHECKING:
    from dlop.api.flags import FrameworkFlags
    from dlop.api.record import Record
    from dlop.reconcile.plan import Plan
    from dlop.reconcile.snapshot import Snapshot


class DLJob(ABC):
    """A distributed deep-learning job. Extend it to add a framework.

    The declaration of a subclass is validated when the class is defined. A base class for several kinds lists `ABC` among its
    bases and is not validated.
    """

    # Required.

    job_type: ClassVar[JobType]
    """The custom resource."""
    replica_types: ClassVar[tuple[ReplicaType, ...]]
    """The roles, in the order of creation."""
    container_properties: ClassVar[ContainerProperties]
    """The training container."""

    @abstractmethod
    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef | ConfigMapKey]:
        """Environment variables with which a replica finds its peers.

        Variables that the user has set are kept, unless the container properties say otherwise.
        """

    # Policies.

    schema: ClassVar[Schema] = Schema()
    """The spec: its CRD, and how it is read and validated."""
    naming: ClassVar[Naming[Any]] = Naming()
    """Names and labels of pods and services."""
    lifecycle: ClassVar[Lifecycle[Any]] = Lifecycle()
    """When roles start, and when the job runs, succeeds and fails."""
    status: ClassVar[Status[Any]] = Status()
    """The status format of the kind."""
    children: ClassVar[tuple[ChildObjects[Any], ...]] = ()
    """Objects that a job needs in addition to pods and services."""
    members: ClassVar[Members[Any] | None] = None
    """Pods that the job's own master manages, in addition to the replicas; None for most kinds."""
    flags: ClassVar[type[FrameworkFlags] | None] = None
    """Flags of `dlop run` for this framework."""

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Modify a rendered pod before it is created. Copy nested objects before changing them; they may belong to the cached template."""
        return pod

    def customize_service(self, replica: Replica, service: JsonObject) -> JsonObject:
        """Modify a rendered service before it is created."""
        return service

    # Helpers.

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the custom resource."""
        return self._resource.metadata

    @property
    def spec(self) -> JobSpec:
        """The parsed spec. Raises SpecError if it is invalid."""
        return self._resource.spec

    @property
    def raw_spec(self) -> Any:
        """The spec from the manifest as plain data. Do not modify it."""
        return self._resource.raw_spec

    @property
    def spec_field(self) -> ManifestField:
        """The spec from the manifest, for fields that only this kind has: `self.spec_field.get("image").string()`."""
        return ManifestField("spec", self._resource.raw_spec)

    @property
    def stored_status(self) -> JsonObject:
        """The status as currently stored."""
        return self._resource.status

    def replicas(self, role: str) -> int:
        """The desired number of replicas of a role; 0 if the job does not have the role."""
        role_spec = self.spec.role(role)
        return 0 if role_spec is None else role_spec.replicas

    def minimum_replicas(self, role: str) -> int:
        """The number of replicas of a role that the autoscaler keeps; the desired number if the role is not elastic."""
        role_spec = self.spec.role(role)
        return 0 if role_spec is None else role_spec.minimum

    def attempt(self, role: str) -> int:
        """How often a role was restarted as a whole."""
        return self._resource.record.attempt_of(role)

    @property
    def member_record(self) -> MembersRecord:
        """What is stored about the members and the last scale plan."""
        return self._resource.record.members or MembersRecord()

    @property
    def host_port(self) -> int | None:
        """The first assigned port of the host network; None if the job has none yet, or needs none."""
        assigned = self._resource.record.host_ports
        return None if assigned is None or not self.spec.host_ports else assigned.first

    @cached_property
    def total_replicas(self) -> int:
        """The desired number of replicas of all roles."""
        return sum(role.replicas for role in self.spec.roles)

    def port(self, role: str, index: int = 0) -> int | None:
        """The port that a replica listens on; the default port if the job does not have the role or sets no port.

        Only in the host network, the replicas of a role have different ports.
        """
        role_spec = self.spec.role(role)
        if role_spec is not None and self.uses_host_network and self.host_port is not None:
            return self._host_port_of(role_spec.name, index)
        port = None if role_spec is None else role_spec.port
        return self.container_properties.port if port is None else port

    def host(self, role: str, index: int = 0) -> str:
        """The host name of a replica; empty if the job does not have the role."""
        role_spec = self.spec.role(role)
        return "" if role_spec is None else self.naming.host(self, role_spec, index)

    def addresses(self, role: str) -> list[str]:
        """`host:port`, or `host` without a port, of all replicas of a role, ordered by index; empty if the job does not have the role."""
        if role not in self._addresses:
            indexes, has_own_ports = range(self.replicas(role)), self.spec.run_policy.host_network
            ports = [self.port(role, index) for index in indexes] if has_own_ports else [self.port(role)] * len(indexes)
            hosts = (self.host(role, index) for index in indexes)
            self._addresses[role] = [host if port is None else f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        return list(self._addresses[role])

    def child_metadata(self, name: str) -> JsonObject:
        """Metadata of a child object: name, namespace and owner reference."""
        return {"name": name, "namespace": self.metadata.namespace, "ownerReferences": [self.owner_reference()]}

    def owner_reference(self) -> JsonObject:
        """The controller owner reference of the job's children."""
        owner = {"apiVersion": self.job_type.api_version, "kind": self.job_type.kind, "name": self.metadata.name, "uid": self.metadata.uid}
        return {**owner, "controller": True, "blockOwnerDeletion": True}

    # Internal: used by the planner and the controller.

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if ABC not in cls.__bases__:
            check_declaration(cls)

    def __init__(self, stored: CustomObject, *, options: Options | None = None) -> None:
        self.options = options or Options()
        self._resource = JobResource(stored, type(self), node_lost_seconds=self.options.node_lost_seconds)
        self._placements: Mapping[str, Placement] = {}
        # Cached because rendering each of N replicas needs the addresses of all N.
        self._addresses: dict[str, list[str]] = {}

    def reconcile(self, snapshot: Snapshot, now: float) -> Plan:
        """Plan one reconcile pass. Pure: `now` is in seconds since the epoch."""
        # Imported lazily, because most importers only declare a kind.
        from dlop.reconcile.planner import plan  # noqa: PLC0415

        return plan(self, snapshot, now=now)

    @property
    def managed_by_other(self) -> bool:
        """Whether `managedBy` names another controller."""
        return self._resource.managed_by_other

    @property
    def spec_warnings(self) -> tuple[Problem, ...]:
        """Warnings of the kind about its spec, for example about fields that have no effect."""
        return self._resource.warnings

    def ignoring_problems(self) -> Self:
        """The same job with defaults for all invalid fields, for the cleanup of a finished job."""
        return self._copy(self._resource.ignoring_problems())

    def with_record(self, record: Record) -> Self:
        """The same job with the record that is going to be stored."""
        return self._copy(self._resource.with_record(record))

    def with_placements(self, placements: Mapping[str, Placement]) -> Self:
        """The same job with the placements of its pods, by pod set of its Workload."""
        job = self._copy(self._resource)
        job._placements = placements
        return job

    def _copy(self, resource: JobResource) -> Self:
        job = type(self)(self._resource.stored, options=self.options)
        job._resource, job._placements = resource, self._placements
        return job

    def placement(self, role: RoleSpec) -> Placement | None:
        """Where the pods of a role run; None if Kueue has not admitted the job."""
        return self._placements.get(pod_set_name(role.name)) if self._placements else None

    @cached_property
    def size(self) -> str:
        """The sizes of the fixed roles, such as `Master=1,Worker=3`, and the first ports of all roles in the host network.

        Empty if there are neither. It is part of the environment of all replicas.
        """
        fixed = self.lifecycle.fixed_roles(self)
        sizes = [f"{role.name}={role.replicas}" for role in self.spec.roles if role.name in fixed and role.elastic is None]
        if self.uses_host_network and self.host_port is not None:
            sizes.append(f"{SIZE_PREFIX}{'/'.join(str(self.port(role.name)) for role in self.spec.roles)}")
        return ",".join(sizes)

    @cached_property
    def uses_host_network(self) -> bool:
        """Whether the pods use the network of their nodes, with ports that the operator assigns to each replica."""
        return self.spec.run_policy.host_network

    def _host_port_of(self, role: str, index: int) -> int:
        """The assigned port of a replica."""
        offsets = self._port_offsets[role]
        return (self.host_port or 0) + offsets.start + min(index, max(0, len(offsets) - 1))

    @cached_property
    def _port_offsets(self) -> Mapping[str, range]:
        return port_offsets(self.spec, self.replica_types)

    @property
    def gang(self) -> Gang | None:
        """The gang of the job's pods; None if gang scheduling is disabled, or applies to none of the pods."""
        scheduler = self.options.gang_scheduler_name
        return Gang(scheduler, label_value(self.metadata.name)) if scheduler and self._has_gang_roles else None

    @cached_property
    def _has_gang_roles(self) -> bool:
        return all(role.in_gang for role in self.replica_types) or any(role.replicas and self.is_in_gang(role) for role in self.spec.roles)

    def is_in_gang(self, role: RoleSpec) -> bool:
        """Whether gang scheduling applies to the pods of a role."""
        return all(known.in_gang for known in self.replica_types if known.name == role.name)

    @cached_property
    def gang_members(self) -> tuple[GangMember, ...]:
        """The roles of the gang before any of their pods exist. They do not wait for roles outside of the gang."""

        def initial(role: RoleSpec) -> RoleProgress:
            state = ReplicaState.MISSING if self.is_in_gang(role) else ReplicaState.SUCCEEDED
            replicas = (ReplicaProgress(role=role.name, index=index, state=state) for index in range(role.replicas))
            return RoleProgress(spec=role, replicas=tuple(replicas))

        progress = Progress(roles=tuple(initial(role) for role in self.spec.roles))
        roles = (role for role in self.spec.roles if self.is_in_gang(role))
        return tuple(GangMember(role, role.minimum, waits=not self.lifecycle.may_start(self, role, progress)) for role in roles)

    @cached_property
    def initial_min_member(self) -> int:
        """`minMember` of the PodGroup before any pod exists."""
        return min_members(self.spec.run_policy.scheduling, self.gang_members)

    def is_spot(self, role: RoleSpec, index: int) -> bool:
        """Whether the next pod of a replica is a spot pod."""
        return role.spot is not None and is_spot_replica(role, index, self._resource.record)

    def replica(self, role: RoleSpec, index: int, *, attempt: int = 0, replacement: int = 0) -> Replica:
        """One desired replica."""
        return Replica(self, role, index, attempt=attempt, replacement=replacement)

    def member(self, member: Member) -> Replica | None:
        """A member that a scale plan asks for; None if the job has no template for its role."""
        role = self.spec.role(member.role)
        return None if role is None or self.members is None else MemberReplica(self, self.members, role, member)

    @classmethod
    def all_children(cls) -> tuple[ChildObjects[Any], ...]:
        """The child objects of the kind, and those that jobs of all kinds can have."""
        return cls.children + COMMON_CHILDREN

    def child_objects(self) -> tuple[Create, ...]:
        """All desired child objects, in the order of creation."""
        return tuple(create for child in self.all_children() for create in child.build(self))

    def all_replicas(self, progress: Progress | None = None) -> Iterator[Replica]:
        """All desired replicas in the order of the roles, with their observed state if `progress` is given."""
        for role in self.spec.roles:
            for index in range(role.replicas):
                yield Replica(self, role, index, observed=progress.replica(role.name, index) if progress is not None else None)
