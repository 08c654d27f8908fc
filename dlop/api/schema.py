"""Schema: how the spec of a kind is described in its CRD, read and validated.

The CRD and the operator use the same `Schema`: the CRD for what the API server rejects, the operator for specs that an older or
foreign CRD admitted. Importing this module does not import pydantic, so that `import dlop` is fast.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dlop.api.constants import MANAGER
from dlop.api.depends_on import with_dependencies
from dlop.api.fields import ManifestField
from dlop.api.parsing import ordered_roles, read_listed_roles, read_role, read_roles, read_run_policy
from dlop.api.spec import CleanPodPolicy, ElasticRange, JobSpec, Problem, RestartScope, RoleSpec, RunPolicy
from dlop.api.spot_replicas import with_spot_replica_spec, with_spot_replicas
from dlop.api.types import ReplicaType, require, to_choice

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dlop.job import DLJob

FieldPath = tuple[str | int, ...]
"""The steps from the spec to a field: names of fields and indexes of lists."""


_SCHEDULING_PATH: FieldPath = ("runPolicy", "schedulingPolicy")


def format_path(path: FieldPath) -> str:
    """A path for messages: `spec.replicaSpecs[0].replicas`."""
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. Columns with a priority above 0 are shown with `-o wide` only."""

    name: str
    path: str
    """JSONPath from the root of the object, with a leading dot."""
    type: str = "string"
    priority: int = 0
    description: str = ""

    def __post_init__(self) -> None:
        require(isinstance(self.path, str) and self.path.startswith("."), f"Column path {self.path!r}", "a JSONPath, like '.status.state'")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """JSON paths of the scale subresource, with a leading dot."""

    spec_replicas: str
    status_replicas: str
    selector: str


STATE_BY_CONDITIONS = Column("State", ".status.conditions[-1:].type")
AGE = Column("Age", ".metadata.creationTimestamp", type="date")
LAST_FAILURE = Column("Last Failure", ".status.dlop.lastFailure.reason", priority=1)
DEFAULT_COLUMNS = (STATE_BY_CONDITIONS, AGE, LAST_FAILURE)


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The spec of a kind: an object with a map from roles to replica specs, and `runPolicy`.

    Parsed specs are cached, so what `normalize_legacy` and `read` return must depend on their arguments only. Extend the class with
    `@dataclass(frozen=True, kw_only=True)` if the subclass has fields of its own.
    """

    field: str = "replicaSpecs"
    """The field of the spec that contains the roles."""
    model: type[BaseModel] | None = None
    """The pydantic model of the spec, which the operator checks, too. Generated from the replica types by default.

    With `RootModel[Any]`, the CRD accepts every spec, and only `read` validates it.
    """
    scale: str | None = None
    """The role of the scale subresource; empty for none. By default the only role of a kind with a generated model."""
    columns: tuple[Column, ...] = DEFAULT_COLUMNS
    """The columns of `kubectl get`."""
    name_pattern: str = ""
    """A regular expression for `metadata.name`; empty allows all valid names."""
    restart_scope: RestartScope = RestartScope.REPLICA
    """The default of `runPolicy.restartScope`."""
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """The default of `runPolicy.cleanPodPolicy`."""
    manager_names: tuple[str, ...] = (MANAGER,)
    """Values of `runPolicy.managedBy` that mean this operator."""
    inline_run_policy: bool = False
    """Whether the fields of `runPolicy` may also be fields of the spec. Those of `runPolicy` take precedence."""
    suspend_path: FieldPath | None = ("runPolicy", "suspend")
    """The path of the suspend field in the spec; None if jobs cannot be suspended."""
    reads_spot_replica_spec: bool = False
    """Whether roles may set their spot replicas with `spotReplicaSpec`, the field of KubeDL. `spotReplicas` takes precedence."""
    no_host_network: str = ""
    """Why `runPolicy.hostNetwork` has no effect for this kind, and what to set instead; empty if it has."""
    scheduling_path: FieldPath = _SCHEDULING_PATH
    """The path of the options of gang scheduling in the spec. If it is absent, those of `runPolicy` apply."""

    def spec_model(self, kind: type[DLJob]) -> type[BaseModel]:
        """The model of the spec for the CRD."""
        return self.model or _generated_model(kind)

    def normalize_legacy(self, spec: Any) -> Any:
        """Convert values that an older CRD accepted to the current format."""
        return spec

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        """Parse and validate a spec. Report problems with `ManifestField.error`; do not raise."""
        spec.object()
        policy = self._run_policy(spec)
        roles = self.read_ordered_roles(spec, kind)
        run_policy = read_run_policy(
            policy,
            restart_scope=self.restart_scope,
            clean_pod_policy=self.clean_pod_policy,
            scheduling=_field_at(spec, self.used_scheduling_path(spec)),
        )
        if run_policy.autoscale:
            roles = _with_ranges(roles, self.elastic_ranges(spec), policy.get("autoscale"))
        return JobSpec(roles=roles, run_policy=run_policy)

    def _run_policy(self, spec: ManifestField) -> ManifestField:
        policy = spec.get("runPolicy")
        own = policy.object()
        if not self.inline_run_policy:
            return policy
        return ManifestField("spec.runPolicy" if own else "spec", {**spec.object(), **own}, spec.problems, spec.warnings)

    def elastic_ranges(self, spec: ManifestField) -> Mapping[str, ElasticRange]:
        """By role, the range in which the autoscaler chooses the number of replicas if `runPolicy.autoscale` is set."""
        return {}

    def read_roles(self, spec: ManifestField, kind: type[DLJob]) -> tuple[RoleSpec, ...]:
        """Parse the roles, in the order of the kind's replica types."""
        return read_roles(spec.get(self.field), kind.replica_types, kind.container_properties)

    def replicas_path(self, spec: ManifestField, role: str) -> FieldPath | None:
        """The path of the number of replicas of a role; None if the spec does not have the role."""
        key = next((name for name, _ in spec.get(self.field).entries() if name.lower() == role.lower()), None)
        return None if key is None else (self.field, key, "replicas")

    def further_replicas_paths(self, spec: ManifestField, role: str) -> tuple[FieldPath, ...]:
        """Fields that `dlop scale` sets to the number of replicas as well, for example a maximum that equals the minimum."""
        return ()

    # Internal: used by the planner, CRD generation and the commands.

    def __post_init__(self) -> None:
        is_model = self.model is None or (isinstance(self.model, type) and hasattr(self.model, "model_json_schema"))
        require(is_model, f"Schema model {self.model!r}", "a pydantic model, like `class RingSpec(ApiModel)`")
        are_columns = isinstance(self.columns, tuple) and all(isinstance(column, Column) for column in self.columns)
        require(are_columns, f"Schema columns {self.columns!r}", "a tuple of Column, like (Column('State', '.status.state'),)")
        object.__setattr__(self, "restart_scope", to_choice(RestartScope, self.restart_scope, "Schema restart_scope"))
        object.__setattr__(self, "clean_pod_policy", to_choice(CleanPodPolicy, self.clean_pod_policy, "Schema clean_pod_policy"))
        require(isinstance(self.manager_names, tuple), f"Schema manager_names {self.manager_names!r}", "a tuple, like ('dlop',)")
        is_path = self.suspend_path is None or isinstance(self.suspend_path, tuple)
        require(is_path, f"Schema suspend_path {self.suspend_path!r}", "a tuple of fields, like ('runPolicy', 'suspend'), or None")

    def read_ordered_roles(self, spec: ManifestField, kind: type[DLJob]) -> tuple[RoleSpec, ...]:
        """The roles, with the start order of the kind or of the job, and with their spot replicas."""
        start_after = {role.name: role.upstream for role in kind.replica_types}
        roles = (replace(role, start_after=start_after.get(role.name, ())) for role in self.read_roles(spec, kind))
        return tuple(self._with_role_fields(role, self._role_field(spec, role.name), kind) for role in roles)

    def _with_role_fields(self, role: RoleSpec, field: ManifestField, kind: type[DLJob]) -> RoleSpec:
        """The role with the fields that the roles of all kinds may have."""
        role = with_dependencies(role, field.get("dependsOn"), kind.replica_types)
        role = with_spot_replicas(role, field.get("spotReplicas"))
        return with_spot_replica_spec(role, field.get("spotReplicaSpec")) if self.reads_spot_replica_spec else role

    def scale_role(self, kind: type[DLJob]) -> str:
        """The role of the scale subresource; empty if the kind has none."""
        if self.scale is not None:
            return self.scale
        return kind.replica_types[0].name if self.model is None and len(kind.replica_types) == 1 else ""

    def scale_paths(self, kind: type[DLJob]) -> ScalePaths | None:
        """The paths of the scale subresource; None if the kind has none."""
        role = self.scale_role(kind)
        if not role:
            return None
        counts = f".status.replicaStatuses.{role}"
        return ScalePaths(f".spec.{self.field}.{role}.replicas", f"{counts}.active", f"{counts}.selector")

    def used_scheduling_path(self, spec: ManifestField) -> FieldPath:
        """The path of the options of gang scheduling that apply."""
        return _SCHEDULING_PATH if _field_at(spec, self.scheduling_path).is_absent else self.scheduling_path

    def _role_field(self, spec: ManifestField, role: str) -> ManifestField:
        """The object of a role in a spec with an object by role; absent in other formats."""
        return _field_at(spec, (self.replicas_path(spec, role) or ())[:-1])

    def template_path(self, spec: ManifestField, role: str) -> str:
        """The path of the pod template of a role, which is next to the number of replicas, for messages."""
        return format_path((self.replicas_path(spec, role) or ())[:-1]) + ".template"

    def managed_by_other(self, spec: ManifestField) -> bool:
        """Whether `managedBy` names another controller."""
        manager = spec.get("runPolicy").get("managedBy").string()
        return bool(manager) and manager not in self.manager_names

    def model_problems(self, spec: Any, kind: type[DLJob]) -> tuple[Problem, ...]:
        """Problems that the kind's own model reports. A generated model is skipped, because parsing has already checked the same."""
        return _problems(spec, self.spec_model(kind)) if self.model is not None else ()


@dataclass(frozen=True, kw_only=True)
class ListSchema(Schema):
    """A schema whose roles are a list of entries, each of which names its role. This is the format of early operators.

    The restart policy of a role is the one in its pod template. If `field` is empty, the spec itself is the list; such a kind has
    no `runPolicy`.
    """

    type_field: str
    """The field of an entry that names its role."""
    default_type: str = ""
    """The role of entries that do not name one."""
    port_field: str = ""
    """The field of an entry with the port of its replicas, if entries have one."""

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        if self.field:
            return super().read(spec, kind)
        policy = RunPolicy(restart_scope=self.restart_scope, clean_pod_policy=self.clean_pod_policy)
        return JobSpec(roles=self.read_ordered_roles(spec, kind), run_policy=policy)

    def read_roles(self, spec: ManifestField, kind: type[DLJob]) -> tuple[RoleSpec, ...]:
        return read_listed_roles(
            self._entries(spec),
            kind.replica_types,
            kind.container_properties,
            type_field=self.type_field,
            default_type=self.default_type,
            port_field=self.port_field,
        )

    def replicas_path(self, spec: ManifestField, role: str) -> FieldPath | None:
        roles, parents = self.listed_roles(spec), (self.field,) if self.field else ()
        return (*parents, roles.index(role), "replicas") if role in roles else None

    def listed_roles(self, spec: ManifestField) -> list[str]:
        """The roles in the order of the entries."""
        return [entry.get(self.type_field).string() or self.default_type for entry in self._entries(spec).items()]

    def _entries(self, spec: ManifestField) -> ManifestField:
        return spec.get(self.field) if self.field else spec


def _with_ranges(roles: tuple[RoleSpec, ...], ranges: Mapping[str, ElasticRange], autoscale: ManifestField) -> tuple[RoleSpec, ...]:
    if not any(role.name in ranges for role in roles):
        autoscale.warning("has no effect, because no role has a minimum and a higher maximum")
    return tuple(
        replace(role, elastic=ranges[role.name], replicas=ranges[role.name].clamp(role.replicas)) if role.name in ranges else role
        for role in roles
    )


def _field_at(spec: ManifestField, path: FieldPath) -> ManifestField:
    for step in path:
        spec = spec.get(str(step))
    return spec


@dataclass(frozen=True, kw_only=True)
class RoleFieldsSchema(Schema):
    """A schema whose roles are fields of the spec: `spec.worker.replicas`. The fields are named like the roles."""

    field: str = ""

    def read_roles(self, spec: ManifestField, kind: type[DLJob]) -> tuple[RoleSpec, ...]:
        fields = {role: spec.get(role.name) for role in kind.replica_types}
        roles = {role.name: self.read_role(field, role, kind) for role, field in fields.items() if not field.is_absent}
        return ordered_roles(spec, roles, kind.replica_types)

    def read_role(self, field: ManifestField, role: ReplicaType, kind: type[DLJob]) -> RoleSpec:
        """Parse the field of one role."""
        return read_role(field, role, kind.container_properties)

    def replicas_path(self, spec: ManifestField, role: str) -> FieldPath | None:
        key = next((name for name, _ in spec.entries() if name.lower() == role.lower()), None)
        return None if key is None else (key, "replicas")

    def scale_paths(self, kind: type[DLJob]) -> ScalePaths | None:
        role = self.scale
        return ScalePaths(f".spec.{role}.replicas", f".status.{role}.replicas", f".status.{role}.selector") if role else None


@functools.cache
def _generated_model(kind: type[DLJob]) -> type[BaseModel]:
    from dlop.api.role_schema import build_spec_model  # noqa: PLC0415

    return build_spec_model(kind.job_type.kind, kind.replica_types, field=kind.schema.field)


def _problems(spec: Any, model: type[BaseModel]) -> tuple[Problem, ...]:
    from pydantic import ValidationError  # noqa: PLC0415

    from dlop.api.spec_models import problems_from  # noqa: PLC0415

    try:
        model.model_validate(spec)
    except ValidationError as error:
        return problems_from(error)
    return ()
