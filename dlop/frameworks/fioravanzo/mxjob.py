"""MXJob of fioravanzo.org/v1alpha1: MXNet with one scheduler, servers and workers.

The chief, by default the scheduler, determines the result: exit code 0 is success, exit codes 1 to 127 and OOMKilled are permanent
failures, and the chief is restarted after any other exit code. All other replicas are always restarted. Names contain a runtime ID,
so that a recreated job does not conflict with the pods of the earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import pydantic

from dlop import (
    ContainerProperties,
    DLJob,
    JobResult,
    JobSpec,
    JobType,
    LastFailure,
    ManifestField,
    Outcome,
    Phase,
    Problem,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    RoleProgress,
    RoleSpec,
)
from dlop.api.cached_property import cached_property
from dlop.api.crd import AGE, Column
from dlop.api.names import dns_label, label_value, short_hash
from dlop.api.parsing import listed_role_index, read_listed_roles, read_run_policy
from dlop.api.record import Blocked
from dlop.api.schema import rule, with_rules
from dlop.api.spec_models import Count, OpenModel, Port, Replicas, RestartedPodTemplate, RunPolicyModel
from dlop.frameworks.fioravanzo.accelerators import with_accelerators
from dlop.kube.types import JsonObject

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


class MXJob(DLJob):
    """An MXNet job with one scheduler, servers and workers. It succeeds with its chief, by default the scheduler."""

    job_type = JobType(group="fioravanzo.org", version="v1alpha1", kind="MXJob")
    replica_types = (
        ReplicaType("SCHEDULER", minimum=1, maximum=1, required=True),
        ReplicaType("SERVER", restart_policy=RestartPolicy.ALWAYS),
        ReplicaType("WORKER", restart_policy=RestartPolicy.ALWAYS),
    )
    container_properties = ContainerProperties(name="mxnet", port=9000, port_name="mx-port", required=True)
    adds_container_port = False
    spec_model = MXJobModel
    printer_columns = (Column("Phase", ".status.phase"), Column("State", ".status.state"), AGE)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """Variables of ps-lite."""
        return {
            "DMLC_ROLE": replica.role.lower(),
            "DMLC_PS_ROOT_URI": self.host("SCHEDULER"),
            "DMLC_PS_ROOT_PORT": str(self.port(self.spec.roles[0])),
            "DMLC_NUM_SERVER": str(self.replicas("SERVER")),
            "DMLC_NUM_WORKER": str(self.replicas("WORKER")),
            # Without it, the scheduler of newer MXNet versions tries to bind to the name of its service, which is not a local address.
            "DMLC_USE_KUBERNETES": "1",
            "PS_VERBOSE": "2",
        }

    def read_spec(self, spec: ManifestField) -> JobSpec:
        """`replicaSpecs` is a list. `runPolicy` is an extension of dlop."""
        spec.object()
        roles = read_listed_roles(
            spec.get("replicaSpecs"),
            self.replica_types,
            self.container_properties,
            type_field="mxReplicaType",
            default_type="SCHEDULER",
            port_field="mxPort",
        )
        policy = spec.get("runPolicy")
        policy.object()
        if (runtime_id := _read_runtime_id(spec)) and not _RUNTIME_ID.fullmatch(runtime_id):
            spec.get("RuntimeId").error("must be at most 20 lower-case letters, digits and dashes, because it is part of names")
        spec.get("schedulerName").string()
        if not spec.get("terminationPolicy").is_absent and spec.get("terminationPolicy").get("chief").is_absent:
            spec.get("terminationPolicy").error("must have a chief, such as {replicaName: SCHEDULER, replicaIndex: 0}, or be omitted")
        _read_chief(spec)
        return JobSpec(
            roles=roles,
            run_policy=read_run_policy(policy, restart_scope=self.restart_scope, clean_pod_policy=self.clean_pod_policy),
        )

    def replicas_path(self, role: str) -> tuple[str | int, ...] | None:
        roles = ManifestField("spec", self.raw_spec).get("replicaSpecs")
        index = listed_role_index(roles, role, type_field="mxReplicaType", default_type="SCHEDULER")
        return None if index is None else ("replicaSpecs", index, "replicas")

    def validate(self, spec: JobSpec) -> Iterable[Problem]:
        name, index = self.chief
        role = spec.role(name)
        if role is None:
            yield Problem(
                "spec.terminationPolicy.chief.replicaName", f"Missing ReplicaSpec for chief: {name}; must be one of {_role_names(spec)}"
            )
        elif not 0 <= index < role.replicas:
            yield Problem(
                "spec.terminationPolicy.chief.replicaIndex", f"must be less than {role.replicas}, the number of replicas of {name}"
            )

    @cached_property
    def runtime_id(self) -> str:
        """`spec.RuntimeId`, or a hash of the job's uid."""
        return _read_runtime_id(ManifestField("spec", self.raw_spec)) or short_hash(self.metadata.uid, length=4)

    @cached_property
    def chief(self) -> tuple[str, int]:
        """Role and index of the chief."""
        return _read_chief(ManifestField("spec", self.raw_spec))

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """`<job, truncated to 40>-<type>-<runtime id>-<index>`."""
        return dns_label(self.metadata.name[:40], f"-{role.name.lower()}-{self.runtime_id}-{index}")

    def role_labels(self, role: RoleSpec) -> Mapping[str, str]:
        job_name = label_value(self.metadata.name)
        return {"fioravanzo.org": "", "job_type": role.name, "runtime_id": self.runtime_id, "mx_job_name": job_name}

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {**self.role_labels(role), "task_index": str(index)}

    def service_ports(self, role: RoleSpec, container: JsonObject) -> list[JsonObject]:
        return [{"name": self.container_properties.port_name, "port": self.port(role)}]

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Sets the scheduler of the spec and adds accelerators."""
        spec = with_accelerators(pod["spec"], container=self.container_properties.name, accelerators=self.options.accelerators)
        scheduler = ManifestField("spec", self.raw_spec).get("schedulerName").string()
        return {**pod, "spec": {**spec, "schedulerName": scheduler} if scheduler else spec}

    def pod_restart_policy(self, role: RoleSpec, index: int) -> str:
        """The kubelet must not restart the chief, because its exit code decides."""
        return RestartPolicy.NEVER if (role.name, index) == self.chief else super().pod_restart_policy(role, index)

    def is_final_failure(self, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        """Only a failure of the chief can be final. OOMKilled is final because it would happen again."""
        if (role.name, index) != self.chief:
            return False
        return failure.reason == "OOMKilled" or (failure.exit_code is not None and 0 < failure.exit_code < 128)

    def is_running(self, progress: Progress) -> bool:
        chief = progress.replica(*self.chief)
        return chief is not None and chief.state is ReplicaState.RUNNING

    def evaluate(self, progress: Progress) -> JobResult | None:
        chief = progress.replica(*self.chief)
        if chief is None or chief.state not in (ReplicaState.SUCCEEDED, ReplicaState.FAILED):
            return None
        if chief.state is ReplicaState.FAILED:
            return JobResult(succeeded=False, reason="Failed", message=self.describe_failure(chief))
        return JobResult(succeeded=True, reason="Succeeded", message=f"MXJob {self.metadata.name} is successfully completed.")

    def read_phase(self, status: JsonObject) -> Phase | None:
        stored = (status.get("phase"), status.get("state"))
        return next((phase for phase, values in _PHASES.items() if values == stored), None)

    def write_status(self, outcome: Outcome) -> JsonObject:
        """Phase, state and reason. The inconsistent spelling of the keys in `replicaStatuses` is part of the API."""
        phase, state = _PHASES[outcome.phase]
        reasons = {Phase.INVALID: f"invalid job spec: {outcome.message}", Phase.SUCCEEDED: ""}
        return {
            "phase": phase,
            "state": state,
            "reason": reasons.get(outcome.phase, outcome.blocked or outcome.message),
            "replicaStatuses": [_replica_status(role) for role in self._in_spec_order(outcome.progress)],
        }

    def write_blocked(self, blocked: Blocked, *, now: float) -> JsonObject:
        return {**self.stored_status, "reason": blocked.message}

    def _in_spec_order(self, progress: Progress) -> list[RoleProgress]:
        listed = [
            entry.get("mxReplicaType").string() or "SCHEDULER" for entry in ManifestField("spec", self.raw_spec).get("replicaSpecs").items()
        ]
        return sorted(progress.roles, key=lambda role: listed.index(role.spec.name) if role.spec.name in listed else len(listed))


def _role_names(spec: JobSpec) -> str:
    return ", ".join(role.name for role in spec.roles)


def _read_runtime_id(spec: ManifestField) -> str:
    """Both spellings are valid, because Go matches JSON keys case-insensitively."""
    return spec.get("RuntimeId").string() or spec.get("runtimeId").string()


def _read_chief(spec: ManifestField) -> tuple[str, int]:
    chief = spec.get("terminationPolicy").get("chief")
    return chief.get("replicaName").string() or "SCHEDULER", chief.get("replicaIndex").integer(0)


def _replica_status(role: RoleProgress) -> JsonObject:
    states = [_STATES.get(replica.state, "Running") for replica in role.replicas]
    counts = {state: states.count(state) for state in sorted(set(states))}
    return {"mx_replica_type": role.spec.name, "state": _role_state(counts, role.spec.replicas), "ReplicasStates": counts}


def _role_state(counts: Mapping[str, int], replicas: int) -> str:
    """Failed if any replica failed, otherwise Running if any replica runs."""
    if worst := next((state for state in ("Failed", "Running") if state in counts), None):
        return worst
    return "Succeeded" if counts.get("Succeeded") == replicas else "Unknown"
