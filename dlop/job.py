"""DLJob: one job of one framework in one pass, and the class that a new framework extends.

Four names make a framework: `job_type`, `replica_types`, `container_properties` and `get_environment_variables`. All the
rest has a default that a subclass may override: one method each for names, labels, ports, defaults, validation, success,
start order, further objects, and the dialects of spec and status.

An instance is made of the custom resource as it is stored, answers what the engine asks (`dlop.api.phase.Job`), and is
thrown away after the pass. It never raises for what a user wrote, save `SpecError` from `spec`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from dlop.api.cached_property import cached_property
from dlop.api.child_objects import Create
from dlop.api.constants import JOB_NAME_LABEL, MANAGER, REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL, Reason, rbac_hint
from dlop.api.defaults import default_columns, default_scale_paths, default_spec_model
from dlop.api.fields import ManifestField
from dlop.api.gang import Gang
from dlop.api.job_resource import StoredJob
from dlop.api.names import dns_label, label_value, selector
from dlop.api.parsing import read_roles, read_run_policy, service_port
from dlop.api.phase import JobResult, Outcome, Phase
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState
from dlop.api.record import Blocked, LastFailure, describe_failure
from dlop.api.spec import CleanPodPolicy, JobSpec, Problem, RestartPolicy, RestartScope, RoleSpec
from dlop.api.types import ContainerProperties, JobType, Options, PermissionSet, ReplicaType, check_declaration
from dlop.kube.objects import CustomObject
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from dlop.policies.conditions import (
    end_in_conditions,
    phase_in_conditions,
    with_block,
    write_conditions,
    write_replica_statuses,
    write_times,
)
from dlop.reconcile.plan import Plan
from dlop.reconcile.snapshot import Snapshot
from dlop.replica import Replica

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dlop.api.crd import Column, ScalePaths


class DLJob(StoredJob, ABC):
    """A distributed deep-learning job. Extend it to add a framework.

    What a subclass declares is checked when it is made. One that only gathers what several kinds share, and is no kind
    itself, says so by naming `ABC` among its bases.
    """

    job_type: ClassVar[JobType]
    """The custom resource."""
    replica_types: ClassVar[tuple[ReplicaType, ...]]
    """The roles, in the order in which they are created."""
    container_properties: ClassVar[ContainerProperties]
    """The container that takes part in the job."""

    replica_specs_field: ClassVar[str] = "replicaSpecs"
    """Where in the spec the roles are."""
    restart_scope: ClassVar[RestartScope] = RestartScope.REPLICA
    """What is restarted when one replica has to be, where the manifest does not say."""
    clean_pod_policy: ClassVar[CleanPodPolicy] = CleanPodPolicy.RUNNING
    """Which pods of a finished job are deleted, where the manifest does not say."""
    manager_names: ClassVar[tuple[str, ...]] = (MANAGER,)
    """Under which names in `runPolicy.managedBy` this operator goes."""
    adds_container_port: ClassVar[bool] = True
    """Whether the port of the framework is added to the ports of the container."""
    informs_all_containers: ClassVar[bool] = False
    """Whether every container of a pod gets the environment of the framework, or only the one that takes part in the job."""
    environment_wins: ClassVar[bool] = False
    """Whether the environment of the framework prevails where the user has set the same variable."""
    framework_label: ClassVar[str] = ""
    """Under which name the counters of Kubeflow's operator (`training_operator_jobs_*`) count its jobs; empty: they do not."""
    spec_model: ClassVar[type[BaseModel] | None] = default_spec_model()
    """What a spec looks like, for the CRD; by default made of the replica types. One of the kind's own is also checked here."""
    name_pattern: ClassVar[str] = ""
    """A regular expression for the names that jobs may have, in the CRD; empty: any that the API takes."""
    printer_columns: ClassVar[tuple[Column, ...]] = default_columns()
    """What `kubectl get` shows."""
    scale_paths: ClassVar[ScalePaths | None] = default_scale_paths()
    """Where `kubectl scale` looks; by default kinds with a single role can be scaled."""
    suspend_path: ClassVar[tuple[str, ...] | None] = ("runPolicy", "suspend")
    """Where in the spec a job is suspended; None when the spec has no room for that."""
    other_resources: ClassVar[tuple[Resource, ...]] = ()
    """What kinds of objects `other_objects` makes: they are watched like pods and services."""
    passing_resources: ClassVar[tuple[Resource, ...]] = ()
    """Those of these kinds whose objects go when the job is suspended, has come to its end, or asks for them no more."""
    extra_rules: ClassVar[tuple[JsonObject, ...]] = ()
    """RBAC rules that the operator needs for this kind beyond pods, services and events."""
    optional_rights: ClassVar[PermissionSet | None] = None
    """Further ones that not everybody wants to give. Without them, jobs that need them say so, and everything else goes on."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if ABC not in cls.__bases__:
            check_declaration(cls)

    def __init__(self, found: CustomObject, *, options: Options | None = None) -> None:
        super().__init__(found, options=options)
        # Every replica asks for the addresses of all; a large job has many replicas.
        self._addresses: dict[str, list[str]] = {}

    # What a framework must say.

    @abstractmethod
    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """What a replica must know to find the others. Variables that the user has set are left alone."""

    def get_pod_fields(self, replica: Replica) -> Mapping[str, str]:
        """Variables that only the pod itself can tell, and where in the pod: `{"POD_IP": "status.podIP"}`.

        They come before the others, which may refer to them as `$(POD_IP)`.
        """
        return {}

    # What a framework may say otherwise: the spec.

    def understood(self, spec: Any) -> Any:
        """The spec with what this kind takes in other words than its definition has: jobs that are older than it may have such.

        It must look at nothing else, for what is made of it is kept as long as the spec stays the same.
        """
        return spec

    def read_spec(self, spec: ManifestField) -> JobSpec:
        """The spec in the dialect of this kind. What is wrong is noted in the fields; nothing is raised.

        It must look at nothing else, for what it says is kept as long as the spec stays the same.
        """
        spec.mapping()
        roles = spec.get(self.replica_specs_field)
        policy = spec.get("runPolicy")
        policy.mapping()
        return JobSpec(
            roles=read_roles(roles, self.replica_types, self.container_properties),
            run_policy=read_run_policy(policy, restart_scope=self.restart_scope, clean_pod_policy=self.clean_pod_policy),
        )

    def fill_in(self, spec: JobSpec) -> JobSpec:
        """The spec with whatever depends on more than one field filled in. Nothing of it is written back."""
        return spec

    def validate(self, spec: JobSpec) -> Iterable[Problem]:
        """What is wrong with a spec beyond its shape."""
        return ()

    def replicas_path(self, role: str) -> tuple[str | int, ...] | None:
        """Where in the spec the number of replicas of a role stands, for who wants to scale it; None: the job has no such role."""
        roles = ManifestField("spec", self.raw_spec).get(self.replica_specs_field)
        spelled = next((name for name, _ in roles.entries() if name.lower() == role.lower()), None)
        return None if spelled is None else (self.replica_specs_field, spelled, "replicas")

    # What a framework may say otherwise: names, labels, ports.

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """The name of a replica's pod: the same every time, and fit for a service too."""
        return dns_label(self.metadata.name, f"-{role.name.lower()}-{index}")

    def service_name(self, role: RoleSpec, index: int) -> str | None:
        """The name of a replica's service, under which the other replicas find it; None when it needs none."""
        return self.replica_name(role, index)

    def role_labels(self, role: RoleSpec) -> Mapping[str, str]:
        """The labels that tell the replicas of a role from all other pods."""
        return {JOB_NAME_LABEL: label_value(self.metadata.name), REPLICA_TYPE_LABEL: role.name.lower()}

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The labels that tell one replica from all other pods."""
        return {**self.role_labels(role), REPLICA_INDEX_LABEL: str(index)}

    def pod_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Labels of a pod besides those."""
        return {}

    def service_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The labels of a service."""
        return self.labels(role, index)

    def port(self, role: RoleSpec) -> int | None:
        """What the replicas of a role listen on."""
        return role.port if role.port is not None else self.container_properties.port

    def service_ports(self, role: RoleSpec, container: JsonObject) -> list[JsonObject]:
        """The ports of a replica's service: all ports of the training container that have a name."""
        named = {port["name"]: port for port in container.get("ports") or [] if port.get("name")}
        return [service_port(port) for port in named.values()]

    # What a framework may say otherwise: the way of the job.

    def may_start(self, role: RoleSpec, progress: Progress) -> bool:
        """Whether the pods of a role may be created now. By default all roles start at once."""
        return True

    def pod_restart_policy(self, role: RoleSpec, index: int) -> str:
        """What the node is to do when a container of the pod ends. What the operator decides, the node must not."""
        if role.restart_policy is RestartPolicy.EXIT_CODE or self.spec.run_policy.restart_scope is not RestartScope.REPLICA:
            return RestartPolicy.NEVER
        return role.restart_policy

    def is_final_failure(self, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        """Whether a replica that failed is not tried again; None: as its restart policy says."""
        return None

    def fixed_roles(self) -> tuple[str, ...]:
        """The roles of whose replicas every replica is told how many there are. When these are scaled, the job is started again."""
        return ()

    def deciding_roles(self) -> tuple[str, ...]:
        """The roles that have to be done for the job to be done: those that `decide`, or all when the job has none of them."""
        present = tuple(role.name for role in self.spec.roles)
        decide = {role.name for role in self.replica_types if role.decides}
        return tuple(name for name in present if name in decide) or present

    def is_running(self, progress: Progress) -> bool:
        """Whether the job as a whole counts as running: as soon as a replica of a role that decides does."""
        roles = (progress.role(name) for name in self.deciding_roles())
        return any(role is not None and role.count(ReplicaState.RUNNING) > 0 for role in roles)

    def judge(self, progress: Progress) -> JobResult | None:
        """Whether the job has come to its end: failed with any replica that is given up, done when all that decide are."""
        failed = next((each for role in progress.roles for each in role.replicas if each.state is ReplicaState.FAILED), None)
        if failed is not None:
            return JobResult(succeeded=False, reason=Reason.FAILED, message=self.describe_failure(failed))
        roles = [progress.role(name) for name in self.deciding_roles()]
        if all(role is None or role.all(ReplicaState.SUCCEEDED) for role in roles):
            message = f"{self.job_type.kind} {self.metadata.name} is successfully completed."
            return JobResult(succeeded=True, reason=Reason.SUCCEEDED, message=message)
        return None

    def other_objects(self) -> tuple[Create, ...]:
        """Whatever else the job needs before its pods; `owned` makes the metadata."""
        return ()

    def changing_objects(self, progress: Progress) -> tuple[Create, ...]:
        """Those of them that are kept up with the job, as they are to be now: a list of the pods that run, for example."""
        return ()

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """The last word on a pod. It may be changed in place at the top; what lies deeper may be the user's template."""
        return pod

    # What a framework may say otherwise: the status.

    def phase_in(self, status: JsonObject) -> Phase | None:
        """The phase that a stored status tells."""
        return phase_in_conditions(status)

    def finished_in(self, status: JsonObject) -> Any:
        """When a job came to its end, as a stored status tells it. Another operator may have forgotten to write the time."""
        return status.get("completionTime") or end_in_conditions(status)

    def write_block(self, blocked: Blocked, *, now: float) -> JsonObject:
        """The stored status, and what is in the way of a job of which nothing else can be told: its spec cannot be read."""
        return {**self.stored_status, "conditions": with_block(self.stored_status, blocked, now=now)}

    def write_status(self, outcome: Outcome) -> JsonObject:
        """The status in the dialect of the kind."""
        stored = self.stored_status
        return {
            "conditions": write_conditions(outcome, stored=stored, kind=self.job_type.kind, name=self.metadata.name),
            "replicaStatuses": write_replica_statuses(outcome, selector=lambda role: selector(self.role_labels(role.spec))),
            **write_times(outcome),
        }

    # What a framework finds here.

    def replicas(self, role: str) -> int:
        """How many replicas of a role the job asks for; 0 when it does not have the role."""
        found = self.spec.role(role)
        return 0 if found is None else found.replicas

    def host(self, role: str, index: int = 0) -> str:
        """The host name of a replica: its service, which every pod of the namespace can look up by its bare name.

        It is spelled out when the operator was told the domain of the cluster. Without a service it is the pod's own name.
        """
        found = self.spec.role(role)
        if found is None:
            return ""
        service, domain = self.service_name(found, index), self.options.cluster_domain
        if service is None:
            return self.replica_name(found, index)
        return f"{service}.{self.metadata.namespace}.svc.{domain}" if domain else service

    def addresses(self, role: str) -> list[str]:
        """`host:port` of each replica of a role, in order; empty when the job does not have the role."""
        if role not in self._addresses:
            self._addresses[role] = self._addresses_of(role)
        return list(self._addresses[role])

    @property
    def gang(self) -> Gang | None:
        """The group as which a scheduler places the pods; None: each pod by itself."""
        scheduler = self.options.gang_scheduler_name
        return Gang(scheduler, label_value(self.metadata.name)) if scheduler else None

    def owned(self, name: str) -> JsonObject:
        """The metadata of a further object that belongs to the job and goes with it."""
        return {"name": name, "namespace": self.metadata.namespace, "ownerReferences": [self.owner_reference()]}

    def owner_reference(self) -> JsonObject:
        """What objects carry that belong to the job."""
        owner = {"apiVersion": self.job_type.api_version, "kind": self.job_type.kind, "name": self.metadata.name, "uid": self.metadata.uid}
        return {**owner, "controller": True, "blockOwnerDeletion": True}

    def describe_failure(self, replica: ReplicaProgress) -> str:
        """A sentence on how a replica failed: which pod, where, with which exit code."""
        failure = replica.failure or LastFailure(role=replica.role, index=replica.index)
        return f"{self.job_type.kind} {self.metadata.name} has failed: {describe_failure(failure)}"

    # What the engine and the operator ask.

    def reconcile(self, snapshot: Snapshot, now: float) -> Plan:
        """What is to be done about the job. Pure: nothing is asked of a clock or a server."""
        # Imported here: most users of this module declare a kind and never plan.
        from dlop.reconcile.planner import plan  # noqa: PLC0415

        return plan(self, snapshot, now=now)

    @cached_property
    def size(self) -> str:
        """How many replicas there are, as far as each of them is told."""
        fixed = self.fixed_roles()
        return ",".join(f"{role.name}={role.replicas}" for role in self.spec.roles if role.name in fixed)

    @property
    def rbac_hint(self) -> str:
        """How the operator comes by the rights that it needs for this kind."""
        return rbac_hint("" if self.optional_rights is None else self.optional_rights.name)

    def make_pod(self, role: RoleSpec, index: int, *, attempt: int) -> JsonObject:
        """The pod of a replica, complete."""
        return Replica(self, role, index, attempt=attempt).pod()

    def make_service(self, role: RoleSpec, index: int) -> JsonObject | None:
        """The service of a replica, complete; None when it needs none."""
        return None if self.service_name(role, index) is None else Replica(self, role, index).service()

    def all_replicas(self, progress: Progress | None = None) -> Iterator[Replica]:
        """All replicas, role by role, with what is known of them."""
        for role in self.spec.roles:
            for index in range(role.replicas):
                yield Replica(self, role, index, observed=progress.replica(role.name, index) if progress is not None else None)

    def _addresses_of(self, role: str) -> list[str]:
        found = self.spec.role(role)
        if found is None:
            return []
        port = self.port(found)
        hosts = [self.host(role, index) for index in range(found.replicas)]
        return hosts if port is None else [f"{host}:{port}" for host in hosts]
