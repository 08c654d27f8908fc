"""The spec of an ElasticJob."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from dlop import (
    ApiModel,
    Count,
    DLJob,
    JobSpec,
    JsonObject,
    ManifestField,
    OpenModel,
    PodTemplate,
    Replicas,
    RestartScope,
    RoleSpec,
    RunPolicyModel,
    Schema,
)
from dlop.frameworks.dlrover.master_template import read_master_template
from dlop.frameworks.dlrover.names import CONTAINER, MASTER, PS, WORKER
from dlop.policies import parse_quantities

DEFAULT_RESTARTS = 3
"""Restarts of the master after failures, if the spec has no `restartCount` for it."""
_PRIORITIES = ("", "high", "low")


class Strategy(StrEnum):
    """How the pods of a job train together."""

    PARAMETER_SERVER = "ParameterServerStrategy"
    ALLREDUCE = "AllreduceStrategy"
    CUSTOM = "CustomStrategy"


class ElasticReplicaModel(ApiModel):
    """One role of an ElasticJob."""

    replicas: Replicas | None = None
    """Number of pods. With 0, the master decides."""
    template: PodTemplate
    """Pod template."""
    restart_policy: str | None = None
    """Has no effect. The master reads the restart policy of the pod template: Always restarts workers after all failures."""
    restart_count: Count | None = None
    """How often a pod is replaced after failures. Defaults to 3."""
    auto_scale: bool | None = None
    """Whether the master may change the number of pods and their resources. Defaults to true."""
    restart_timeout: Count | None = None
    """Seconds until the master gives up a restart."""
    priority: str | None = None
    """Priority class: high, low, or the fraction of the pods with priority high, such as 0.5."""
    batch_scheduler: Annotated[str | None, Field(alias="BatchScheduler")] = None
    """Has no effect."""
    critical_nodes: str | None = None
    """Pods whose failure fails the job: all, or pairs of index and number of failures."""


class MasterContainerModel(OpenModel):
    """A container of the master. Image and command have defaults."""

    name: str | None = None
    image: str | None = None


class MasterPodSpecModel(OpenModel):
    """Pod spec of the master."""

    containers: Annotated[list[MasterContainerModel], Field(min_length=1)]


class MasterTemplateModel(OpenModel):
    """Pod template of the master."""

    spec: MasterPodSpecModel


class MasterModel(ApiModel):
    """The master."""

    replicas: Annotated[int, Field(ge=0, le=1)] | None = None
    """There is always one master."""
    template: MasterTemplateModel
    """Pod template. Image and command default to those of the operator."""
    restart_policy: str | None = None
    """Has no effect."""
    restart_count: Count | None = None
    """How often the master is replaced after failures. Defaults to 3."""
    auto_scale: bool | None = None
    """Has no effect."""
    restart_timeout: Count | None = None
    """Has no effect."""
    priority: str | None = None
    """Has no effect."""
    batch_scheduler: Annotated[str | None, Field(alias="BatchScheduler")] = None
    """Has no effect."""


class ReplicaSpecsModel(ApiModel):
    """The roles of the job."""

    worker: ElasticReplicaModel
    """Workers."""
    ps: ElasticReplicaModel | None = None
    """Parameter servers."""
    chief: ElasticReplicaModel | None = None
    """Chief. Its template defaults to that of the workers."""
    evaluator: ElasticReplicaModel | None = None
    """Evaluators. Their template defaults to that of the workers."""
    dlrover_master: Annotated[MasterModel | None, Field(alias=MASTER)] = None
    """The master, which creates the other pods or asks for them."""


class ElasticJobModel(ApiModel):
    """Specification of an ElasticJob."""

    distribution_strategy: Literal["", "ParameterServerStrategy", "AllreduceStrategy", "CustomStrategy"] | None = None
    """How the pods train together: ParameterServerStrategy, AllreduceStrategy or CustomStrategy. Defaults to ParameterServerStrategy."""
    resource_limits: dict[str, int | str] | None = None
    """Requests of all pods that scale plans must not exceed: cpu, memory and gpu."""
    optimize_mode: str | None = None
    """How the master chooses resources. With cluster, it asks the Brain service."""
    brain_service: str | None = None
    """Address of the Brain service."""
    replica_specs: ReplicaSpecsModel
    """The roles of the job."""
    envs: dict[str, JsonObject] | None = None
    """Has no effect."""
    suspend: bool | None = None
    """Whether no more pods are created. Pods that run are kept. runPolicy.suspend deletes all pods."""
    enable_elastic_scheduling: bool | None = None
    """Has no effect."""
    enable_dynamic_sharding: bool | None = None
    """Has no effect."""
    run_policy: RunPolicyModel | None = None
    """Run policy of the job."""


@dataclass(frozen=True, kw_only=True)
class ElasticJobSchema(Schema):
    """Only the master is a replica of the spec. The other roles have members, which the master or scale plans ask for."""

    no_host_network: str = "the ports of DLRover are fixed; set hostNetwork in the pod templates and let no two pods run on one node"

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        job_spec = super().read(spec, kind)
        _check_strategy(spec)
        _check_limits(spec.get("resourceLimits"))
        for name in _fields_without_effect(spec):
            spec.get(name).warning("has no effect; remove it")
        restarts = spec.get("replicaSpecs").get(MASTER).get("restartCount").integer(DEFAULT_RESTARTS)
        limit = restarts if job_spec.run_policy.backoff_limit is None else job_spec.run_policy.backoff_limit
        # A new master has a name of its own, with the number of the attempt of its role.
        policy = replace(job_spec.run_policy, backoff_limit=limit, restart_scope=RestartScope.ROLE)
        return replace(job_spec, run_policy=policy)

    def read_roles(self, spec: ManifestField, kind: type[DLJob]) -> tuple[RoleSpec, ...]:
        """The template of the master may be incomplete. Chief and evaluators use the template of the workers by default."""
        specs = spec.get(self.field)
        raw = {name: value for name, value in specs.object().items() if name != MASTER}
        others = ManifestField(spec.path, {**spec.object(), self.field: raw}, spec.problems, spec.warnings)
        roles = {role.name: replace(role, replicas=0) for role in super().read_roles(others, kind)}
        for role in roles:
            _check_priority(specs.get(role).get("priority"))
        if WORKER in roles:
            roles = {"chief": replace(roles[WORKER], name="chief"), "evaluator": replace(roles[WORKER], name="evaluator"), **roles}
        roles[MASTER] = RoleSpec(name=MASTER, replicas=1, template=read_master_template(specs.get(MASTER)), container=CONTAINER)
        return tuple(roles[role.name] for role in kind.replica_types if role.name in roles)

    def replicas_path(self, spec: ManifestField, role: str) -> None:
        """Scale plans scale the members, not the spec."""
        return


def read_strategy(spec: ManifestField) -> Strategy:
    return spec.get("distributionStrategy").choice(Strategy, Strategy.PARAMETER_SERVER)


def _check_strategy(spec: ManifestField) -> None:
    strategy, roles = read_strategy(spec), spec.get("replicaSpecs")
    if spec.get("distributionStrategy").value not in (None, "", *Strategy):
        return  # reported already
    required = (WORKER,) if strategy is Strategy.ALLREDUCE else (WORKER, PS)
    for role in required:
        if roles.get(role).is_absent:
            roles.get(role).error(f"is missing; a job with {strategy} needs it")


def _check_limits(field: ManifestField) -> None:
    field.object()
    for name, value in field.entries():
        if not parse_quantities({name: value.value}):
            value.error("is not a quantity; use a value like 500m or 2Gi")


def _check_priority(field: ManifestField) -> None:
    text = field.string()
    if text in _PRIORITIES or read_fraction(text) is not None:
        return
    field.error(f"must be high, low or a fraction above 0 and up to 1, got {text!r:.60}")


def read_fraction(text: str) -> float | None:
    """A priority that is a fraction; None if it is not one."""
    try:
        fraction = float(text)
    except ValueError:
        return None
    return fraction if 0 < fraction <= 1 else None


def _fields_without_effect(spec: ManifestField) -> Iterator[str]:
    return (name for name in ("envs", "enableElasticScheduling", "enableDynamicSharding") if not spec.get(name).is_absent)
