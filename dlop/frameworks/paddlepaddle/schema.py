"""The parts of a spec that both kinds have: models, roles, and warnings about fields without effect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, get_args

from pydantic import ConfigDict, Field
from pydantic.fields import FieldInfo

from dlop import (
    AGE,
    Column,
    DLJob,
    ElasticRange,
    JobSpec,
    JsonObject,
    ManifestField,
    OpenModel,
    Replicas,
    ReplicaType,
    RestartPolicy,
    RoleFieldsSchema,
    RoleSpec,
    RunPolicyModel,
)
from dlop.frameworks.paddlepaddle.fields import MAX_PORTS, find_any, fold, is_set, read_limits, read_port
from dlop.frameworks.paddlepaddle.pods import read_mounts

NO_EFFECT: Final = "no effect"
"""Marks a field of a model that the operator ignores."""
PortOrZero = Annotated[int, Field(ge=0, le=65_535)]
PortCount = Annotated[int, Field(ge=0, le=MAX_PORTS)]
Passes = Annotated[int, Field(ge=0, le=2**31 - 1)]


class PaddleModel(OpenModel):
    """A part of the spec. Fields are named as the old operators named them."""

    model_config = ConfigDict(alias_generator=None)


class PodModel(PaddleModel):
    """Fields of the pods of a role."""

    resources: JsonObject | None = None
    """Resources of the container."""
    image_pull_secrets: Annotated[list[JsonObject] | None, Field(alias="imagePullSecrets")] = None
    """Secrets with which the image is pulled. Defaults to those of the spec."""
    node_selector: dict[str, str] | None = None
    """Labels of the nodes on which the pods run. Defaults to those of the spec."""
    other_node_selector: Annotated[dict[str, str] | None, Field(alias="nodeSelector")] = None
    """Another spelling of node_selector."""


class PserverModel(PodModel):
    """Parameter servers."""

    min_instance: Annotated[Replicas | None, Field(alias="min-instance")] = None
    """Number of pods. Defaults to 1."""
    max_instance: Annotated[Replicas | None, Field(alias="max-instance")] = None
    """Has no effect, because parameter servers are not scaled."""


class TrainerModel(PodModel):
    """Trainers."""

    min_instance: Annotated[Replicas | None, Field(alias="min-instance")] = None
    """Number of pods, or the minimum for elastic trainers. Defaults to 1."""
    max_instance: Annotated[Replicas | None, Field(alias="max-instance")] = None
    """Maximum number of pods. If it is above the minimum, the autoscaler of the operator scales the trainers."""
    entrypoint: str | None = None
    """Command of the training program."""
    workspace: str | None = None
    """Directory of the training program, in the variable TRAINER_PACKAGE."""
    passes: Passes | None = None
    """Number of passes over the data, if passes of the spec is not set."""


class JobModel(PaddleModel):
    """Fields of the spec."""

    image: str | None = None
    """Image of all pods."""
    host_network: bool | None = None
    """Whether the pods use the network of their nodes."""
    other_host_network: Annotated[bool | None, Field(alias="hostNetwork")] = None
    """Another spelling of host_network."""
    port: PortOrZero | None = None
    """First port. Defaults to 7164."""
    ports_num: PortCount | None = None
    """Number of ports for dense parameters. Defaults to 1."""
    ports_num_for_sparse: PortCount | None = None
    """Number of ports for sparse parameters. Defaults to 1."""
    passes: Passes | None = None
    """Number of passes over the data. Defaults to 1."""
    volumes: list[JsonObject] | None = None
    """Volumes of all pods."""
    volume_mounts: Annotated[list[JsonObject] | None, Field(alias="VolumeMounts")] = None
    """Mounts of the volumes in all pods except those of parameter servers."""
    other_volume_mounts: Annotated[list[JsonObject] | None, Field(alias="volumeMounts")] = None
    """Another spelling of VolumeMounts."""
    mount_path: Annotated[str | None, Field(alias="mountPath")] = None
    """Path at which these pods mount the only volume, if VolumeMounts is not set."""
    other_mount_path: Annotated[str | None, Field(alias="mountpath")] = None
    """Another spelling of mountPath."""
    node_selector: Annotated[dict[str, str] | None, Field(alias="NodeSelector")] = None
    """Labels of the nodes on which the pods run."""
    other_node_selector: Annotated[dict[str, str] | None, Field(alias="nodeSelector")] = None
    """Another spelling of NodeSelector."""
    image_pull_secrets: Annotated[list[JsonObject] | None, Field(alias="imagePullSecrets")] = None
    """Secrets with which the image is pulled."""
    run_policy: Annotated[RunPolicyModel | None, Field(alias="runPolicy")] = None
    """Run policy of the job."""


@dataclass(frozen=True, kw_only=True)
class ParameterServerSchema(RoleFieldsSchema, ABC):
    """The number of pods of a role is its `min-instance`. Trainers with a higher `max-instance` are elastic."""

    no_host_network: str = "set spec.hostNetwork instead, and the ports with spec.port"
    columns: tuple[Column, ...] = (Column("Phase", ".status.phase"), Column("Reason", ".status.reason"), AGE)

    @abstractmethod
    def read_ports(self, spec: ManifestField, role: str) -> range:
        """The ports that the pods of a role declare. Peers use the first one, even if the range is empty; 0 means the port of the spec."""

    @abstractmethod
    def read_pod_template(self, spec: ManifestField, role: str) -> JsonObject:
        """The pod template of a role."""

    def has_role(self, spec: ManifestField, role: str) -> bool:
        return not spec.get(role).is_absent

    def read_replicas(self, spec: ManifestField, role: str) -> int:
        return read_limits(spec.get(role))[0]

    def elastic_ranges(self, spec: ManifestField) -> Mapping[str, ElasticRange]:
        """The range of the trainers, unless `runPolicy.autoscale` is false."""
        trainer = spec.get("trainer")
        if not _may_autoscale(spec):
            return {}
        minimum, maximum = read_limits(trainer)
        limits = ElasticRange(minimum=minimum, maximum=maximum, path=trainer.get("max-instance").path)
        return {"trainer": limits} if minimum < maximum else {}

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        job_spec = super().read(spec, kind)
        self._warn_about_maximums(spec)
        _warn_about_mount_path(spec)
        if ignored := sorted(set(self.fields_without_effect(spec))):
            spec.warning(f"has fields without effect: {', '.join(ignored)}; remove them")
        return job_spec

    def read_roles(self, spec: ManifestField, kind: type[DLJob]) -> tuple[RoleSpec, ...]:
        if spec.get("trainer").is_absent:
            spec.get("trainer").error("is missing; add it with min-instance and entrypoint")
        return tuple(self._read_role(spec, role) for role in kind.replica_types if self.has_role(spec, role.name))

    def replicas_path(self, spec: ManifestField, role: str) -> tuple[str | int, ...] | None:
        return None if spec.get(role.lower()).is_absent else (role.lower(), "min-instance")

    def further_replicas_paths(self, spec: ManifestField, role: str) -> tuple[tuple[str | int, ...], ...]:
        minimum, maximum = read_limits(spec.get(role))
        has_maximum = not spec.get(role).get("max-instance").is_absent
        return ((role, "max-instance"),) if has_maximum and minimum == maximum else ()

    def fields_without_effect(self, spec: ManifestField) -> Iterator[str]:
        """Fields that are set and have no effect, such as unknown ones."""
        yield from () if self.model is None else _ignored_fields(spec, self.model)
        if spec.get("passes").integer(0) and spec.get("trainer").get("passes").integer(0):
            yield "trainer.passes"

    def _read_role(self, spec: ManifestField, role: ReplicaType) -> RoleSpec:
        spec.get(role.name).object()
        is_restarted = role.name == "trainer" and not spec.get("runPolicy").get("backoffLimit").is_absent
        return RoleSpec(
            name=role.name,
            replicas=self.read_replicas(spec, role.name),
            elastic=self.elastic_ranges(spec).get(role.name),
            template=self.read_pod_template(spec, role.name),
            # Without a limit, failed trainers are not restarted.
            restart_policy=RestartPolicy.ON_FAILURE if is_restarted else role.restart_policy,
            container=role.name,
            port=self.read_ports(spec, role.name).start or read_port(spec),
        )

    def _warn_about_maximums(self, spec: ManifestField) -> None:
        for role, noun in (("pserver", "parameter servers"), ("trainer", "trainers")):
            if not self.has_role(spec, role):
                continue
            minimum, (_, maximum) = self.read_replicas(spec, role), read_limits(spec.get(role))
            if maximum < minimum or (maximum > minimum and (role == "pserver" or not _may_autoscale(spec))):
                message = f"is {maximum}, and the number of {noun} is fixed at {minimum}, which is min-instance"
                spec.get(role).get("max-instance").warning(message)


def _may_autoscale(spec: ManifestField) -> bool:
    return spec.get("runPolicy").get("autoscale").boolean(default=True)


def _warn_about_mount_path(spec: ManifestField) -> None:
    field = find_any(spec, "mountPath")
    if field.string() and all(mount.get("mountPath") != field.value for mount in read_mounts(spec)):
        field.warning("has no effect, because the job does not have exactly one volume, or sets VolumeMounts")


def _ignored_fields(field: ManifestField, model: type[Any], *, prefix: str = "") -> Iterator[str]:
    known = {fold(info.alias or name): info for name, info in model.model_fields.items()}
    read: set[str] = set()
    for name, value in field.entries():
        info, is_read_before = known.get(fold(name)), fold(name) in read
        if not value.is_absent:
            read.add(fold(name))
        if info is None or NO_EFFECT in info.metadata or is_read_before:
            yield from (f"{prefix}{name}",) if is_set(value.value) else ()
        elif (nested := _nested_model(info)) is not None:
            yield from _ignored_fields(value, nested, prefix=f"{prefix}{name}.")


def _nested_model(info: FieldInfo) -> type[PaddleModel] | None:
    types = (info.annotation, *get_args(info.annotation))
    return next((each for each in types if isinstance(each, type) and issubclass(each, PaddleModel)), None)
