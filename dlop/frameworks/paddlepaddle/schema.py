"""The spec of a PaddleJob: parameter servers and trainers without pod templates.

Templates are made from the fields of the spec. Spellings of published manifests are accepted. A warning lists fields without effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from dlop import (
    CleanPodPolicy,
    DLJob,
    JobSpec,
    JsonObject,
    ManifestField,
    OpenModel,
    Port,
    Replicas,
    ReplicaType,
    RestartPolicy,
    RoleFieldsSchema,
    RoleSpec,
    RunPolicyModel,
)
from dlop.policies import with_current_resource_names

DEFAULT_PORT = 7164
_DEFAULT_IMAGE = "paddlepaddle/paddlecloud-job"
_COMMANDS = {"pserver": ["paddle_k8s", "start_pserver"], "trainer": ["paddle_k8s", "start_trainer", "fluid"]}
"""Programs of the image, which start the program of the user."""
_MAX_PORTS = 1_000
PortCount = Annotated[int, Field(ge=0, le=_MAX_PORTS)]


class PaddleModel(OpenModel):
    """A part of the spec. Fields are named as the early operator named them."""

    model_config = ConfigDict(alias_generator=None)


class RoleModel(PaddleModel):
    """One role of a PaddleJob."""

    min_instance: Annotated[Replicas | None, Field(alias="min-instance")] = None
    """Number of pods. Defaults to 1."""
    max_instance: Annotated[Replicas | None, Field(alias="max-instance")] = None
    """Maximum number of pods. The number of pods is fixed at min-instance."""
    resources: JsonObject | None = None
    """Resources of the container."""
    image_pull_secrets: Annotated[list[JsonObject] | None, Field(alias="imagePullSecrets")] = None
    """Secrets with which the image is pulled."""


class TrainerModel(RoleModel):
    """Trainers of a PaddleJob."""

    entrypoint: str | None = None
    """Command of the training program, which the image runs."""
    workspace: str | None = None
    """Directory of the training program."""
    passes: int | None = None
    """Number of passes over the data, if passes of the spec is not set."""


class PaddleJobModel(PaddleModel):
    """Specification of a PaddleJob."""

    image: str | None = None
    """Image of all pods."""
    port: Port | None = None
    """First port of each pod. Defaults to 7164."""
    ports_num: PortCount | None = None
    """Number of ports for dense parameters. Defaults to 1."""
    ports_num_for_sparse: PortCount | None = None
    """Number of ports for sparse parameters. Defaults to 1."""
    passes: int | None = None
    """Number of passes over the data. Defaults to 1."""
    host_network: bool | None = None
    """Whether the pods use the network of their nodes."""
    volumes: list[JsonObject] | None = None
    """Volumes of all pods."""
    volume_mounts: Annotated[list[JsonObject] | None, Field(alias="VolumeMounts")] = None
    """Mounts of the volumes in the trainers."""
    mount_path: Annotated[str | None, Field(alias="mountPath")] = None
    """Path at which the trainers mount the only volume, if VolumeMounts is not set."""
    node_selector: Annotated[dict[str, str] | None, Field(alias="NodeSelector")] = None
    """Labels of the nodes on which the pods run."""
    image_pull_secrets: Annotated[list[JsonObject] | None, Field(alias="imagePullSecrets")] = None
    """Secrets with which the image is pulled."""
    pserver: RoleModel | None = None
    """Parameter servers."""
    trainer: TrainerModel
    """Trainers."""
    run_policy: Annotated[RunPolicyModel | None, Field(alias="runPolicy")] = None
    """Run policy of the job."""


_MODELS = {"pserver": RoleModel, "trainer": TrainerModel}


@dataclass(frozen=True, kw_only=True)
class PaddleSchema(RoleFieldsSchema):
    """The number of pods of a role is its `min-instance`."""

    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.ALL

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        job_spec = super().read(spec, kind)
        for role in job_spec.roles:
            _warn_about_maximum(spec.get(role.name))
        if mount := find_any(spec, "mountPath").string():
            _warn_about_mount_path(spec, mount)
        if ignored := sorted(_ignored_fields(spec)):
            spec.warning(f"has fields without effect: {', '.join(ignored)}; remove them")
        return job_spec

    def read_roles(self, spec: ManifestField, kind: type[DLJob]) -> tuple[RoleSpec, ...]:
        _check_common_fields(spec)
        if spec.get("trainer").is_absent:
            spec.get("trainer").error("is missing; add it with min-instance and entrypoint")
        return tuple(_read_role(spec, role) for role in kind.replica_types if not spec.get(role.name).is_absent)

    def replicas_path(self, spec: ManifestField, role: str) -> tuple[str | int, ...] | None:
        return None if spec.get(role.lower()).is_absent else (role.lower(), "min-instance")


def find_any(spec: ManifestField, name: str) -> ManifestField:
    """A field in any spelling: case and underscores do not matter."""
    key = next((key for key, value in spec.entries() if _folded(key) == _folded(name) and not value.is_absent), name)
    return spec.get(key)


def read_port(spec: ManifestField) -> int:
    """The first port of each pod."""
    return spec.get("port").integer(DEFAULT_PORT, minimum=1, maximum=65535)


def read_ports(spec: ManifestField) -> range:
    """All ports of each pod."""
    first = read_port(spec)
    return range(first, first + sum(spec.get(name).integer(1, maximum=_MAX_PORTS) for name in ("ports_num", "ports_num_for_sparse")))


def read_passes(spec: ManifestField) -> int:
    """The published examples have it in the trainer."""
    trainer = spec.get("trainer").get("passes").integer(1)
    return spec.get("passes").integer(trainer)


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _check_common_fields(spec: ManifestField) -> None:
    spec.get("image").string()
    find_any(spec, "hostNetwork").boolean()
    find_any(spec, "nodeSelector").object()
    for name in ("volumes", "volumeMounts", "imagePullSecrets"):
        for item in find_any(spec, name).items():
            item.object()
    last = read_ports(spec).stop - 1
    if last > 65535:
        spec.get("port").error(f"must leave room for all ports; the last one would be {last}, above 65535")


def _read_role(spec: ManifestField, role: ReplicaType) -> RoleSpec:
    field = spec.get(role.name)
    field.object()
    for part in ("limits", "requests"):
        field.get("resources").get(part).object()
    field.get("entrypoint").string()
    field.get("workspace").string()
    is_restarted = role.name == "trainer" and not spec.get("runPolicy").get("backoffLimit").is_absent
    return RoleSpec(
        name=role.name,
        replicas=field.get("min-instance").integer(1, maximum=10_000),
        template={"spec": _drop_empty(_pod_spec(spec, role.name))},
        # Without a limit, the first failed trainer fails the job.
        restart_policy=RestartPolicy.ON_FAILURE if is_restarted else role.restart_policy,
        container=role.name,
        port=read_port(spec),
    )


def _pod_spec(spec: ManifestField, role: str) -> JsonObject:
    container = {
        "name": role,
        "image": spec.get("image").string() or _DEFAULT_IMAGE,
        "imagePullPolicy": "Always",
        "command": _COMMANDS[role],
        "ports": [{"name": f"jobport-{port}", "containerPort": port} for port in read_ports(spec)],
        "resources": spec.get(role).get("resources").object(),
        "volumeMounts": _mounts(spec) if role == "trainer" else [],
    }
    secrets = (spec.get(role), spec)
    return {
        "containers": [with_current_resource_names(_drop_empty(container))],
        "volumes": _values(find_any(spec, "volumes")),
        "nodeSelector": find_any(spec, "nodeSelector").object(),
        "hostNetwork": find_any(spec, "hostNetwork").boolean(),
        "imagePullSecrets": next((values for field in secrets if (values := _values(find_any(field, "imagePullSecrets")))), []),
    }


def _mounts(spec: ManifestField) -> list[Any]:
    mounts, volumes = _values(find_any(spec, "volumeMounts")), _values(find_any(spec, "volumes"))
    path = find_any(spec, "mountPath").string()
    if mounts or not path or len(volumes) != 1:
        return mounts
    return [{"name": volumes[0].get("name"), "mountPath": path}]


def _values(field: ManifestField) -> list[Any]:
    return [item.value for item in field.items() if isinstance(item.value, dict)]


def _drop_empty(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if value}


def _warn_about_maximum(role: ManifestField) -> None:
    minimum, maximum = role.get("min-instance").integer(1), role.get("max-instance").optional_integer()
    if maximum is not None and maximum != minimum:
        role.get("max-instance").warning(f"is {maximum}, and the number of pods is fixed at {minimum}, which is min-instance")


def _warn_about_mount_path(spec: ManifestField, path: str) -> None:
    if all(mount.get("mountPath") != path for mount in _mounts(spec)):
        find_any(spec, "mountPath").warning("has no effect, because the job does not have exactly one volume, or sets VolumeMounts")


def _ignored_fields(spec: ManifestField) -> Iterator[str]:
    yield from _unknown_fields(spec, PaddleJobModel, prefix="")
    for role, model in _MODELS.items():
        yield from _unknown_fields(spec.get(role), model, prefix=f"{role}.")


def _unknown_fields(field: ManifestField, model: type[PaddleModel], *, prefix: str) -> Iterator[str]:
    known = {_folded(info.alias or name) for name, info in model.model_fields.items()}
    yield from (f"{prefix}{name}" for name, value in field.entries() if _folded(name) not in known and not value.is_absent)
