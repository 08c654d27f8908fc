"""DLJob: the class that a new framework extends.

A framework declares `job_type`, `replica_types`, `container_properties` and `get_environment_variables`. Everything else
has a default that a subclass may override: names, labels, ports, defaults, validation, success, start order, child objects,
and the formats of spec and status.

An instance wraps the stored custom resource for one reconcile pass.
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
from dlop.api.names import dns_label, format_selector, label_value
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
    finish_time_from_conditions,
    phase_from_conditions,
    with_blocked_condition,
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

    The declaration of a subclass is validated when the class is defined. A base class for several kinds lists `ABC` among its
    bases and is not validated.
    """

    job_type: ClassVar[JobType]
    """The custom resource."""
    replica_types: ClassVar[tuple[ReplicaType, ...]]
    """The roles, in the order of creation."""
    container_properties: ClassVar[ContainerProperties]
    """The training container."""

    replica_specs_field: ClassVar[str] = "replicaSpecs"
    """The field of the spec that contains the roles."""
    restart_scope: ClassVar[RestartScope] = RestartScope.REPLICA
    """The default of `runPolicy.restartScope`."""
    clean_pod_policy: ClassVar[CleanPodPolicy] = CleanPodPolicy.RUNNING
    """The default of `runPolicy.cleanPodPolicy`."""
    manager_names: ClassVar[tuple[str, ...]] = (MANAGER,)
    """Values of `runPolicy.managedBy` that mean this operator."""
    adds_container_port: ClassVar[bool] = True
    """Whether the port of the framework is added to the training container."""
    sets_env_in_all_containers: ClassVar[bool] = False
    """Whether all containers of a pod get the environment of the framework, not only the training container."""
    overrides_user_env: ClassVar[bool] = False
    """Whether the environment of the framework overrides variables that the user has set."""
    framework_label: ClassVar[str] = ""
    """The `framework` label of the Kubeflow-compatible metrics (`training_operator_jobs_*`); empty excludes the kind from them."""
    spec_model: ClassVar[type[BaseModel] | None] = default_spec_model()
    """The pydantic model of the spec, for the CRD. Generated from the replica types by default; the operator checks a custom one, too."""
    name_pattern: ClassVar[str] = ""
    """A regular expression for `metadata.name`, for the CRD; empty allows all valid names."""
    printer_columns: ClassVar[tuple[Column, ...]] = default_columns()
    """The columns of `kubectl get`."""
    scale_paths: ClassVar[ScalePaths | None] = default_scale_paths()
    """The paths of the scale subresource; by default only kinds with a single role have one."""
    suspend_path: ClassVar[tuple[str, ...] | None] = ("runPolicy", "suspend")
    """The path of the suspend field in the spec; None if jobs cannot be suspended."""
    child_resources: ClassVar[tuple[Resource, ...]] = ()
    """The resources of `child_objects`. The operator watches them like pods and services."""
    ephemeral_resources: ClassVar[tuple[Resource, ...]] = ()
    """The child resources whose objects are deleted when the job is suspended, has finished, or no longer needs them."""
    extra_rules: ClassVar[tuple[JsonObject, ...]] = ()
    """RBAC rules that the operator needs for this kind in addition to pods, services and events."""
    optional_permissions: ClassVar[PermissionSet | None] = None
    """RBAC rules that are granted only on request. Without them, jobs that need them are blocked with a reason."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if ABC not in cls.__bases__:
            check_declaration(cls)

    def __init__(self, stored: CustomObject, *, options: Options | None = None) -> None:
        super().__init__(stored, options=options)
        # Cached because rendering each of N replicas needs the addresses of all N.
        self._addresses: dict[str, list[str]] = {}

    # Overrides: required.

    @abstractmethod
    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """Environment variables with which a replica finds its peers.

        Variables that the user has set are kept, unless `overrides_user_env` is set.
        """

    # Overrides: the environment.

    def get_pod_fields(self, replica: Replica) -> Mapping[str, str]:
        """Variables that are set from fields of the pod: `{"POD_IP": "status.podIP"}`.

        They precede the other variables, which may reference them as `$(POD_IP)`.
        """
        return {}

    # Overrides: the spec.

    def normalize_legacy(self, spec: Any) -> Any:
        """Convert legacy values to the current format, for jobs that are older than the CRD.

        The result must depend on the spec only, because it is cached.
        """
        return spec

    def read_spec(self, spec: ManifestField) -> JobSpec:
        """Parse the spec. Report problems with `ManifestField.error`; do not raise.

        The result must depend on the spec only, because it is cached.
        """
        spec.object()
        roles = spec.get(self.replica_specs_field)
        policy = spec.get("runPolicy")
        policy.object()
        return JobSpec(
            roles=read_roles(roles, self.replica_types, self.container_properties),
            run_policy=read_run_policy(policy, restart_scope=self.restart_scope, clean_pod_policy=self.clean_pod_policy),
        )

    def apply_defaults(self, spec: JobSpec) -> JobSpec:
        """Fill in defaults that depend on several fields. They are not written back to the API server."""
        return spec

    def validate(self, spec: JobSpec) -> Iterable[Problem]:
        """Problems of a spec that parsing does not detect."""
        return ()

    def replicas_path(self, role: str) -> tuple[str | int, ...] | None:
        """The path of the number of replicas of a role in the spec; None if the job does not have the role."""
        roles = ManifestField("spec", self.raw_spec).get(self.replica_specs_field)
        key = next((name for name, _ in roles.entries() if name.lower() == role.lower()), None)
        return None if key is None else (self.replica_specs_field, key, "replicas")

    # Overrides: names, labels, ports.

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """The name of a replica's pod. It must be deterministic."""
        return dns_label(self.metadata.name, f"-{role.name.lower()}-{index}")

    def service_name(self, role: RoleSpec, index: int) -> str | None:
        """The name of a replica's service; None if the replica has no service."""
        return self.replica_name(role, index)

    def role_labels(self, role: RoleSpec) -> Mapping[str, str]:
        """Labels that select the pods of a role."""
        return {JOB_NAME_LABEL: label_value(self.metadata.name), REPLICA_TYPE_LABEL: role.name.lower()}

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Labels that select the pod of one replica."""
        return {**self.role_labels(role), REPLICA_INDEX_LABEL: str(index)}

    def pod_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Additional labels of a pod."""
        return {}

    def service_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Labels of a service."""
        return self.labels(role, index)

    def port(self, role: RoleSpec) -> int | None:
        """The port that the replicas of a role listen on; None if they do not listen."""
        return role.port if role.port is not None else self.container_properties.port

    def service_ports(self, role: RoleSpec, container: JsonObject) -> list[JsonObject]:
        """The ports of a replica's service; by default all named ports of the training container."""
        named = {port["name"]: port for port in container.get("ports") or [] if port.get("name")}
        return [service_port(port) for port in named.values()]

    # Overrides: lifecycle.

    def may_start(self, role: RoleSpec, progress: Progress) -> bool:
        """Whether the pods of a role may be created now. By default, all roles start together."""
        return True

    def pod_restart_policy(self, role: RoleSpec, index: int) -> str:
        """The `restartPolicy` of the pod. It is Never if the operator decides about restarts instead of the kubelet."""
        if role.restart_policy is RestartPolicy.EXIT_CODE or self.spec.run_policy.restart_scope is not RestartScope.REPLICA:
            return RestartPolicy.NEVER
        return role.restart_policy

    def is_final_failure(self, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        """Whether a failure is final, so that the replica is not restarted; None applies the restart policy of the role."""
        return None

    def fixed_roles(self) -> tuple[str, ...]:
        """Roles whose size is part of every replica's environment; scaling one restarts the job."""
        return ()

    def required_roles(self) -> tuple[str, ...]:
        """The roles that must succeed for the job to succeed: those with `required_for_success`, or all if the job has none of them."""
        present = tuple(role.name for role in self.spec.roles)
        required = {role.name for role in self.replica_types if role.required_for_success}
        return tuple(name for name in present if name in required) or present

    def is_running(self, progress: Progress) -> bool:
        """Whether the job is running; by default, as soon as one replica of the required roles is."""
        roles = (progress.role(name) for name in self.required_roles())
        return any(role is not None and role.count(ReplicaState.RUNNING) > 0 for role in roles)

    def evaluate(self, progress: Progress) -> JobResult | None:
        """The result of the job; None if it has not finished.

        By default it fails with the first failed replica, and succeeds when all required roles have succeeded.
        """
        failed = next((replica for role in progress.roles for replica in role.replicas if replica.state is ReplicaState.FAILED), None)
        if failed is not None:
            return JobResult(succeeded=False, reason=Reason.FAILED, message=self.describe_failure(failed))
        roles = [progress.role(name) for name in self.required_roles()]
        if all(role is None or role.all(ReplicaState.SUCCEEDED) for role in roles):
            message = f"{self.job_type.kind} {self.metadata.name} is successfully completed."
            return JobResult(succeeded=True, reason=Reason.SUCCEEDED, message=message)
        return None

    def child_objects(self) -> tuple[Create, ...]:
        """Further objects that the job needs, created before its pods. Use `child_metadata` for their metadata."""
        return ()

    def updated_children(self, progress: Progress) -> tuple[Create, ...]:
        """The child objects that are updated while the job runs, in their desired state; for example a list of the running pods."""
        return ()

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Modify a rendered pod before it is created. Copy nested objects before changing them; they may belong to the cached template."""
        return pod

    # Overrides: the status.

    def read_phase(self, status: JsonObject) -> Phase | None:
        """The phase in a stored status; None if it has none."""
        return phase_from_conditions(status)

    def read_finish_time(self, status: JsonObject) -> Any:
        """The finish time in a stored status, which another operator may have written without `completionTime`."""
        return status.get("completionTime") or finish_time_from_conditions(status)

    def write_blocked(self, blocked: Blocked, *, now: float) -> JsonObject:
        """The stored status with the condition Blocked, for a running job whose spec has become invalid."""
        return {**self.stored_status, "conditions": with_blocked_condition(self.stored_status, blocked, now=now)}

    def write_status(self, outcome: Outcome) -> JsonObject:
        """The status in the format of the kind."""
        stored = self.stored_status
        return {
            "conditions": write_conditions(outcome, stored=stored, kind=self.job_type.kind, name=self.metadata.name),
            "replicaStatuses": write_replica_statuses(outcome, selector=lambda role: format_selector(self.role_labels(role.spec))),
            **write_times(outcome),
        }

    # Helpers.

    def replicas(self, role: str) -> int:
        """The desired number of replicas of a role; 0 if the job does not have the role."""
        role_spec = self.spec.role(role)
        return 0 if role_spec is None else role_spec.replicas

    def host(self, role: str, index: int = 0) -> str:
        """The host name of a replica: the name of its service, or of its pod if it has no service.

        It is fully qualified if the operator knows the cluster domain. Empty if the job does not have the role.
        """
        role_spec = self.spec.role(role)
        if role_spec is None:
            return ""
        service, domain = self.service_name(role_spec, index), self.options.cluster_domain
        if service is None:
            return self.replica_name(role_spec, index)
        return f"{service}.{self.metadata.namespace}.svc.{domain}" if domain else service

    def addresses(self, role: str) -> list[str]:
        """`host:port`, or `host` without a port, of all replicas of a role, ordered by index; empty if the job does not have the role."""
        if role not in self._addresses:
            self._addresses[role] = self._addresses_of(role)
        return list(self._addresses[role])

    @property
    def gang(self) -> Gang | None:
        """The gang of the job's pods; None if gang scheduling is disabled."""
        scheduler = self.options.gang_scheduler_name
        return Gang(scheduler, label_value(self.metadata.name)) if scheduler else None

    def child_metadata(self, name: str) -> JsonObject:
        """Metadata of a child object: name, namespace and owner reference."""
        return {"name": name, "namespace": self.metadata.namespace, "ownerReferences": [self.owner_reference()]}

    def owner_reference(self) -> JsonObject:
        """The controller owner reference of the job's children."""
        owner = {"apiVersion": self.job_type.api_version, "kind": self.job_type.kind, "name": self.metadata.name, "uid": self.metadata.uid}
        return {**owner, "controller": True, "blockOwnerDeletion": True}

    def describe_failure(self, replica: ReplicaProgress) -> str:
        """A message that says how a replica failed: pod, node and exit code."""
        failure = replica.failure or LastFailure(role=replica.role, index=replica.index)
        return f"{self.job_type.kind} {self.metadata.name} has failed: {describe_failure(failure)}"

    # Internal: used by the planner and the controller.

    def reconcile(self, snapshot: Snapshot, now: float) -> Plan:
        """Plan one reconcile pass. Pure: `now` is in seconds since the epoch."""
        # Imported lazily, because most importers only declare a kind.
        from dlop.reconcile.planner import plan  # noqa: PLC0415

        return plan(self, snapshot, now=now)

    @cached_property
    def size(self) -> str:
        """The sizes of the fixed roles, such as `Master=1,Worker=3`; empty if there are none."""
        fixed = self.fixed_roles()
        return ",".join(f"{role.name}={role.replicas}" for role in self.spec.roles if role.name in fixed)

    @property
    def rbac_hint(self) -> str:
        """How to grant the operator the permissions for this kind."""
        return rbac_hint("" if self.optional_permissions is None else self.optional_permissions.name)

    def make_pod(self, role: RoleSpec, index: int, *, attempt: int) -> JsonObject:
        """The rendered pod of a replica."""
        return Replica(self, role, index, attempt=attempt).pod()

    def make_service(self, role: RoleSpec, index: int) -> JsonObject | None:
        """The rendered service of a replica; None if it has none."""
        return None if self.service_name(role, index) is None else Replica(self, role, index).service()

    def all_replicas(self, progress: Progress | None = None) -> Iterator[Replica]:
        """All desired replicas in the order of the roles, with their observed state if `progress` is given."""
        for role in self.spec.roles:
            for index in range(role.replicas):
                yield Replica(self, role, index, observed=progress.replica(role.name, index) if progress is not None else None)

    def _addresses_of(self, role: str) -> list[str]:
        role_spec = self.spec.role(role)
        if role_spec is None:
            return []
        port = self.port(role_spec)
        hosts = [self.host(role, index) for index in range(role_spec.replicas)]
        return hosts if port is None else [f"{host}:{port}" for host in hosts]
