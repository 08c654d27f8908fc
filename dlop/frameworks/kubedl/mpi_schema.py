"""The spec of an MPIJob: the nested run policy, and the fields of earlier versions of the kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from dlop import (
    Count,
    DLJob,
    JobSpec,
    JsonObject,
    ManifestField,
    PodTemplate,
    RoleSpec,
    RunPolicyModel,
    SchedulingPolicyModel,
)
from dlop.frameworks.kubedl.schema import KubeDLModel, KubeDLSchema, ReplicaSpecs
from dlop.policies import parse_quantities
from dlop.policies.mpi import MainContainer

FieldPath = tuple[str | int, ...]
_CONTAINER = "mpi"
_UNITS = ("gpus", "processingUnits")
_LEGACY_FIELDS = (
    *_UNITS,
    "gpusPerNode",
    "processingUnitsPerNode",
    "processingResourceType",
    "launcherOnMaster",
    "replicas",
    "template",
)
_Positive = Annotated[Count, Field(ge=1)]


class Distribution(StrEnum):
    """The implementation of MPI."""

    OPEN_MPI = "OpenMPI"
    INTEL_MPI = "IntelMPI"
    MPICH = "MPICH"


class MPISchedulingPolicy(SchedulingPolicyModel):
    """Options of gang scheduling and queues."""

    priority: int | None = None
    """Priority in a queue of Kueue."""
    priority_class_name: str | None = None
    """Priority class of the PodGroup, or in a queue of Kueue."""


class MPIRunPolicy(RunPolicyModel):
    """How a job is run."""

    scheduling_policy: MPISchedulingPolicy | None = None
    """Options of gang scheduling and queues."""


class MPIJobModel(KubeDLModel):
    """Specification of an MPIJob."""

    mpi_replica_specs: ReplicaSpecs | None = None
    """Replica specs by role: Launcher, Worker."""
    slots_per_worker: Count | None = None
    """Number of slots per worker in the host file. Defaults to 1."""
    main_container: MainContainer | None = None
    """Container of a worker in which the launcher runs commands. Defaults to the first container."""
    mpi_distribution: Literal["OpenMPI", "IntelMPI", "MPICH"] | None = None
    """Implementation of MPI. Defaults to OpenMPI."""
    run_policy: MPIRunPolicy | None = None
    """Run policy of the job. It takes precedence over the fields beside it."""
    gpus: _Positive | None = None
    """Deprecated: use mpiReplicaSpecs instead. Number of GPUs, which are divided among the workers."""
    gpus_per_node: _Positive | None = None
    """Deprecated: use slotsPerWorker instead. Number of GPUs of a worker. Defaults to 1."""
    processing_units: _Positive | None = None
    """Deprecated: use mpiReplicaSpecs instead. Number of processing units, which are divided among the workers."""
    processing_units_per_node: _Positive | None = None
    """Deprecated: use slotsPerWorker instead. Number of processing units of a worker. Defaults to 1."""
    processing_resource_type: str | None = None
    """Deprecated: use slotsPerWorker instead. Resource whose limit in the template is the number of slots per worker."""
    launcher_on_master: bool | None = None
    """Has no effect."""
    replicas: Count | None = None
    """Deprecated: use mpiReplicaSpecs instead. Number of workers."""
    template: PodTemplate | None = None
    """Deprecated: use mpiReplicaSpecs instead. Pod template of the launcher and the workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacySize:
    """The size of a job in the fields of earlier versions."""

    workers: int | None = None
    workers_field: str = "replicas"
    """The field that determines the number of workers."""
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class _Converted:
    """A spec without the fields of earlier versions, and where its values come from."""

    spec: JsonObject
    sources: dict[str, str] = field(default_factory=dict)

    def path(self, path: str) -> str:
        """The path of a field in the manifest."""
        source = next((prefix for prefix in self.sources if path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))), None)
        return path if source is None else self.sources[source] + path.removeprefix(source)


@dataclass(frozen=True, kw_only=True)
class MPISchema(KubeDLSchema):
    """The run policy is nested, and may also be inline, as in earlier versions. These had one template for both roles."""

    def normalize_legacy(self, spec: Any) -> Any:
        spec = super().normalize_legacy(spec)
        policy = spec.get("runPolicy") if isinstance(spec, dict) else None
        return spec if policy is None else {**spec, "runPolicy": super().normalize_legacy(policy)}

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        read_distribution(spec)
        read_slots(spec)
        if spec.get("launcherOnMaster").boolean():
            spec.get("launcherOnMaster").warning("has no effect: the launcher has no fixed node; remove it")
        converted, problems = self._convert(spec), [*spec.problems]
        job_spec = super().read(ManifestField(spec.path, converted.spec, problems, spec.warnings), kind)
        spec.problems[:] = [replace(problem, path=converted.path(problem.path)) for problem in problems]
        return job_spec

    def read_roles(self, spec: ManifestField, kind: type[DLJob]) -> tuple[RoleSpec, ...]:
        """A replica ends with its container of this name, or else with the first one."""
        return tuple(replace(role, container=_CONTAINER) for role in super().read_roles(spec, kind))

    def replicas_path(self, spec: ManifestField, role: str) -> FieldPath | None:
        path = super().replicas_path(spec, role)
        is_legacy = role == "Worker" and all(spec.get(name).is_absent for name in _UNITS)
        return ("replicas",) if path is None and is_legacy and not spec.get("replicas").is_absent else path

    def _convert(self, spec: ManifestField) -> _Converted:
        """The roles of the spec, with what the fields of earlier versions add."""
        raw, roles = spec.object(), spec.get(self.field)
        if all(raw.get(name) is None for name in _LEGACY_FIELDS) or not isinstance(roles.value, dict | None):
            return _Converted(raw)
        specs, sources, size = dict(roles.object()), {}, read_legacy_size(spec)
        names = {name.lower(): name for name in specs}
        worker = names.get("worker", "Worker")
        if size.workers is not None and _has_no_replicas(specs.get(worker)):
            specs[worker] = {"template": raw.get("template"), **(specs.get(worker) or {}), "replicas": size.workers}
            sources[f"{roles.path}.{worker}.replicas"] = f"{spec.path}.{size.workers_field}"
        launcher = names.get("launcher", "Launcher")
        specs.setdefault(launcher, {"replicas": 1, "template": raw.get("template")})
        own: Mapping[str, Any] = roles.object()
        for role in (worker, launcher):
            if own.get(role) is None or (isinstance(own[role], dict) and "template" not in own[role]):
                sources[f"{roles.path}.{role}.template"] = f"{spec.path}.template"
        return _Converted({**raw, self.field: specs}, sources)


def read_distribution(spec: ManifestField) -> Distribution:
    """The implementation of MPI, which determines the format of the host file and the names of environment variables."""
    return spec.get("mpiDistribution").choice(Distribution, Distribution.OPEN_MPI)


def read_slots(spec: ManifestField) -> int:
    """The number of slots per worker in the host file."""
    slots = spec.get("slotsPerWorker").optional_integer()
    return slots if slots is not None else read_legacy_size(spec).slots or 1


def read_legacy_size(spec: ManifestField) -> LegacySize:
    """What the fields of earlier versions say about the number of workers and slots."""
    gpus, units = (spec.get(name) for name in _UNITS)
    if not gpus.is_absent and not units.is_absent:
        gpus.error("must not be set together with processingUnits; remove one of them")
        return LegacySize()
    name = "processingUnits" if gpus.is_absent else "gpus"
    total, per_node = spec.get(name).optional_integer(minimum=1), spec.get(f"{name}PerNode").integer(1, minimum=1)
    if spec.get(name).is_absent:
        return LegacySize(workers=spec.get("replicas").optional_integer(), slots=_limit(spec))
    if total is None:
        return LegacySize()
    if total > per_node and total % per_node:
        spec.get(name).error(f"must be a multiple of {name}PerNode, which is {per_node}, got {total}")
    return LegacySize(workers=max(total // per_node, 1), workers_field=name, slots=min(total, per_node))


def _limit(spec: ManifestField) -> int | None:
    """The limit of the first container of the template for the processing resource."""
    resource = spec.get("processingResourceType").string()
    container = next(spec.get("template").get("spec").get("containers").items(), None)
    if container is None or not resource:
        return None
    quantity = parse_quantities({resource: container.get("resources").get("limits").get(resource).value}).get(resource)
    return None if quantity is None else int(quantity.value)


def _has_no_replicas(role: Any) -> bool:
    return role is None or (isinstance(role, dict) and role.get("replicas") is None)
