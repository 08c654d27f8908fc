"""The spec of a PaddleJob: its roles, how the pods reach each other, and when they are cleaned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from dlop import (
    ApiModel,
    Count,
    DLJob,
    ElasticRange,
    JobSpec,
    JsonObject,
    ManifestField,
    Replicas,
    ReplicaType,
    RestartedPodTemplate,
    RestartPolicy,
    RestartScope,
    RoleFieldsSchema,
    RoleSpec,
    RunPolicyModel,
)


class Intranet(StrEnum):
    """How the pods of a job address each other."""

    POD_IP = "PodIP"
    SERVICE = "Service"
    HOST = "Host"


class CleanPolicy(StrEnum):
    """When the pods of a finished job are deleted."""

    ALWAYS = "Always"
    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ON_COMPLETION = "OnCompletion"


PORTS = 20
"""Number of ports that each pod may use, from its first one."""
_MISSPELT_POLICIES = {"OnFailed": CleanPolicy.ON_FAILURE}
"""Spellings in published examples, which the old operator ignored."""


class PaddleRoleModel(ApiModel):
    """One role of a PaddleJob."""

    replicas: Replicas
    """Number of pods."""
    requests: Count | None = None
    """Minimum number of elastic workers, with runPolicy.autoscale."""
    limits: Count | None = None
    """Maximum number of elastic workers, with runPolicy.autoscale."""
    template: RestartedPodTemplate
    """Pod template. The first container runs PaddlePaddle."""


class PaddleSchedulingPolicy(ApiModel):
    """Options of gang scheduling and queues."""

    min_available: Count | None = None
    """Number of pods that must be scheduled together. Defaults to all pods."""
    queue: str | None = None
    """Queue of the scheduler or of Kueue."""
    priority_class: str | None = None
    """Priority class of the PodGroup, or in a queue of Kueue."""
    min_resources: dict[str, int | str] | None = None
    """Resources that these pods need in total. Defaults to the sum of their requests."""


class PaddleJobModel(ApiModel):
    """Specification of a PaddleJob."""

    ps: PaddleRoleModel | None = None
    """Parameter servers."""
    worker: PaddleRoleModel | None = None
    """Workers."""
    heter: PaddleRoleModel | None = None
    """Heterogeneous workers."""
    intranet: str | None = None
    """How the pods address each other: PodIP, Service or Host. Defaults to PodIP."""
    clean_pod_policy: str | None = None
    """When the pods of a finished job are deleted: Always, Never, OnFailure or OnCompletion. Defaults to OnCompletion."""
    clean_policy: str | None = None
    """Misspelling of cleanPodPolicy in published examples."""
    with_gloo: Count | None = None
    """Whether Gloo is used: 0 for no, 1 for workers, 2 for workers and servers."""
    elastic: Count | None = None
    """Any value lets the workers be scaled without a restart of the job."""
    scheduling_policy: PaddleSchedulingPolicy | None = None
    """Options of gang scheduling and queues."""
    sample_set_ref: JsonObject | None = None
    """Has no effect."""
    run_policy: RunPolicyModel | None = None
    """Run policy of the job."""


@dataclass(frozen=True, kw_only=True)
class PaddleJobSchema(RoleFieldsSchema):
    """The restart policy of a role is the one in its pod template."""

    no_host_network: str = "set spec.intranet to Host instead"

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        job_spec = super().read(spec, kind)
        intranet = read_intranet(spec)
        roles = tuple(replace(role, restart_policy=_restart_policy(spec, role)) for role in job_spec.roles)
        _warn(spec)
        if is_elastic(spec) and spec.get("worker").is_absent:
            spec.get("worker").error("is missing; a job with elastic needs workers")
        job_spec = replace(job_spec, host_ports=PORTS if intranet is Intranet.HOST else 0)
        # The environment of the peers has the address of a lost pod. Only the name of a service outlives it.
        if intranet is not Intranet.SERVICE and not is_elastic(spec) and spec.get("runPolicy").get("restartScope").is_absent:
            return replace(job_spec, roles=roles, run_policy=replace(job_spec.run_policy, restart_scope=RestartScope.JOB))
        return replace(job_spec, roles=roles)

    def elastic_ranges(self, spec: ManifestField) -> Mapping[str, ElasticRange]:
        """Elastic workers are scaled between their `requests` and `limits`."""
        worker = spec.get("worker")
        minimum, maximum = worker.get("requests").integer(1), worker.get("limits").integer(0)
        if not is_elastic(spec) or minimum >= maximum:
            return {}
        return {"worker": ElasticRange(minimum=minimum, maximum=maximum, path=worker.get("limits").path)}

    def read_role(self, field: ManifestField, role: ReplicaType, kind: type[DLJob]) -> RoleSpec:
        if field.get("replicas").is_absent:
            field.get("replicas").error("is missing")
        return super().read_role(field, role, kind)


def read_intranet(spec: ManifestField) -> Intranet:
    """An unknown value means PodIP, as for the old operator."""
    value = spec.get("intranet").string()
    return Intranet(value) if value in list(Intranet) else Intranet.POD_IP


def read_clean_policy(spec: ManifestField) -> CleanPolicy:
    """An unknown value means Never, as for the old operator."""
    value = spec.get("cleanPodPolicy").string() or spec.get("cleanPolicy").string()
    if not value:
        return CleanPolicy.ON_COMPLETION
    return CleanPolicy(value) if value in list(CleanPolicy) else _MISSPELT_POLICIES.get(value, CleanPolicy.NEVER)


def is_elastic(spec: ManifestField) -> bool:
    """Any value enables it, even 0."""
    return not spec.get("elastic").is_absent


def _restart_policy(spec: ManifestField, role: RoleSpec) -> RestartPolicy:
    field = spec.get(role.name).get("template").get("spec").get("restartPolicy")
    if is_elastic(spec):
        return RestartPolicy.ON_FAILURE
    is_restarted = role.name == "worker" and read_intranet(spec) is Intranet.SERVICE
    return field.choice(RestartPolicy, RestartPolicy.ON_FAILURE if is_restarted else RestartPolicy.NEVER)


def _warn(spec: ManifestField) -> None:
    """Warn about values that do not do what they say."""
    intranet, policy, misspelt = spec.get("intranet"), spec.get("cleanPodPolicy"), spec.get("cleanPolicy")
    if intranet.string() not in ("", *Intranet):
        intranet.warning(f"{intranet.value!r:.60} is unknown, so PodIP is used; use one of {', '.join(Intranet)}")
    if policy.string() not in ("", *CleanPolicy):
        policy.warning(f"{policy.value!r:.60} is unknown, so {read_clean_policy(spec)} is used; use one of {', '.join(CleanPolicy)}")
    if misspelt.string():
        misspelt.warning(f"is read as cleanPodPolicy, with the result {read_clean_policy(spec)}; rename the field")
    if not spec.get("sampleSetRef").is_absent:
        spec.get("sampleSetRef").warning("has no effect, because sample sets are not supported; mount a volume in the pod templates")
    if spec.get("withGloo").integer(0) and (is_elastic(spec) or spec.get("ps").is_absent):
        spec.get("withGloo").warning("has no effect, because the job has no parameter servers, or is elastic; remove it")
    for role in ("ps", "worker", "heter"):
        is_scaled = role == "worker" and is_elastic(spec) and spec.get("runPolicy").get("autoscale").boolean()
        for name in ("requests", "limits"):
            if not is_scaled and not spec.get(role).get(name).is_absent:
                spec.get(role).get(name).warning("has no effect; the number of pods is set by replicas")
