"""MXJob of fioravanzo.org/v1alpha1: MXNet with one scheduler, servers and workers.

The chief, by default the scheduler, determines the result: exit code 0 is success, exit codes 1 to 127 and OOMKilled are permanent
failures, and the chief is restarted after any other exit code. All other replicas are always restarted. Names contain a runtime ID,
so that a recreated job does not conflict with the pods of the earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic

from dlop import (
    AGE,
    Blocked,
    Column,
    ContainerProperties,
    Count,
    DLJob,
    JobResult,
    JobSpec,
    JobType,
    JsonObject,
    LastFailure,
    ListSchema,
    ManifestField,
    OpenModel,
    Outcome,
    Phase,
    Port,
    Progress,
    Replica,
    Replicas,
    ReplicaState,
    ReplicaType,
    RestartedPodTemplate,
    RestartPolicy,
    RoleProgress,
    RoleSpec,
    RunPolicyModel,
    cached_property,
    rule,
    with_rules,
)
from dlop.frameworks.fioravanzo.accelerators import MXJobFlags, with_accelerators
from dlop.policies import Lifecycle, Naming, Status, dns_label, label_value, ps_lite_variables, short_hash

_RUNTIME_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?")
_STATES = {ReplicaState.MISSING: "Unknown", ReplicaState.SUCCEEDED: "Succeeded", ReplicaState.FAILED: "Failed"}
_PHASES = {
    Phase.CREATED: ("Creating", "Running"),
    Phase.RUNNING: ("Running", "Running"),
    Phase.RESTARTING: ("Running", "Running"),
    Phase.SUSPENDED: ("Suspended", "Unknown"),
    Phase.SUCCEEDED: ("Done", "Succeeded"),
    Phase.FAILED: ("Done", "Failed"),
    Phase.INVALID: ("Failed", "Failed"),
}


RuntimeId = Annotated[str, pydantic.Field(pattern=f"^({_RUNTIME_ID.pattern})?$")]

# CEL expressions. An entry without a type is the scheduler.
_ROLE_OF_R = "(has(r.mxReplicaType) && r.mxReplicaType != '' ? r.mxReplicaType : 'SCHEDULER')"
_CHIEF = "self.terminationPolicy.chief"
_CHIEF_ROLE = f"(has({_CHIEF}.replicaName) && {_CHIEF}.replicaName != '' ? {_CHIEF}.replicaName : 'SCHEDULER')"
_CHIEF_INDEX = f"(has({_CHIEF}.replicaIndex) ? {_CHIEF}.replicaIndex : 0)"


class ReplicaSpecModel(OpenModel):
    """One role of an MXJob."""

    replicas: Replicas | None = None
    """Number of replicas. Defaults to 1."""
    mx_replica_type: Literal["", "SCHEDULER", "SERVER", "WORKER"] | None = None
    """Role: SCHEDULER, SERVER or WORKER. Defaults to SCHEDULER."""
    mx_port: Port | None = None
    """Port of the replicas. Defaults to 9000."""
    template: RestartedPodTemplate
    """Pod template. The container that runs MXNet must be named mxnet."""


class ChiefModel(OpenModel):
    """Replica that determines success or failure of the job."""

    replica_name: Annotated[str, pydantic.Field(max_length=63)] | None = None
    """Role of the chief. Defaults to SCHEDULER."""
    replica_index: Count | None = None
    """Index of the chief within its role. Defaults to 0."""


class TerminationPolicyModel(OpenModel):
    """Termination policy of the job."""

    chief: ChiefModel
    """Replica that determines success or failure of the job."""


class MXJobModel(OpenModel):
    """Specification of an MXJob."""

    model_config = pydantic.ConfigDict(
        json_schema_extra=with_rules(
            rule(
                f"!has(self.terminationPolicy) || self.replicaSpecs.exists(r, {_ROLE_OF_R} == {_CHIEF_ROLE}"
                f" && {_CHIEF_INDEX} < (has(r.replicas) ? r.replicas : 1))",
                "terminationPolicy.chief must refer to an existing replica",
            )
        )
    )

    replica_specs: Annotated[
        list[ReplicaSpecModel],
        pydantic.Field(
            max_length=3,
            json_schema_extra=with_rules(
                rule(f"self.exists_one(r, {_ROLE_OF_R} == 'SCHEDULER')", "must have exactly one entry of type SCHEDULER"),
                rule(
                    f"self.all(r, {_ROLE_OF_R} != 'SCHEDULER' || !has(r.replicas) || r.replicas == 1)",
                    "replicas of SCHEDULER must be exactly 1",
                ),
                rule(
                    f"self.filter(r, {_ROLE_OF_R} == 'SERVER').size() <= 1 && self.filter(r, {_ROLE_OF_R} == 'WORKER').size() <= 1",
                    "must have at most one entry for each of SERVER and WORKER",
                ),
                rule(
                    "self.all(r, r.template.spec.containers.exists(c, c.name == 'mxnet'))",
                    "each template must have a container named mxnet",
                ),
            ),
        ),
    ]
    """Replica specs, one entry per role."""
    termination_policy: TerminationPolicyModel | None = None
    """Termination policy. By default, the scheduler is the chief."""
    scheduler_name: str | None = None
    """Kubernetes scheduler of all pods. Defaults to the scheduler in the pod templates."""
    runtime_id: Annotated[RuntimeId | None, pydantic.Field(alias="RuntimeId")] = None
    """Part of the names of pods and services that distinguishes this job from earlier ones of the same name. Generated by default."""
    mx_image: str | None = None
    """Deprecated: ignored."""
    run_policy: RunPolicyModel | None = None
    """Run policy of the job."""


@dataclass(frozen=True, kw_only=True)
class MXJobSchema(ListSchema):
    """Also validates the chief and the runtime ID."""

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        job_spec = super().read(spec, kind)
        if (runtime_id := _read_runtime_id(spec)) and not _RUNTIME_ID.fullmatch(runtime_id):
            spec.get("RuntimeId").error("must be at most 20 lower-case letters, digits and dashes, because it is part of names")
        spec.get("schedulerName").string()
        if not spec.get("terminationPolicy").is_absent and spec.get("terminationPolicy").get("chief").is_absent:
            spec.get("terminationPolicy").error("must have a chief, such as {replicaName: SCHEDULER, replicaIndex: 0}, or be omitted")
        _check_chief(spec, job_spec)
        return job_spec


_SCHEMA = MXJobSchema(
    model=MXJobModel,
    type_field="mxReplicaType",
    default_type="SCHEDULER",
    port_field="mxPort",
    columns=(Column("Phase", ".status.phase"), Column("State", ".status.state"), AGE),
)


class RuntimeIdNaming(Naming["MXJob"]):
    """Names contain the runtime ID: `<job, truncated to 40>-<type>-<runtime id>-<index>`."""

    def pod_name(self, job: MXJob, role: RoleSpec, index: int) -> str:
        return dns_label(job.metadata.name[:40], f"-{role.name.lower()}-{job.runtime_id}-{index}")

    def role_labels(self, job: MXJob, role: RoleSpec) -> Mapping[str, str]:
        job_name = label_value(job.metadata.name)
        return {"fioravanzo.org": "", "job_type": role.name, "runtime_id": job.runtime_id, "mx_job_name": job_name}

    def labels(self, job: MXJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {**self.role_labels(job, role), "task_index": str(index)}


class ChiefLifecycle(Lifecycle["MXJob"]):
    """The chief alone determines whether the job runs, succeeds and fails."""

    def pod_restart_policy(self, job: MXJob, role: RoleSpec, index: int) -> RestartPolicy:
        """The kubelet must not restart the chief, because its exit code decides."""
        return RestartPolicy.NEVER if (role.name, index) == job.chief else super().pod_restart_policy(job, role, index)

    def is_final_failure(self, job: MXJob, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        """Only a failure of the chief can be final. OOMKilled is final because it would happen again."""
        if (role.name, index) != job.chief:
            return False
        return failure.reason == "OOMKilled" or (failure.exit_code is not None and 0 < failure.exit_code < 128)

    def is_running(self, job: MXJob, progress: Progress) -> bool:
        chief = progress.replica(*job.chief)
        return chief is not None and chief.state is ReplicaState.RUNNING

    def evaluate(self, job: MXJob, progress: Progress) -> JobResult | None:
        chief = progress.replica(*job.chief)
        if chief is None or chief.state not in (ReplicaState.SUCCEEDED, ReplicaState.FAILED):
            return None
        return JobResult(succeeded=True) if chief.state is ReplicaState.SUCCEEDED else JobResult(succeeded=False, failed_replica=chief)


class PhaseStatus(Status["MXJob"]):
    """Phase, state and reason. The inconsistent spelling of the keys in `replicaStatuses` is part of the API."""

    def read_phase(self, stored: JsonObject) -> Phase | None:
        values = (stored.get("phase"), stored.get("state"))
        return next((phase for phase, phase_values in _PHASES.items() if phase_values == values), None)

    def write(self, job: MXJob, outcome: Outcome) -> JsonObject:
        phase, state = _PHASES[outcome.phase]
        reasons = {Phase.INVALID: f"invalid job spec: {outcome.message}", Phase.SUCCEEDED: ""}
        return {
            "phase": phase,
            "state": state,
            "reason": reasons.get(outcome.phase, outcome.blocked or outcome.message),
            "replicaStatuses": [_replica_status(role) for role in _in_spec_order(job, outcome.progress)],
        }

    def write_blocked(self, job: MXJob, blocked: Blocked, *, now: float) -> JsonObject:
        return {**job.stored_status, "reason": blocked.message}


class MXJob(DLJob):
    """An MXNet job with one scheduler, servers and workers. It succeeds with its chief, by default the scheduler."""

    job_type = JobType(group="fioravanzo.org", version="v1alpha1", kind="MXJob")
    replica_types = (
        ReplicaType("SCHEDULER", minimum=1, maximum=1, required=True),
        ReplicaType("SERVER", restart_policy=RestartPolicy.ALWAYS),
        ReplicaType("WORKER", restart_policy=RestartPolicy.ALWAYS),
    )
    container_properties = ContainerProperties(name="mxnet", port=9000, port_name="mx-port", required=True, adds_port=False)
    schema = _SCHEMA
    naming = RuntimeIdNaming()
    lifecycle = ChiefLifecycle()
    status = PhaseStatus()
    flags = MXJobFlags

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {**ps_lite_variables(self, replica, scheduler="SCHEDULER", server="SERVER", worker="WORKER"), "PS_VERBOSE": "2"}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Sets the scheduler of the spec and adds accelerators."""
        accelerators = self.options.flags(MXJobFlags).controller_config_file
        spec = with_accelerators(pod["spec"], container=self.container_properties.name, accelerators=accelerators)
        scheduler = self.spec_field.get("schedulerName").string()
        return {**pod, "spec": {**spec, "schedulerName": scheduler} if scheduler else spec}

    @cached_property
    def runtime_id(self) -> str:
        """`spec.RuntimeId`, or a hash of the job's uid."""
        return _read_runtime_id(self.spec_field) or short_hash(self.metadata.uid, length=4)

    @cached_property
    def chief(self) -> tuple[str, int]:
        """Role and index of the chief."""
        return _read_chief(self.spec_field)


def _read_runtime_id(spec: ManifestField) -> str:
    """Both spellings are valid, because Go matches JSON keys case-insensitively."""
    return spec.get("RuntimeId").string() or spec.get("runtimeId").string()


def _read_chief(spec: ManifestField) -> tuple[str, int]:
    chief = spec.get("terminationPolicy").get("chief")
    return chief.get("replicaName").string() or "SCHEDULER", chief.get("replicaIndex").integer(0)


def _check_chief(spec: ManifestField, job_spec: JobSpec) -> None:
    name, index = _read_chief(spec)
    if spec.problems:
        return
    chief, role = spec.get("terminationPolicy").get("chief"), job_spec.role(name)
    if role is None:
        names = ", ".join(role.name for role in job_spec.roles)
        chief.get("replicaName").error(f"Missing ReplicaSpec for chief: {name}; must be one of {names}")
    elif index >= role.replicas:
        chief.get("replicaIndex").error(f"must be less than {role.replicas}, the number of replicas of {name}")


def _in_spec_order(job: MXJob, progress: Progress) -> list[RoleProgress]:
    listed = _SCHEMA.listed_roles(job.spec_field)
    return sorted(progress.roles, key=lambda role: listed.index(role.spec.name) if role.spec.name in listed else len(listed))


def _replica_status(role: RoleProgress) -> JsonObject:
    states = [_STATES.get(replica.state, "Running") for replica in role.replicas]
    counts = {state: states.count(state) for state in sorted(set(states))}
    return {"mx_replica_type": role.spec.name, "state": _role_state(counts, role.spec.replicas), "ReplicasStates": counts}


def _role_state(counts: Mapping[str, int], replicas: int) -> str:
    """Failed if any replica failed, otherwise Running if any replica runs."""
    if worst := next((state for state in ("Failed", "Running") if state in counts), None):
        return worst
    return "Succeeded" if counts.get("Succeeded") == replicas else "Unknown"
