"""The pods that the master of DLRover manages: names, labels, services, environment and resources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dlop import CustomObject, FieldRef, JsonObject, Problem, SpecError
from dlop.frameworks.dlrover import scale_plan
from dlop.frameworks.dlrover.names import (
    CONTAINER,
    INDEX_LABEL,
    MASTER_PORT,
    MEMBER_APP,
    MEMBER_ROLES,
    NAME_LABEL,
    PS,
    RANK_LABEL,
    RELAUNCH_LABEL,
    RESTART_COUNT_LABEL,
    TYPE_LABEL,
    WORKER,
    label_number,
    master_service,
    member_name,
    member_port,
)
from dlop.frameworks.dlrover.schema import DEFAULT_RESTARTS, Strategy, read_fraction
from dlop.policies import Member, Members, ScaleRequest

if TYPE_CHECKING:
    from dlop.frameworks.dlrover.elasticjob import ElasticJob

_LIMITED_RESOURCES = {"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu"}
"""Keys of `resourceLimits`, and the resources that they limit."""


class ElasticJobMembers(Members["ElasticJob"]):
    """The master creates them on platform pyk8s. On platform k8s it writes scale plans."""

    roles = MEMBER_ROLES
    plan_type = scale_plan.SCALE_PLAN
    plan_model = scale_plan.ScalePlanModel
    name_label = NAME_LABEL

    def plan_owner(self, plan: CustomObject) -> str:
        spec = scale_plan.raw_spec(plan)
        owner = spec.get("ownerJob") if isinstance(spec, dict) else None
        return owner if isinstance(owner, str) else ""

    def plan_order(self, plan: CustomObject) -> int:
        """Manual plans come first, because they have no number."""
        number = plan.metadata.name.rpartition("-")[2]
        return int(number) if scale_plan.is_automatic(plan) and number.isdecimal() and len(number) < 10 else -1

    def is_automatic(self, plan: CustomObject) -> bool:
        return scale_plan.is_automatic(plan)

    def read_plan(self, job: ElasticJob, plan: CustomObject) -> ScaleRequest:
        return scale_plan.read_scale_plan(job, plan)

    def manual_plan(self, job: ElasticJob, replicas: Mapping[str, int]) -> JsonObject:
        unknown = [role for role in replicas if role != WORKER]
        if unknown:
            raise SpecError((Problem(unknown[0], "cannot be scaled; only the master scales roles other than worker"),))
        return scale_plan.manual_plan(job, replicas)

    def is_held(self, job: ElasticJob) -> bool:
        return job.is_paused

    def replaces_removed(self, job: ElasticJob) -> bool:
        return not job.uses_scale_plans

    def needs_plans(self, job: ElasticJob) -> bool:
        return job.uses_scale_plans

    def identify(self, labels: Mapping[str, str]) -> Member | None:
        role, rank = labels.get(TYPE_LABEL, ""), label_number(labels, RANK_LABEL)
        if role not in MEMBER_ROLES or rank is None:
            return None
        number, relaunches = label_number(labels, INDEX_LABEL), label_number(labels, RELAUNCH_LABEL)
        return Member(role=role, id=rank if number is None else number, rank=rank, relaunch_count=relaunches or 0)

    def pod_name(self, job: ElasticJob, role: str, member_id: int) -> str:
        return member_name(job.metadata.name, role, member_id)

    def service_name(self, job: ElasticJob, member: Member) -> str:
        return member.service or member_name(job.metadata.name, member.role, member.rank)

    def labels(self, job: ElasticJob, member: Member) -> Mapping[str, str]:
        restarts = job.spec_field.get("replicaSpecs").get(member.role).get("restartCount").integer(DEFAULT_RESTARTS)
        return {
            **self.selector(job, member),
            INDEX_LABEL: str(member.id),
            RELAUNCH_LABEL: str(member.relaunch_count),
            RESTART_COUNT_LABEL: str(restarts),
        }

    def selector(self, job: ElasticJob, member: Member) -> Mapping[str, str]:
        return {**MEMBER_APP, NAME_LABEL: job.metadata.name, TYPE_LABEL: member.role, RANK_LABEL: str(member.rank)}

    def resource_limits(self, job: ElasticJob) -> Mapping[str, str]:
        limits = job.spec_field.get("resourceLimits")
        return {_LIMITED_RESOURCES[name]: str(field.value) for name, field in limits.entries() if name in _LIMITED_RESOURCES}


def member_variables(job: ElasticJob, member: Member) -> dict[str, str | FieldRef]:
    """The environment of a member, the same that the master sets on platform pyk8s."""
    number = str(job.configured_replicas(WORKER) or job.member_record.counts.get(member.role, 0))
    rank, name = str(member.rank), job.metadata.name
    variables: dict[str, str | FieldRef] = {
        "POD_IP": FieldRef("status.podIP"),
        "NODE_IP": FieldRef("status.hostIP"),
        "ELASTIC_JOB_NAME": name,
        "JOB_UID": job.metadata.uid,
        "GRPC_ENABLE_FORK_SUPPORT": "false",
        "NODE_TYPE": member.role,
        "NODE_ID": str(member.id),
        "NODE_NUM": number,
        "NODE_RANK": rank,
    }
    if job.strategy is Strategy.ALLREDUCE:
        variables |= {"WORLD_SIZE": number, "RANK": rank, "RDZV_ENDPOINT": member_name(name, WORKER, 0)}
    variables |= {
        "WORKER_TYPE": member.role,
        "WORKER_ID": str(member.id),
        "WORKER_NUM": number,
        "WORKER_RANK": rank,
        "DLROVER_MASTER_ADDR": f"{master_service(name)}:{MASTER_PORT}",
        "DLROVER_MASTER_SERVICE_TYPE": job.metadata.annotations.get("service_type", "grpc"),
        "POD_NAME": FieldRef("metadata.name"),
        "MONITOR_ENABLED": "true",
    }
    if job.strategy is Strategy.PARAMETER_SERVER and job.member_record.hosts:
        variables["TF_CONFIG"] = json.dumps(_tf_config(job, member))
    return variables


def _tf_config(job: ElasticJob, member: Member) -> JsonObject:
    """The addresses of all pods. The master knows those of the parameter servers."""
    counts = job.member_record.counts
    cluster: JsonObject = {PS: list(job.member_record.hosts)}
    for role in (WORKER, "evaluator", "chief"):
        count = max(counts.get(role, 0), member.rank + 1 if member.role == role else 0)
        if count:
            cluster[role] = [_address(job, role, rank) for rank in range(count)]
    return {"cluster": cluster, "task": {"type": member.role, "index": member.rank}}


def _address(job: ElasticJob, role: str, rank: int) -> str:
    return f"{member_name(job.metadata.name, role, rank)}.{job.metadata.namespace}.svc:{member_port(role)}"


def member_spec(job: ElasticJob, member: Member, spec: JsonObject) -> JsonObject:
    """The pod spec of a member: resources replaced as a whole, and the priority class of its role."""
    containers = list(spec["containers"])
    index = next((number for number, container in enumerate(containers) if container["name"] == CONTAINER), 0)
    containers[index] = {**containers[index], "resources": _resources(containers[index].get("resources") or {}, member.resources)}
    priority = _priority(job, member)
    return {**spec, "containers": containers, **({"priorityClassName": priority} if priority else {})}


def _resources(template: JsonObject, planned: Mapping[str, str]) -> JsonObject:
    """The master reads the requests for CPU and memory, and cannot do without them."""
    own = {**template, "requests": {**(template.get("limits") or {}), **(template.get("requests") or {})}}
    resources = {"requests": dict(planned), "limits": dict(planned)} if planned else own
    return {**resources, "requests": {"cpu": "0", "memory": "0", **resources["requests"]}}


def _priority(job: ElasticJob, member: Member) -> str:
    """high, low or none. A fraction is the share of the members with the priority high."""
    text = job.spec_field.get("replicaSpecs").get(member.role).get("priority").string()
    fraction = read_fraction(text)
    if fraction is None:
        return text
    number = job.configured_replicas(member.role) or job.member_record.counts.get(member.role, 0)
    return "high" if member.rank < round(number * fraction) else "low"
