"""PyTorchJob of kubeflow.org/v1: a master and workers, or workers only, which can be elastic (`elasticPolicy`).

The environment of a pod has the variables of `torch.distributed` (`MASTER_ADDR`, `RANK`) and those of `torchrun` (`PET_*`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlop import (
    HORIZONTAL_POD_AUTOSCALERS,
    Create,
    ElasticRange,
    JobType,
    JsonObject,
    ManifestField,
    PermissionSet,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    cached_property,
)
from dlop.frameworks.kubeflow.base import KubeflowContainer, KubeflowJob, KubeflowLifecycle, KubeflowStatus
from dlop.frameworks.kubeflow.pytorch_elastic import ELASTIC_POLICY_RULES, ElasticPolicyModel, elastic_bounds, has_bounds, rendezvous_env
from dlop.frameworks.kubeflow.pytorch_init import PyTorchFlags, init_containers
from dlop.frameworks.kubeflow.schema import KubeflowSchema, KubeflowSpec, replicas_rule, spec_config
from dlop.policies import ChildObjects


class PyTorchJobModel(KubeflowSpec):
    """Specification of a PyTorchJob."""

    model_config = spec_config(
        replicas_rule("pytorchReplicaSpecs", "Worker", ">= 1", "must be at least 1"),
        *ELASTIC_POLICY_RULES,
    )

    elastic_policy: ElasticPolicyModel | None = None
    """Elastic training with `torchrun`."""
    nproc_per_node: str | None = None
    """Number of processes that `torchrun` starts per pod: auto, cpu, gpu or an integer. Defaults to auto."""


@dataclass(frozen=True, kw_only=True)
class PyTorchSchema(KubeflowSchema):
    """The elastic policy has the range of the workers."""

    def elastic_ranges(self, spec: ManifestField) -> Mapping[str, ElasticRange]:
        policy = spec.get("elasticPolicy")
        if not policy.get("metrics").is_absent:
            policy.get("metrics").error("must not be set together with runPolicy.autoscale; remove one of the two")
        minimum, maximum = elastic_bounds(policy, 0)
        return {"Worker": ElasticRange(minimum=minimum, maximum=maximum, path=policy.get("maxReplicas").path)} if minimum < maximum else {}


class PyTorchLifecycle(KubeflowLifecycle["PyTorchJob"]):
    """Elastic workers without a master: the first success is enough, because the others have no work left."""

    def has_elastic_workers(self, job: PyTorchJob) -> bool:
        return has_bounds(job.elastic_policy)

    def has_succeeded(self, job: PyTorchJob, progress: Progress) -> bool:
        workers = progress.role("Worker")
        if job.leader == "Worker" and not job.elastic_policy.is_absent and workers is not None:
            return workers.count(ReplicaState.SUCCEEDED) > 0
        return super().has_succeeded(job, progress)


_AUTOSCALER_RULE: JsonObject = {
    "apiGroups": [HORIZONTAL_POD_AUTOSCALERS.group],
    "resources": [HORIZONTAL_POD_AUTOSCALERS.plural],
    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
}


class Autoscaler(ChildObjects["PyTorchJob"]):
    """A HorizontalPodAutoscaler for the workers, if the elastic policy has metrics."""

    resources = (HORIZONTAL_POD_AUTOSCALERS,)
    is_ephemeral = True
    permission_set = PermissionSet("hpa", (_AUTOSCALER_RULE,))

    def build(self, job: PyTorchJob) -> tuple[Create, ...]:
        policy, name = job.elastic_policy, job.metadata.name
        metrics = policy.get("metrics")
        if metrics.is_absent:
            return ()
        minimum, maximum = elastic_bounds(policy, job.replicas("Worker"))
        target = {"apiVersion": job.job_type.api_version, "kind": job.job_type.kind, "name": name}
        body: JsonObject = {
            "apiVersion": HORIZONTAL_POD_AUTOSCALERS.api_version,
            "kind": HORIZONTAL_POD_AUTOSCALERS.kind,
            "metadata": job.child_metadata(name),
            "spec": {"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": maximum, "metrics": metrics.value},
        }
        return (Create(HORIZONTAL_POD_AUTOSCALERS, body),)

    def update(self, job: PyTorchJob, progress: Progress) -> tuple[Create, ...]:
        return self.build(job)


class PyTorchJob(KubeflowJob):
    """A PyTorch job. It succeeds with its master; without a master, with all workers, or with any worker if they are elastic."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="PyTorchJob")
    replica_types = (ReplicaType("Master", minimum=1, maximum=1), ReplicaType("Worker"))
    container_properties = KubeflowContainer(name="pytorch", port=23456, port_name="pytorchjob-port")
    schema = PyTorchSchema(field="pytorchReplicaSpecs", model=PyTorchJobModel, scale="Worker")
    lifecycle = PyTorchLifecycle("Master", "Worker")
    status = KubeflowStatus(metric_label="pytorch")
    children = (Autoscaler(),)
    flags = PyTorchFlags

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {**self._common_variables, **self._rank_variables(replica)}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Adds init containers that wait for the master, if they are configured."""
        if replica.role == "Master" or self.spec.role("Master") is None:
            return pod
        additional, spec = init_containers(self.options.flags(PyTorchFlags), master=self.host("Master")), pod["spec"]
        return {**pod, "spec": {**spec, "initContainers": [*(spec.get("initContainers") or []), *additional]}} if additional else pod

    @cached_property
    def elastic_policy(self) -> ManifestField:
        """`spec.elasticPolicy`, which may be absent."""
        return self.spec_field.get("elasticPolicy")

    @cached_property
    def _processes_per_node(self) -> str:
        value = self.spec_field.get("nprocPerNode").string()
        return value or ("auto" if self.elastic_policy.get("nProcPerNode").is_absent else "")

    @cached_property
    def _common_variables(self) -> dict[str, str]:
        return {"PYTHONUNBUFFERED": "1", **self._master_variables(), **self._process_variables(), **self._node_variables()}

    def _rank_variables(self, replica: Replica) -> dict[str, str]:
        if self.spec.role("Master") is None:
            return {}
        rank = str(replica.index if replica.role == "Master" else replica.index + 1)
        return {"RANK": rank, "PET_NODE_RANK": rank}

    def _master_variables(self) -> dict[str, str]:
        if self.spec.role("Master") is None:
            return {}
        port, host = str(self.port("Master")), self.host("Master")
        processes = self._processes_per_node
        return {
            "MASTER_PORT": port,
            "PET_MASTER_PORT": port,
            "MASTER_ADDR": host,
            "PET_MASTER_ADDR": host,
            "WORLD_SIZE": str(self.total_replicas * (int(processes) if processes.isdecimal() else 1)),
        }

    def _process_variables(self) -> dict[str, str]:
        processes = self._processes_per_node
        return {"PET_NPROC_PER_NODE": processes} if processes else {}

    def _node_variables(self) -> dict[str, str]:
        policy = self.elastic_policy
        if policy.is_absent:
            return {"PET_NNODES": str(self.total_replicas)}
        return rendezvous_env(policy, host=self.host("Worker"), port=self.port("Worker"), workers=self.replicas("Worker"))
