"""MXJob of fioravanzo.org/v1alpha1: MXNet with one scheduler, servers and workers.

The chief, by default the scheduler, decides: exit code 0 is success, 1 to 127 and being out of memory are final, any other
is tried again. Servers and workers are restarted whatever they end with. Names carry a runtime id, so that a job that is
made again under its name never meets the pods of the one before.
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
from dlop.api.names import dns_label, fingerprint, label_value
from dlop.api.parsing import listed_at, read_listed_roles, read_run_policy
from dlop.api.record import Blocked
from dlop.api.schema import rule, with_rules
from dlop.api.spec_models import Count, OpenModel, Port, Replicas, RestartedPodTemplate, RunPolicyModel
from dlop.frameworks.fioravanzo.accelerators import with_devices
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


RuntimeId = Annotated[str, pydantic.ManifestField(pattern=f"^({_RUNTIME_ID.pattern})?$")]

# Names of roles in CEL, where an entry that names none is the scheduler's.
_ROLE_OF_R = "(has(r.mxReplicaType) && r.mxReplicaType != '' ? r.mxReplicaType : 'SCHEDULER')"
_CHIEF = "self.terminationPolicy.chief"
_CHIEF_ROLE = f"(has({_CHIEF}.replicaName) && {_CHIEF}.replicaName != '' ? {_CHIEF}.replicaName : 'SCHEDULER')"
_CHIEF_INDEX = f"(has({_CHIEF}.replicaIndex) ? {_CHIEF}.replicaIndex : 0)"


class ReplicaSpecModel(OpenModel):
    """One role of an MXJob."""

    replicas: Replicas | None = None
    """How many pods the role has; 1 when left out."""
    mx_replica_type: Literal["", "SCHEDULER", "SERVER", "WORKER"] | None = None
    """The role; SCHEDULER when left out."""
    mx_port: Port | None = None
    """What the replicas listen on; 9000 when left out."""
    template: RestartedPodTemplate
    """The pod that each replica is made of. The container that takes part in the job is called mxnet."""


class ChiefModel(OpenModel):
    """The replica whose end is the end of the job."""

    replica_name: Annotated[str, pydantic.ManifestField(max_length=63)] | None = None
    """Its role; SCHEDULER when left out."""
    replica_index: Count | None = None
    """Its number in the role; 0 when left out."""


class TerminationPolicyModel(OpenModel):
    """When the job is done."""

    chief: ChiefModel


class MXJobModel(OpenModel):
    """What an MXJob asks for."""

    model_config = pydantic.ConfigDict(
        json_schema_extra=with_rules(
            rule(
                f"!has(self.terminationPolicy) || self.replicaSpecs.exists(r, {_ROLE_OF_R} == {_CHIEF_ROLE}"
                f" && {_CHIEF_INDEX} < (has(r.replicas) ? r.replicas : 1))",
                "terminationPolicy.chief must be a replica that the job has",
            )
        )
    )

    replica_specs: Annotated[
        list[ReplicaSpecModel],
        pydantic.ManifestField(
            max_length=3,
            json_schema_extra=with_rules(
                rule(f"self.exists_one(r, {_ROLE_OF_R} == 'SCHEDULER')", "must have exactly one entry of type SCHEDULER"),
                rule(
                    f"self.all(r, {_ROLE_OF_R} != 'SCHEDULER' || !has(r.replicas) || r.replicas == 1)",
                    "replicas of SCHEDULER must be exactly 1",
                ),
                rule(
                    f"self.filter(r, {_ROLE_OF_R} == 'SERVER').size() <= 1 && self.filter(r, {_ROLE_OF_R} == 'WORKER').size() <= 1",
                    "may have one entry for each of SERVER and WORKER",
                ),
                rule(
                    "self.all(r, r.template.spec.containers.exists(c, c.name == 'mxnet'))",
                    "each template must have a container named mxnet",
                ),
            ),
        ),
    ]
    """The roles."""
    termination_policy: TerminationPolicyModel | None = None
    """Which replica decides; the scheduler when left out."""
    scheduler_name: str | None = None
    """The scheduler of the cluster that places the pods; that of the templates when left out."""
    runtime_id: Annotated[RuntimeId | None, pydantic.ManifestField(alias="RuntimeId")] = None
    """The part of names that tells this job from earlier ones of its name; made by the operator when left out."""
    mx_image: str | None = None
    """Has no meaning any more."""
    run_policy: RunPolicyModel | None = None
    """How the job is run, apart from what it runs."""


class MXJob(DLJob):
    """An MXNet job: one scheduler, servers and workers. It is done when its chief is, by default the scheduler."""

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
        """What ps-lite reads: where the scheduler is, and how many servers and workers it is to wait for."""
        return {
            "DMLC_ROLE": replica.role.lower(),
            "DMLC_PS_ROOT_URI": self.host("SCHEDULER"),
            "DMLC_PS_ROOT_PORT": str(self.port(self.spec.roles[0])),
            "DMLC_NUM_SERVER": str(self.replicas("SERVER")),
            "DMLC_NUM_WORKER": str(self.replicas("WORKER")),
            # Else the scheduler of a later MXNet tries to listen on the name of its service, which leads there but is not its own.
            "DMLC_USE_KUBERNETES": "1",
            "PS_VERBOSE": "2",
        }

    def read_spec(self, spec: ManifestField) -> JobSpec:
        """`replicaSpecs` is a list here; `runPolicy` is an addition of dlop's."""
        spec.mapping()
        roles = read_listed_roles(
            spec.get("replicaSpecs"),
            self.replica_types,
            self.container_properties,
            type_field="mxReplicaType",
            default_type="SCHEDULER",
            port_field="mxPort",
        )
        policy = spec.get("runPolicy")
        policy.mapping()
        if (given := _given_runtime_id(spec)) and not _RUNTIME_ID.fullmatch(given):
            spec.get("RuntimeId").wrong("must be at most 20 lower-case letters, digits and dashes, for it becomes part of names")
        spec.get("schedulerName").text()
        if not spec.get("terminationPolicy").is_absent and spec.get("terminationPolicy").get("chief").is_absent:
            spec.get("terminationPolicy").wrong("must have a chief, like {replicaName: SCHEDULER, replicaIndex: 0}; or leave it out")
        _chief(spec)
        return JobSpec(
            roles=roles,
            run_policy=read_run_policy(policy, restart_scope=self.restart_scope, clean_pod_policy=self.clean_pod_policy),
        )

    def replicas_path(self, role: str) -> tuple[str | int, ...] | None:
        """In the entry of the role."""
        roles = ManifestField("spec", self.raw_spec).get("replicaSpecs")
        place = listed_at(roles, role, type_field="mxReplicaType", default_type="SCHEDULER")
        return None if place is None else ("replicaSpecs", place, "replicas")

    def validate(self, spec: JobSpec) -> Iterable[Problem]:
        """The chief must be there."""
        name, index = self.chief
        role = spec.role(name)
        if role is None:
            yield Problem("spec.terminationPolicy.chief.replicaName", f"Missing ReplicaSpec for chief: {name}; write one of {_names(spec)}")
        elif not 0 <= index < role.replicas:
            yield Problem(
                "spec.terminationPolicy.chief.replicaIndex", f"must be less than {role.replicas}, the number of replicas of {name}"
            )

    @cached_property
    def runtime_id(self) -> str:
        """The part of names that tells this job from earlier ones of its name: given, or made of the job's uid."""
        return _given_runtime_id(ManifestField("spec", self.raw_spec)) or fingerprint(self.metadata.uid, length=4)

    @cached_property
    def chief(self) -> tuple[str, int]:
        """The role and the index of the replica that decides."""
        return _chief(ManifestField("spec", self.raw_spec))

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """`<job, cut at 40>-<type>-<runtime id>-<index>`."""
        return dns_label(self.metadata.name[:40], f"-{role.name.lower()}-{self.runtime_id}-{index}")

    def role_labels(self, role: RoleSpec) -> Mapping[str, str]:
        """The labels that this API has always had."""
        job_name = label_value(self.metadata.name)
        return {"fioravanzo.org": "", "job_type": role.name, "runtime_id": self.runtime_id, "mx_job_name": job_name}

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Those of the role, and the index."""
        return {**self.role_labels(role), "task_index": str(index)}

    def service_ports(self, role: RoleSpec, container: JsonObject) -> list[JsonObject]:
        """Only the port of ps-lite."""
        return [{"name": self.container_properties.port_name, "port": self.port(role)}]

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """The scheduler of the spec, and what belongs to devices."""
        spec = with_devices(pod["spec"], container=self.container_properties.name, accelerators=self.options.accelerators)
        scheduler = ManifestField("spec", self.raw_spec).get("schedulerName").text()
        return {**pod, "spec": {**spec, "schedulerName": scheduler} if scheduler else spec}

    def pod_restart_policy(self, role: RoleSpec, index: int) -> str:
        """The node must not restart the chief: its exit code counts."""
        return RestartPolicy.NEVER if (role.name, index) == self.chief else super().pod_restart_policy(role, index)

    def is_final_failure(self, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        """Only the chief's, by its exit code; running out of memory would only happen again."""
        if (role.name, index) != self.chief:
            return False
        return failure.reason == "OOMKilled" or (failure.exit_code is not None and 0 < failure.exit_code < 128)

    def is_running(self, progress: Progress) -> bool:
        """As the chief runs, so does the job."""
        chief = progress.replica(*self.chief)
        return chief is not None and chief.state is ReplicaState.RUNNING

    def judge(self, progress: Progress) -> JobResult | None:
        """As the chief ends, so does the job."""
        chief = progress.replica(*self.chief)
        if chief is None or chief.state not in (ReplicaState.SUCCEEDED, ReplicaState.FAILED):
            return None
        if chief.state is ReplicaState.FAILED:
            return JobResult(succeeded=False, reason="Failed", message=self.describe_failure(chief))
        return JobResult(succeeded=True, reason="Succeeded", message=f"MXJob {self.metadata.name} is successfully completed.")

    def phase_in(self, status: JsonObject) -> Phase | None:
        """By phase, and for finished jobs by state."""
        found = (status.get("phase"), status.get("state"))
        return next((phase for phase, words in _PHASES.items() if words == found), None)

    def write_status(self, outcome: Outcome) -> JsonObject:
        """Phase, state and reason; the keys of `replicaStatuses` are spelled as this API has always spelled them."""
        phase, state = _PHASES[outcome.phase]
        reasons = {Phase.INVALID: f"invalid job spec: {outcome.message}", Phase.SUCCEEDED: ""}
        return {
            "phase": phase,
            "state": state,
            "reason": reasons.get(outcome.phase, outcome.blocked or outcome.message),
            "replicaStatuses": [_replica_status(role) for role in self._as_listed(outcome.progress)],
        }

    def write_block(self, blocked: Blocked, *, now: float) -> JsonObject:
        """Under the reason."""
        return {**self.stored_status, "reason": blocked.message}

    def _as_listed(self, progress: Progress) -> list[RoleProgress]:
        listed = [
            entry.get("mxReplicaType").text() or "SCHEDULER" for entry in ManifestField("spec", self.raw_spec).get("replicaSpecs").items()
        ]
        return sorted(progress.roles, key=lambda role: listed.index(role.spec.name) if role.spec.name in listed else len(listed))


def _names(spec: JobSpec) -> str:
    return ", ".join(role.name for role in spec.roles)


def _given_runtime_id(spec: ManifestField) -> str:
    """Go took either spelling."""
    return spec.get("RuntimeId").text() or spec.get("runtimeId").text()


def _chief(spec: ManifestField) -> tuple[str, int]:
    chief = spec.get("terminationPolicy").get("chief")
    return chief.get("replicaName").text() or "SCHEDULER", chief.get("replicaIndex").integer(0)


def _replica_status(role: RoleProgress) -> JsonObject:
    states = [_STATES.get(replica.state, "Running") for replica in role.replicas]
    counts = {state: states.count(state) for state in sorted(set(states))}
    return {"mx_replica_type": role.spec.name, "state": _state_of(counts, role.spec.replicas), "ReplicasStates": counts}


def _state_of(counts: Mapping[str, int], replicas: int) -> str:
    """Any failed replica makes the role failed, else any running one makes it running."""
    if worst := next((state for state in ("Failed", "Running") if state in counts), None):
        return worst
    return "Succeeded" if counts.get("Succeeded") == replicas else "Unknown"
