"""Scripts of the jobs of a chaos test: their specs, faults and edits, and the end that they imply. Drawn from a seed; pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Any

import msgspec
from chaos_features import Features, draw_flag, draw_spot_replicas, draw_start_order, draw_tensorboard
from chaos_history import ReplicaKey

from dlop.api.schema import ListSchema, RoleFieldsSchema
from dlop.api.spec import RestartPolicy, RestartScope
from dlop.frameworks.dlrover.elasticjob import Platform
from dlop.frameworks.dlrover.names import PLATFORM_ANNOTATION
from dlop.frameworks.fioravanzo.mxjob import MXJob as ChiefJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.mpijob import MPIJob
from dlop.frameworks.kubedl.schema import KubeDLSchema
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, object_decoder
from dlop.kube.types import JsonObject

RETRYABLE_EXIT_CODE = 137
PERMANENT_EXIT_CODE = 1

_TEMPLATE_FREE_GROUP = "paddlepaddle.org"
"""The group of kinds without pod templates. The kind determines the restart policies of roles."""
_FAULT_TOLERANT_ROLES = ("master",)
"""Roles of fault-tolerant jobs, which a failed trainer does not fail."""
_ALTERNATIVE_ROLES = ("Master", "TunerTracker", "TunerServer", "Tuner")
"""Optional roles that replace other ones, in kinds with more than three roles."""
_REQUIRED_FIELDS = {"mxReplicaSpecs": {"jobMode": "MXTrain"}, "replicaSpecs": {"distributionStrategy": "AllreduceStrategy"}}
"""Required fields of a spec, by the field of its roles."""
_decode_job = object_decoder(CustomObject)


class End(StrEnum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed: replica"
    BACKOFF_LIMIT = "Failed: backoff limit"
    DISRUPTION_LIMIT = "Failed: disruption limit"
    DEADLINE = "Failed: deadline"
    DELETED = "Deleted"


_WEIGHTS = {End.SUCCEEDED: 11, End.FAILED: 3, End.BACKOFF_LIMIT: 2, End.DISRUPTION_LIMIT: 2, End.DEADLINE: 1, End.DELETED: 2}
_ENDS_WITHOUT_RUN_POLICY = (End.SUCCEEDED, End.FAILED, End.DELETED)


class PodFault(StrEnum):
    FAIL = "fail"
    """The program exits with a retryable code."""
    FAIL_PERMANENTLY = "fail permanently"
    EVICT = "evict"
    """By the kubelet."""
    EVICT_BY_API = "evict by the API"
    DELETE = "delete"
    DELETE_AND_FAIL = "delete and fail"
    """At the same time, so that either can be counted."""


_DISRUPTIONS = (PodFault.EVICT, PodFault.EVICT_BY_API, PodFault.DELETE)


class JobEdit(StrEnum):
    SUSPEND = "suspend"
    RESUME = "resume"
    SCALE_UP = "scale up"
    SCALE_DOWN = "scale down"
    CHANGE_TEMPLATE = "change template"
    DELETE = "delete job"
    DELETE_FINISHED_POD = "delete a finished pod"


@dataclass(frozen=True, slots=True)
class RoleDraft:
    name: str
    replicas: int
    restart_policy: RestartPolicy


@dataclass(frozen=True, slots=True)
class SpecDraft:
    """A spec, independent of the format of the kind."""

    roles: tuple[RoleDraft, ...]
    run_policy: Mapping[str, Any] = field(default_factory=dict)
    image: str = "example.org/train:1"
    annotations: Mapping[str, str] = field(default_factory=dict)
    features: Features = field(default_factory=Features)

    def scaled(self, role: str, change: int) -> SpecDraft:
        roles = tuple(replace(each, replicas=each.replicas + change) if each.name == role else each for each in self.roles)
        return replace(self, roles=roles)

    def with_policy(self, **fields: Any) -> SpecDraft:
        return replace(self, run_policy={**self.run_policy, **fields})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScript:
    name: str
    kind: type[DLJob]
    draft: SpecDraft
    end: End
    decisive: ReplicaKey
    """The replica that succeeds last and without which the job cannot succeed."""
    culprit: ReplicaKey | None
    """The replica that repeats `culprit_fault` until the job has failed."""
    culprit_fault: PodFault | None
    faults: Mapping[ReplicaKey, tuple[PodFault, ...]]
    """What happens to the pods of a replica, in order."""
    edits: tuple[tuple[float, JobEdit], ...]
    """With seconds since the creation of the job."""
    scaled_role: str
    scope: RestartScope

    @property
    def title(self) -> str:
        return f"{self.kind.job_type.kind}.{self.kind.job_type.group} {self.name}"

    @property
    def annotations(self) -> dict[str, str]:
        return {**self.draft.annotations, **self.draft.features.annotations()}

    @property
    def writes_plans(self) -> bool:
        """Whether the master of the job writes scale plans. Otherwise, it creates the members itself."""
        return self.draft.annotations.get(PLATFORM_ANNOTATION) == Platform.SCALE_PLANS

    def most_members(self, role: str) -> int:
        """The largest number of members that the master wants at any time."""
        grows = role == self.scaled_role and any(edit is JobEdit.SCALE_UP for _, edit in self.edits)
        return member_sizes(self.kind, self.draft)[role] + (1 if grows else 0)

    def body(self, namespace: str) -> JsonObject:
        job_type = self.kind.job_type
        metadata = {"name": self.name, "namespace": namespace, "annotations": self.annotations}
        return {"apiVersion": job_type.api_version, "kind": job_type.kind, "metadata": metadata, "spec": spec_of(self.kind, self.draft)}


def draw_scripts(kinds: Sequence[type[DLJob]], *, seed: int) -> Iterator[JobScript]:
    """An endless sequence of scripts. Every kind occurs once in each round."""
    rng = Random(f"{seed}/kinds")
    for number in itertools.count():
        if number % len(kinds) == 0:
            order = rng.sample(kinds, len(kinds))
        yield draw_script(order[number % len(kinds)], name=f"job-{number}", rng=Random(f"{seed}/{number}"))


def draw_script(kind: type[DLJob], *, name: str, rng: Random) -> JobScript:
    end = _draw_end(kind, rng)
    scope = rng.choice((RestartScope.REPLICA, RestartScope.REPLICA, RestartScope.ROLE, RestartScope.JOB))
    if not has_run_policy(kind):
        scope = RestartScope.REPLICA
    if kind.members is not None:
        scope = kind.schema.restart_scope
    draft = SpecDraft(_draw_roles(kind, rng), _draw_run_policy(kind, end, scope, rng), annotations=_draw_annotations(kind, rng))
    decisive = find_decisive(kind, draft)
    culprit, culprit_fault = _draw_culprit(kind, end, draft, decisive, rng)
    if is_template_free(kind):
        draft = _with_own_policies(kind, draft)
    elif culprit is not None:
        draft = _with_culprit_policy(draft, culprit, culprit_fault, rng)
    scaled_role = next((role.name for role in reversed(draft.roles) if _is_scalable(kind, role)), "")
    on_demand = culprit if end is End.DISRUPTION_LIMIT else None
    draft = replace(
        draft, features=_draw_features(kind, draft, end, decisive=decisive, on_demand=on_demand, scaled_role=scaled_role, rng=rng)
    )
    return JobScript(
        name=name,
        kind=kind,
        draft=draft,
        end=end,
        decisive=decisive,
        culprit=culprit,
        culprit_fault=culprit_fault,
        faults=_draw_faults(kind, draft, decisive, scope, rng),
        edits=_draw_edits(kind, end, scaled_role, rng),
        scaled_role=scaled_role,
        scope=scope,
    )


def has_run_policy(kind: type[DLJob]) -> bool:
    return bool(kind.schema.field) or isinstance(kind.schema, RoleFieldsSchema)


def has_role_fields(kind: type[DLJob]) -> bool:
    """Whether the spec has an object by role that accepts the fields of all kinds."""
    return bool(kind.schema.field) and not isinstance(kind.schema, ListSchema | RoleFieldsSchema) and not is_template_free(kind)


def is_template_free(kind: type[DLJob]) -> bool:
    return kind.job_type.group == _TEMPLATE_FREE_GROUP


def member_sizes(kind: type[DLJob], draft: SpecDraft) -> dict[str, int]:
    """The number of members by role, which the master of the job creates or asks for; empty for kinds without members."""
    return {} if kind.members is None else {role.name: role.replicas for role in draft.roles if role.name in kind.members.roles}


def _parse(kind: type[DLJob], draft: SpecDraft) -> DLJob:
    return kind(_decode_job(msgspec.json.encode({"metadata": {"name": "job"}, "spec": spec_of(kind, draft)})))


def find_decisive(kind: type[DLJob], draft: SpecDraft) -> ReplicaKey:
    job = _parse(kind, draft)
    return job.chief if isinstance(job, ChiefJob) else (job.lifecycle.required_roles(job)[0], 0)


def finishing_roles(kind: type[DLJob], draft: SpecDraft) -> frozenset[str]:
    """Roles whose programs end by themselves. The others run until the job has ended."""
    job = _parse(kind, draft)
    always = {role.name for role in draft.roles if role.restart_policy is RestartPolicy.ALWAYS}
    return frozenset(job.lifecycle.required_roles(job)) - always


def spec_of(kind: type[DLJob], draft: SpecDraft) -> Any:
    """The spec in the format of the kind."""
    schema = kind.schema
    run_policy = {**draft.run_policy, **draft.features.run_policy()}
    if is_template_free(kind):
        sizes = {role.name: {"min-instance": role.replicas} for role in draft.roles}
        return {"image": draft.image, **sizes, "runPolicy": run_policy}
    if isinstance(schema, RoleFieldsSchema):
        return {**{role.name: _role_with_policy(kind, role, draft.image) for role in draft.roles}, "runPolicy": run_policy}
    if not isinstance(schema, ListSchema):
        roles = {
            role.name: _role(kind, role, draft.image)
            | {"restartPolicy": role.restart_policy.value, **draft.features.role_fields(role.name)}
            for role in draft.roles
        }
        return {schema.field: roles, "runPolicy": run_policy, **_REQUIRED_FIELDS.get(schema.field, {})}
    entries = [{schema.type_field: role.name, **_role_with_policy(kind, role, draft.image)} for role in draft.roles]
    return {schema.field: entries, "runPolicy": run_policy} if schema.field else entries


def _role(kind: type[DLJob], role: RoleDraft, image: str) -> JsonObject:
    container = {"name": kind.container_properties.name or "main", "image": image, "command": ["train"]}
    return {"replicas": role.replicas, "template": {"spec": {"containers": [container]}}}


def _role_with_policy(kind: type[DLJob], role: RoleDraft, image: str) -> JsonObject:
    """A role whose restart policy is the one in its pod template."""
    entry = _role(kind, role, image)
    entry["template"]["spec"]["restartPolicy"] = role.restart_policy.value
    return entry


# --- drawing ---------------------------------------------------------------------------------------------------------


def _draw_end(kind: type[DLJob], rng: Random) -> End:
    ends = list(_WEIGHTS) if has_run_policy(kind) else list(_ENDS_WITHOUT_RUN_POLICY)
    return rng.choices(ends, [_WEIGHTS[end] for end in ends])[0]


def _draw_roles(kind: type[DLJob], rng: Random) -> tuple[RoleDraft, ...]:
    types = [role for role in kind.replica_types if len(kind.replica_types) <= 3 or role.name not in _ALTERNATIVE_ROLES]
    types = [role for role in types if role.name not in _FAULT_TOLERANT_ROLES]
    chosen = [role for role in types if role.required or _is_master(kind, role.name) or role.name.lower() == "worker" or rng.random() < 0.5]
    policies = (RestartPolicy.ON_FAILURE, RestartPolicy.EXIT_CODE, RestartPolicy.EXIT_CODE, RestartPolicy.NEVER)
    return tuple(RoleDraft(role.name, 1 if role.maximum == 1 else rng.randint(1, 3), rng.choice(policies)) for role in chosen)


def _is_master(kind: type[DLJob], role: str) -> bool:
    """Whether the role manages the members of a job."""
    return kind.members is not None and role not in kind.members.roles


def _draw_annotations(kind: type[DLJob], rng: Random) -> dict[str, str]:
    return {} if kind.members is None else {PLATFORM_ANNOTATION: rng.choice(list(Platform)).value}


def _draw_run_policy(kind: type[DLJob], end: End, scope: RestartScope, rng: Random) -> dict[str, Any]:
    if not has_run_policy(kind):
        return {}
    clean_pod_policies = ("Running", "All", "None") if kind.members is None else ("Running", "All")  # members do not end by themselves
    policy: dict[str, Any] = {"restartScope": scope.value, "cleanPodPolicy": rng.choice(clean_pod_policies), "suspend": False}
    if rng.random() < 0.2 or (isinstance(kind.schema, KubeDLSchema) and kind.schema.default_ttl_seconds is not None):
        policy["ttlSecondsAfterFinished"] = 3  # a default would delete the job while the test is at rest
    limits = {
        End.BACKOFF_LIMIT: {"backoffLimit": rng.randint(0, 1)},
        End.DISRUPTION_LIMIT: {"disruptionLimit": rng.randint(0, 1)},
        End.DEADLINE: {"activeDeadlineSeconds": rng.randint(3, 6)},
        End.SUCCEEDED: {"backoffLimit": 20, "disruptionLimit": 20},
    }
    return policy | limits.get(end, {})


def _draw_culprit(
    kind: type[DLJob], end: End, draft: SpecDraft, decisive: ReplicaKey, rng: Random
) -> tuple[ReplicaKey | None, PodFault | None]:
    faults = {End.FAILED: PodFault.FAIL_PERMANENTLY, End.BACKOFF_LIMIT: PodFault.FAIL, End.DISRUPTION_LIMIT: PodFault.EVICT}
    if end not in faults:
        return None, None
    # Index 0 is never removed by scaling.
    is_decisive = issubclass(kind, (ChiefJob, MarsJob, MPIJob)) or is_template_free(kind) or kind.members is not None
    culprit = decisive if is_decisive else (rng.choice(draft.roles).name, 0)
    return culprit, faults[end]


def _with_own_policies(kind: type[DLJob], draft: SpecDraft) -> SpecDraft:
    """The draft with the restart policies that the kind determines."""
    policies = {role.name: role.restart_policy for role in _parse(kind, draft).spec.roles}
    return replace(draft, roles=tuple(replace(role, restart_policy=policies[role.name]) for role in draft.roles))


def _with_culprit_policy(draft: SpecDraft, culprit: ReplicaKey, fault: PodFault | None, rng: Random) -> SpecDraft:
    """The draft with a restart policy under which the fault has its effect."""
    policies = {
        PodFault.FAIL_PERMANENTLY: (RestartPolicy.NEVER, RestartPolicy.EXIT_CODE),
        PodFault.FAIL: (RestartPolicy.ON_FAILURE, RestartPolicy.EXIT_CODE),
    }
    if fault not in policies:
        return draft
    policy = rng.choice(policies[fault])
    roles = tuple(replace(role, restart_policy=policy) if role.name == culprit[0] else role for role in draft.roles)
    return replace(draft, roles=roles)


def _draw_features(
    kind: type[DLJob],
    draft: SpecDraft,
    end: End,
    *,
    decisive: ReplicaKey,
    on_demand: ReplicaKey | None,
    scaled_role: str,
    rng: Random,
) -> Features:
    """Features with which the job still reaches its end. `on_demand` is a replica that must not be a spot replica."""
    if not has_run_policy(kind):
        return Features()
    if kind.members is not None:
        return Features(code_sync=draw_flag(rng), tensorboard=draw_tensorboard(rng))
    roles = {role.name: role.replicas for role in draft.roles}
    completing = finishing_roles(kind, draft) - {decisive[0]} if end is End.SUCCEEDED else frozenset[str]()
    # A scale-down must leave enough replicas.
    spot = {
        role: size - (1 if role == scaled_role else 0) - (1 if on_demand is not None and role == on_demand[0] else 0)
        for role, size in roles.items()
    }
    return Features(
        start_order=draw_start_order(roles, completing=completing, rng=rng),
        spot=draw_spot_replicas(spot, rng=rng),
        host_network=draw_flag(rng) and not kind.schema.no_host_network,
        code_sync=draw_flag(rng),
        tensorboard=draw_tensorboard(rng),
        has_role_fields=has_role_fields(kind) and rng.random() < 0.7,
    )


def _draw_faults(
    kind: type[DLJob], draft: SpecDraft, decisive: ReplicaKey, scope: RestartScope, rng: Random
) -> dict[ReplicaKey, tuple[PodFault, ...]]:
    """At most two faults per restart unit, because each further one delays the job by the back-off."""
    replicas = [(role, index) for role in draft.roles for index in range(role.replicas)]
    faults: dict[ReplicaKey, tuple[PodFault, ...]] = {}
    for _ in range(rng.randint(0, 4 if scope is RestartScope.REPLICA else 2)):
        role, index = rng.choice(replicas)
        key = (role.name, index)
        if len(faults.get(key, ())) < 2:
            retried = role.restart_policy is not RestartPolicy.NEVER or (issubclass(kind, ChiefJob) and key != decisive)
            choices = (*_DISRUPTIONS, PodFault.FAIL, PodFault.FAIL, PodFault.FAIL, PodFault.DELETE_AND_FAIL) if retried else _DISRUPTIONS
            faults[key] = (*faults.get(key, ()), rng.choice(choices))
    return faults


def _draw_edits(kind: type[DLJob], end: End, scaled_role: str, rng: Random) -> tuple[tuple[float, JobEdit], ...]:
    if end is End.DELETED:
        return ((rng.uniform(0.2, 6.0), JobEdit.DELETE),)
    choices = [JobEdit.CHANGE_TEMPLATE, JobEdit.DELETE_FINISHED_POD]
    choices += [JobEdit.SUSPEND] * 2 if kind.schema.suspend_path is not None else []
    choices += [JobEdit.SCALE_UP, JobEdit.SCALE_DOWN] if scaled_role else []
    edits: list[tuple[float, JobEdit]] = []
    seconds = 0.0
    for edit in rng.sample(choices, rng.randint(0, 2)):
        seconds += rng.uniform(0.3, 3.0)
        edits.append((seconds, edit))
        if edit is JobEdit.SUSPEND:
            seconds += rng.uniform(0.1, 2.5)
            edits.append((seconds, JobEdit.RESUME))
    return tuple(edits)


def _is_scalable(kind: type[DLJob], draft: RoleDraft) -> bool:
    role = next(role for role in kind.replica_types if role.name == draft.name)
    return role.maximum != 1
