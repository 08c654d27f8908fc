"""MarsJob of training.kubedl.io/v1alpha1: Mars with schedulers, workers and web services."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from pydantic import Field

from dlop import (
    ApiModel,
    CleanPodPolicy,
    DLJob,
    FieldRef,
    JobResult,
    JobSpec,
    JsonObject,
    ManifestField,
    Outcome,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    cached_property,
)
from dlop.frameworks.kubedl.base import COLUMNS, ExitCodes, KubeDLContainer, KubeDLJob, KubeDLNaming, KubeDLStatus, kubedl_type
from dlop.frameworks.kubedl.mars_ingress import WebIngress, web_path
from dlop.frameworks.kubedl.mars_memory import memory_variables, read_memory_policy, with_memory_volumes
from dlop.frameworks.kubedl.schema import KubeDLModel, KubeDLSchema, ReplicaSpecs
from dlop.policies import pod_requests

CONTAINER = "mars"
_PORT = 11111


class MemoryTuningModel(ApiModel):
    """How workers use memory and disks."""

    plasma_store: str | None = None
    """Directory of the shared memory. Defaults to /dev/shm."""
    lock_free_file_io: Annotated[bool | None, Field(alias="lockFreeFileIO")] = None
    """Whether files are written in parallel. Defaults to true."""
    spill_dirs: list[str] | None = None
    """Directories to which data is moved when memory is short. Each is an emptyDir volume."""
    worker_cache_percentage: Annotated[int, Field(ge=0)] | None = None
    """Size of the shared memory as a percentage of the memory of the worker."""
    worker_cache_size: int | str | None = None
    """Size of the shared memory. Takes precedence over the percentage."""


class MarsJobModel(KubeDLModel):
    """Specification of a MarsJob."""

    mars_replica_specs: ReplicaSpecs
    """Replica specs by role: Scheduler, WebService, Worker."""
    worker_memory_tuning_policy: MemoryTuningModel | None = None
    """How workers use memory and disks."""
    web_host: str | None = None
    """Host name under which the web services are reached through an Ingress."""


@dataclass(frozen=True, kw_only=True)
class MarsSchema(KubeDLSchema):
    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        read_memory_policy(spec)
        spec.get("webHost").string()
        return super().read(spec, kind)


class MarsLifecycle(ExitCodes["MarsJob"]):
    """The schedulers decide. The job runs as soon as a worker does."""

    def fixed_roles(self, job: MarsJob) -> tuple[str, ...]:
        """Replicas know the schedulers and web services, but not the workers."""
        return tuple(role.name for role in job.spec.roles if role.name != "Worker")

    def is_running(self, job: MarsJob, progress: Progress) -> bool:
        workers = progress.role("Worker") or progress.role("Scheduler")
        return workers is not None and workers.count(ReplicaState.RUNNING) > 0

    def evaluate(self, job: MarsJob, progress: Progress) -> JobResult | None:
        schedulers = progress.role("Scheduler")
        replicas = () if schedulers is None else schedulers.replicas
        failed = next((replica for replica in replicas if replica.state is ReplicaState.FAILED), None)
        if failed is not None:
            return JobResult(succeeded=False, failed_replica=failed)
        return JobResult(succeeded=True) if self.has_succeeded(job, progress) else None


@dataclass(frozen=True, kw_only=True)
class MarsStatus(KubeDLStatus):
    """Adds the addresses of the web services."""

    def write(self, job: KubeDLJob, outcome: Outcome) -> JsonObject:
        status, host = super().write(job, outcome), job.spec_field.get("webHost").string()
        role = outcome.progress.role("WebService")
        if not host or role is None:
            return status
        names = (job.naming.pod_name(job, role.spec, index) for index in range(role.spec.replicas))
        addresses = [f"{host}{web_path(job.metadata.namespace, name)}" for name in names]
        return {**status, "webServiceAddresses": addresses} if addresses else status


class MarsJob(KubeDLJob):
    """A Mars job with schedulers, workers and web services. It succeeds when all schedulers succeed."""

    job_type = kubedl_type("MarsJob")
    replica_types = (
        ReplicaType("Scheduler", required=True, restart_policy=RestartPolicy.NEVER),
        ReplicaType("WebService", restart_policy=RestartPolicy.ALWAYS, required_for_success=False, start_after="Scheduler"),
        ReplicaType("Worker", restart_policy=RestartPolicy.EXIT_CODE, required_for_success=False, start_after="Scheduler"),
    )
    container_properties = KubeDLContainer(name=CONTAINER, port=_PORT, port_name="mars-port", sets_env_in_all_containers=False)
    schema = MarsSchema(field="marsReplicaSpecs", model=MarsJobModel, columns=COLUMNS, clean_pod_policy=CleanPodPolicy.NONE)
    naming = KubeDLNaming(qualifies_hosts=True)
    lifecycle = MarsLifecycle()
    status = MarsStatus()
    children = (WebIngress(),)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        cpus, memory = worker_resources(replica.spec.template)
        task = {"type": replica.role.lower(), "index": replica.index}
        if replica.role == "Worker":
            total = pod_requests(replica.spec.template["spec"])
            sums = {name: math.ceil(total[name].value) if name in total else 0 for name in ("cpu", "memory")}
            task |= {"resources": {"cpu_procs": sums["cpu"], "phy_mem": sums["memory"]}}
        variables: dict[str, str | FieldRef] = {
            "MARS_CPU_TOTAL": str(cpus),
            "MARS_MEMORY_TOTAL": str(memory),
            "MARS_CPU_USE_PROCESS_STAT": "1",
            "MARS_MEM_USE_CGROUP_STAT": "1",
            "MARS_BIND_PORT": str(_PORT if self.host_port is None else replica.port),
            "MARS_K8S_GROUP_LABELS": "job-name",
            "MARS_CONTAINER_IP": FieldRef("status.podIP"),
            "MARS_K8S_POD_NAME": FieldRef("metadata.name"),
            "MARS_K8S_POD_NAMESPACE": FieldRef("metadata.namespace"),
            "MARS_CLUSTER_DETAIL": msgspec.json.encode({"cluster": self._cluster, "task": task}).decode(),
        }
        return {**variables, **(memory_variables(self.spec_field, memory) if replica.role == "Worker" else {})}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        pod = super().customize_pod(replica, pod)
        if replica.role != "Worker":
            return pod
        _, memory = worker_resources(replica.spec.template)
        return {**pod, "spec": with_memory_volumes(self.spec_field, pod["spec"], container=CONTAINER, memory=memory)}

    @cached_property
    def _cluster(self) -> msgspec.Raw:
        roles = ("Scheduler", "WebService")
        return msgspec.Raw(msgspec.json.encode({role.lower(): self.addresses(role) for role in roles if self.spec.role(role) is not None}))


def worker_resources(template: JsonObject) -> tuple[int, int]:
    """CPUs and memory of the main container: whole cores, rounded up, and bytes. Without a request, the limit counts."""
    containers = template["spec"]["containers"]
    container = next((each for each in containers if each.get("name") == CONTAINER), containers[0])
    requests = pod_requests({"containers": [container]})
    cpus, memory = (math.ceil(requests[name].value) if name in requests else 0 for name in ("cpu", "memory"))
    return cpus, memory
