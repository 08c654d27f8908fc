"""The spec of a TrainingJob. `trainingjob_pods.py` makes its pod templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from dlop import DLJob, ElasticRange, JobSpec, JsonObject, ManifestField, Replicas
from dlop.frameworks.paddlepaddle.fields import is_set
from dlop.frameworks.paddlepaddle.schema import (
    NO_EFFECT,
    JobModel,
    PaddleModel,
    ParameterServerSchema,
    PodModel,
    PortCount,
    PortOrZero,
    PserverModel,
    TrainerModel,
)
from dlop.frameworks.paddlepaddle.trainingjob_pods import FrameworkType, read_mode, read_pod_template, read_role_ports

Seconds = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]


class TrainingPodModel(PodModel):
    """Fields of the pods of a role."""

    envs: dict[str, str] | None = None
    """Environment variables. They can contain the variables of the operator as $(NAME)."""
    grace_period_seconds: Seconds | None = None
    """Seconds that the pods may take to terminate. Defaults to 30."""
    pre_stop_cmd: list[str] | None = None
    """Command that runs in the container before it is terminated."""
    tolerations: list[JsonObject] | None = None
    """Taints of nodes that the pods tolerate."""
    liveness_probe: JsonObject | None = None
    """Probe that restarts the container when it fails."""
    readiness_probe: JsonObject | None = None
    """Probe that succeeds when the container is ready."""
    replica_spec: Annotated[JsonObject | None, Field(alias="replicaSpec"), NO_EFFECT] = None
    """Has no effect."""


class MasterModel(TrainingPodModel):
    """The master of a fault-tolerant job, with etcd."""

    etcd_endpoint: Annotated[str | None, Field(alias="etcd-endpoint"), NO_EFFECT] = None
    """Has no effect."""


class TrainingPserverModel(PserverModel, TrainingPodModel):
    """Parameter servers."""

    entrypoint: str | None = None
    """Command of the parameter servers. Defaults to the program of the image."""
    index_succeed: Annotated[bool | None, NO_EFFECT] = None
    """Has no effect."""


class TrainingTrainerModel(TrainerModel, TrainingPodModel):
    """Trainers."""

    max_instance: Annotated[Replicas | None, Field(alias="max-instance")] = None
    """Maximum number of pods. The autoscaler of the operator scales the trainers of fault-tolerant jobs up to it."""
    etcd_endpoint: Annotated[str | None, Field(alias="etcd-endpoint"), NO_EFFECT] = None
    """Has no effect."""
    index_succeed: Annotated[bool | None, NO_EFFECT] = None
    """Has no effect."""


class FrameworkModel(PaddleModel):
    """Framework, and how the pods work together. Replaces local_job and is_nccl."""

    name: Literal["", "paddle", "tensorflow"] | None = None
    """Framework of the program. Defaults to paddle."""
    type: FrameworkType
    """One trainer (local), trainers that reach each other (nccl2), or parameter servers and trainers (multi)."""


class AnnotationsModel(PaddleModel):
    """Scheduling of the pods."""

    priority: str | None = None
    """Label priority of the pods."""
    scheduler: str | None = None
    """Scheduler of parameter servers and trainers. Defaults to schedulerName."""
    walltime: Seconds | None = None
    """Seconds that the job may run, if runPolicy.activeDeadlineSeconds is not set. 0 means no limit."""
    usergroupid: Annotated[str | None, NO_EFFECT] = None
    """Has no effect."""
    userid: Annotated[str | None, NO_EFFECT] = None
    """Has no effect."""


class TrainingJobModel(JobModel):
    """Specification of a TrainingJob."""

    trainer_port: PortOrZero | None = None
    """First port of the trainers, for frame_work type nccl2, and for multi with tensorflow."""
    trainer_ports_num: PortCount | None = None
    """Number of ports of the trainers. Defaults to 0."""
    fault_tolerant: bool | None = None
    """Whether the job has a master, succeeds if any trainer does, and can have elastic trainers."""
    local_job: bool | None = None
    """Whether the job has one trainer and no parameter servers."""
    is_nccl: bool | None = None
    """Whether the trainers reach each other, so that the job has no parameter servers."""
    frame_work: FrameworkModel | None = None
    """Framework, and how the pods work together. Replaces local_job and is_nccl."""
    nfsmount: Annotated[str | None, NO_EFFECT] = None
    """Has no effect."""
    annotations: AnnotationsModel | None = None
    """Scheduling of the pods."""
    scheduler_name: Annotated[str | None, Field(alias="schedulerName")] = None
    """Scheduler of the pods."""
    pod_group_name: Annotated[str | None, Field(alias="podGroupName")] = None
    """PodGroup of the pods, which the user has created."""
    matrix: Annotated[bool | None, NO_EFFECT] = None
    """Has no effect."""
    master: MasterModel | None = None
    """The master of a fault-tolerant job."""
    pserver: TrainingPserverModel | None = None
    """Parameter servers."""
    trainer: TrainingTrainerModel
    """Trainers."""


@dataclass(frozen=True, kw_only=True)
class TrainingJobSchema(ParameterServerSchema):
    """The master exists only in fault-tolerant jobs, and parameter servers only in some modes. A local job has one trainer."""

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        """The walltime is a deadline."""
        for name in ("frame_work", "annotations", "master", "pserver"):
            spec.get(name).object()
        job_spec = super().read(spec, kind)
        policy, walltime = job_spec.run_policy, spec.get("annotations").get("walltime").integer(0)
        if not walltime or policy.active_deadline_seconds is not None:
            return job_spec
        return replace(job_spec, run_policy=replace(policy, active_deadline_seconds=walltime))

    def has_role(self, spec: ManifestField, role: str) -> bool:
        if role == "master":
            return is_fault_tolerant(spec)
        return super().has_role(spec, role) and (role == "trainer" or read_mode(spec).has_servers)

    def read_replicas(self, spec: ManifestField, role: str) -> int:
        if role == "master":
            return spec.get("master").get("min-instance").integer(1, minimum=1, maximum=1)
        return 1 if role == "trainer" and read_mode(spec).is_local else super().read_replicas(spec, role)

    def elastic_ranges(self, spec: ManifestField) -> Mapping[str, ElasticRange]:
        ranges = {} if read_mode(spec).is_local else super().elastic_ranges(spec)
        if is_fault_tolerant(spec) or not ranges:
            return ranges
        minimum = ranges["trainer"].minimum
        spec.get("trainer").get("max-instance").error(
            f"must be {minimum}, which is min-instance, unless the job is fault-tolerant; set fault_tolerant to true, or this to {minimum}"
        )
        return {}

    def read_ports(self, spec: ManifestField, role: str) -> range:
        return read_role_ports(spec, role)

    def read_pod_template(self, spec: ManifestField, role: str) -> JsonObject:
        return read_pod_template(spec, role, is_fault_tolerant=is_fault_tolerant(spec))

    def replicas_path(self, spec: ManifestField, role: str) -> tuple[str | int, ...] | None:
        """A fault-tolerant job has a master even if the spec does not mention it."""
        has_path = role.lower() == "master" and is_fault_tolerant(spec)
        return ("master", "min-instance") if has_path else super().replicas_path(spec, role)

    def fields_without_effect(self, spec: ManifestField) -> Iterator[str]:
        unused = {name for name in _unused_fields(spec) if is_set(_at(spec, name).value)}
        yield from unused
        yield from (name for name in super().fields_without_effect(spec) if name.partition(".")[0] not in unused)


def is_fault_tolerant(spec: ManifestField) -> bool:
    return spec.get("fault_tolerant").boolean()


def _unused_fields(spec: ManifestField) -> Iterator[str]:
    """Fields that other fields disable."""
    mode, annotations, trainer = read_mode(spec), spec.get("annotations"), spec.get("trainer")
    if not spec.get("frame_work").is_absent:
        yield from ("local_job", "is_nccl")
    if not mode.has_trainer_ports:
        yield from ("trainer_port", "trainer_ports_num")
    if not mode.has_servers:
        yield "pserver"
    if not is_fault_tolerant(spec):
        yield "master"
        if annotations.get("scheduler").string():
            yield "schedulerName"
    if not spec.get("runPolicy").get("activeDeadlineSeconds").is_absent:
        yield "annotations.walltime"
    if mode.is_local:
        yield from (f"trainer.{name}" for name in ("min-instance", "max-instance") if trainer.get(name).integer(1) != 1)


def _at(spec: ManifestField, path: str) -> ManifestField:
    for name in path.split("."):
        spec = spec.get(name)
    return spec
