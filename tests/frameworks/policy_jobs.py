"""Frameworks that replace one policy each, and one that replaces all of them."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from dlop import (
    AGE,
    CONFIG_MAPS,
    ApiModel,
    Blocked,
    CleanPodPolicy,
    Column,
    ContainerProperties,
    Create,
    DLJob,
    FieldRef,
    FrameworkFlags,
    JobResult,
    JobSpec,
    JobType,
    JsonObject,
    LastFailure,
    ManifestField,
    Outcome,
    PermissionSet,
    Phase,
    Progress,
    Replica,
    ReplicaModel,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    RoleSpec,
    Schema,
)
from dlop.policies import ChildObjects, Lifecycle, Naming, Status, dns_label

PERMISSIONS: JsonObject = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]}


class PeerJob(DLJob, ABC):
    """Peers with the defaults of dlop."""

    replica_types: ClassVar[tuple[ReplicaType, ...]] = (ReplicaType("Peer"),)
    container_properties: ClassVar[ContainerProperties] = ContainerProperties(name="peer", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        return {"RANK": str(replica.index)}


def job_type(kind: str) -> JobType:
    return JobType(group="policies.dlop.dev", version="v1", kind=kind)


# --- schema -------------------------------------------------------------------------------------------------------------


class CrewSpec(ApiModel):
    """A crew of peers."""

    motto: str = Field(min_length=3)
    peers: dict[str, ReplicaModel]


@dataclass(frozen=True, kw_only=True)
class CrewSchema(Schema):
    """The motto must not be a question."""

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        if spec.get("motto").string().endswith("?"):
            spec.get("motto").error("must not be a question")
        return super().read(spec, kind)


class SchemaJob(PeerJob):
    """Replaces the schema."""

    job_type = job_type("SchemaJob")
    schema = CrewSchema(
        field="peers", model=CrewSpec, scale="Peer", columns=(Column("Motto", ".spec.motto"), AGE), clean_pod_policy=CleanPodPolicy.ALL
    )


# --- naming -------------------------------------------------------------------------------------------------------------


class SquareNaming(Naming[PeerJob]):
    """Names and labels contain the square of the index."""

    def pod_name(self, job: PeerJob, role: RoleSpec, index: int) -> str:
        return dns_label(job.metadata.name, f"-{role.name.lower()}-square-{index * index}")

    def labels(self, job: PeerJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {"square": self.pod_name(job, role, index)}

    def pod_labels(self, job: PeerJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {"parity": "even" if index % 2 == 0 else "odd"}


class NamingJob(PeerJob):
    """Replaces the naming."""

    job_type = job_type("NamingJob")
    naming = SquareNaming()

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        return {"PEERS": ",".join(self.addresses("Peer"))}


# --- lifecycle ----------------------------------------------------------------------------------------------------------


class FirstWins(Lifecycle[PeerJob]):
    """The job succeeds with the first peer, and fails when all have failed. Exit code 42 is never retried."""

    def evaluate(self, job: PeerJob, progress: Progress) -> JobResult | None:
        (peers,) = progress.roles
        if peers.count(ReplicaState.SUCCEEDED):
            return JobResult(succeeded=True)
        return JobResult(succeeded=False, failed_replica=peers.replicas[0]) if peers.all(ReplicaState.FAILED) else None

    def pod_restart_policy(self, job: PeerJob, role: RoleSpec, index: int) -> RestartPolicy:
        return RestartPolicy.NEVER

    def is_final_failure(self, job: PeerJob, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        return failure.exit_code == 42


class LifecycleJob(PeerJob):
    """Replaces the lifecycle."""

    job_type = job_type("LifecycleJob")
    lifecycle = FirstWins()


# --- status -------------------------------------------------------------------------------------------------------------


class MoodStatus(Status[PeerJob]):
    """The status is one word."""

    def read_phase(self, stored: JsonObject) -> Phase | None:
        return next((phase for phase in Phase if phase.lower() == stored.get("mood")), None)

    def write(self, job: PeerJob, outcome: Outcome) -> JsonObject:
        return {"mood": outcome.phase.lower(), "because": outcome.blocked or outcome.message}

    def write_blocked(self, job: PeerJob, blocked: Blocked, *, now: float) -> JsonObject:
        return {**job.stored_status, "because": blocked.message}

    def describe_result(self, job: PeerJob, result: JobResult, progress: Progress) -> str:
        return "well done" if result.succeeded else f"peer {result.failed_replica.index if result.failed_replica else '?'} gave up"


class StatusJob(PeerJob):
    """Replaces the status."""

    job_type = job_type("StatusJob")
    status = MoodStatus()


# --- children -----------------------------------------------------------------------------------------------------------


class Roster(ChildObjects[PeerJob]):
    """A config map with the number of running peers, which is deleted when the job ends."""

    resources = (CONFIG_MAPS,)
    is_ephemeral = True
    permission_set = PermissionSet("roster", (PERMISSIONS,))

    def build(self, job: PeerJob) -> tuple[Create, ...]:
        return (self._roster(job, running=0),)

    def update(self, job: PeerJob, progress: Progress) -> tuple[Create, ...]:
        return (self._roster(job, running=sum(role.count(ReplicaState.RUNNING) for role in progress.roles)),)

    def _roster(self, job: PeerJob, *, running: int) -> Create:
        metadata = job.child_metadata(f"{job.metadata.name}-roster")
        return Create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"running": str(running)}})


class ChildrenJob(PeerJob):
    """Replaces the children."""

    job_type = job_type("ChildrenJob")
    children = (Roster(),)


# --- container, flags and pods ------------------------------------------------------------------------------------------


class ContainerJob(PeerJob):
    """Replaces the container properties."""

    job_type = job_type("ContainerJob")
    container_properties = ContainerProperties(
        name="peer", port=7000, port_name="ring", adds_port=False, sets_env_in_all_containers=True, overrides_user_env=True
    )

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        return {"IP": FieldRef("status.podIP"), "ADDRESS": "$(IP):7000"}


class PeerFlags(FrameworkFlags):
    """Flags of the operator."""

    peer_grace_seconds: int = Field(default=30, description="Grace period of the peers.")


class FlagsJob(PeerJob):
    """Declares flags, and customizes its pods."""

    job_type = job_type("FlagsJob")
    flags = PeerFlags

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        return {**pod, "spec": {**pod["spec"], "terminationGracePeriodSeconds": self.options.flags(PeerFlags).peer_grace_seconds}}


# --- all of them --------------------------------------------------------------------------------------------------------


class EverythingJob(PeerJob):
    """Replaces all policies."""

    job_type = job_type("EverythingJob")
    replica_types = (ReplicaType("Peer"), ReplicaType("Referee", start_after="Peer", required_for_success=False))
    container_properties = ContainerJob.container_properties
    schema = SchemaJob.schema
    naming = SquareNaming()
    lifecycle: ClassVar[Lifecycle[Any]] = Lifecycle()
    status = MoodStatus()
    children = (Roster(),)
    flags = PeerFlags
    customize_pod = FlagsJob.customize_pod

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        return {"IP": FieldRef("status.podIP"), "PEERS": ",".join(self.addresses("Peer"))}
