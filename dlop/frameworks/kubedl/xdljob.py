"""XDLJob of training.kubedl.io/v1alpha1: X-DeepLearning with parameter servers, a scheduler and workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from pydantic import Field

from dlop import (
    CleanPodPolicy,
    Count,
    DLJob,
    JobSpec,
    JsonObject,
    ManifestField,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    cached_property,
)
from dlop.frameworks.kubedl.base import COLUMNS, ExitCodes, KubeDLContainer, KubeDLJob, kubedl_type
from dlop.frameworks.kubedl.schema import KubeDLModel, KubeDLSchema, ReplicaSpecs

_WORKERS = ("Worker", "ExtendRole")
_DEFAULT_RATE = 90
_BACKOFF_LIMIT = 20
_CONTAINER = "xdl"


class XDLJobModel(KubeDLModel):
    """Specification of an XDLJob."""

    xdl_replica_specs: ReplicaSpecs
    """Replica specs by role: PS, Scheduler, Worker, ExtendRole."""
    min_finish_work_num: Count | None = None
    """Number of workers that must succeed. Defaults to minFinishWorkRate."""
    min_finish_work_rate: Annotated[Count, Field(le=100)] | None = None
    """Percentage of the workers that must succeed. Takes precedence. Defaults to 90 if neither is set."""


@dataclass(frozen=True, kw_only=True)
class XDLSchema(KubeDLSchema):
    """A job without workers would never have anything to wait for."""

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        job_spec = super().read(spec, kind)
        spec.get("minFinishWorkNum").optional_integer()
        spec.get("minFinishWorkRate").optional_integer(maximum=100)
        if not any(role.name in _WORKERS for role in job_spec.roles):
            spec.get(self.field).error(f"must contain a role that trains: {' or '.join(_WORKERS)}")
        return job_spec


class XDLLifecycle(ExitCodes["XDLJob"]):
    """The job succeeds when enough workers have succeeded."""

    def required_roles(self, job: XDLJob) -> tuple[str, ...]:
        return tuple(role.name for role in job.spec.roles if role.name in _WORKERS)

    def has_succeeded(self, job: XDLJob, progress: Progress) -> bool:
        workers = [role for role in progress.roles if role.spec.name in _WORKERS]
        return sum(role.count(ReplicaState.SUCCEEDED) for role in workers) >= job.needed_workers


class XDLJob(KubeDLJob):
    """An X-DeepLearning job. It succeeds when enough workers succeed (`minFinishWorkRate`)."""

    job_type = kubedl_type("XDLJob")
    replica_types = tuple(ReplicaType(name, restart_policy=RestartPolicy.NEVER) for name in ("PS", "Scheduler", *_WORKERS))
    container_properties = KubeDLContainer(name=_CONTAINER, port=2222, port_name="xdljob-port")
    schema = XDLSchema(
        field="xdlReplicaSpecs",
        model=XDLJobModel,
        columns=COLUMNS,
        clean_pod_policy=CleanPodPolicy.RUNNING,
        default_backoff_limit=_BACKOFF_LIMIT,
    )
    lifecycle = XDLLifecycle()

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"TASK_NAME": replica.role.lower(), "TASK_INDEX": str(replica.index)}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """The cluster is only in the environment of the main container. Paths of ZooKeeper end with the UID of the job."""
        pod = super().customize_pod(replica, pod)
        task = {"type": replica.role.lower(), "index": replica.index}
        config = msgspec.json.encode({"cluster": self._cluster, "task": task}).decode()
        containers = [self._with_paths(container, config=config) for container in pod["spec"]["containers"]]
        return {**pod, "spec": {**pod["spec"], "containers": containers}}

    def _with_paths(self, container: JsonObject, *, config: str) -> JsonObject:
        env = [self._with_path(variable) for variable in container.get("env") or []]
        if container["name"] == _CONTAINER:
            others = (variable for variable in env if variable["name"] != "XDL_CONFIG")
            env = [*others, {"name": "XDL_CONFIG", "value": config}]
        return {**container, "env": env}

    def _with_path(self, variable: JsonObject) -> JsonObject:
        address = variable.get("value")
        if variable["name"] != "ZK_ADDR" or not isinstance(address, str) or not address:
            return variable
        return {**variable, "value": f"{address.rstrip('/')}/{self.metadata.uid}"}

    @cached_property
    def needed_workers(self) -> int:
        """Number of workers that must succeed, at least one."""
        total = sum(self.replicas(role) for role in _WORKERS)
        number = self.spec_field.get("minFinishWorkNum").optional_integer()
        rate = self.spec_field.get("minFinishWorkRate").optional_integer()
        if rate is None and number is None:
            rate = _DEFAULT_RATE
        return max(1, min(total, number or 0) if rate is None else math.ceil(total * rate / 100))

    @cached_property
    def _cluster(self) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode({role.name.lower(): self.addresses(role.name) for role in self.spec.roles}))
