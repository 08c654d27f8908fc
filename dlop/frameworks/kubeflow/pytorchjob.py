"""PyTorchJob of kubeflow.org/v1: a master and workers, or workers only, which can be elastic (`elasticPolicy`).

The environment of a pod has the variables of `torch.distributed` (`MASTER_ADDR`, `RANK`) and those of `torchrun` (`PET_*`).
"""

from __future__ import annotations

from collections.abc import Mapping

from dlop import ContainerProperties, Create, JobType, ManifestField, Progress, Replica, ReplicaState, ReplicaType
from dlop.api.cached_property import cached_property
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.pytorch_elastic import (
    AUTOSCALER_RBAC_RULES,
    ELASTIC_POLICY_RULES,
    ElasticPolicyModel,
    build_autoscalers,
    has_bounds,
    rendezvous_env,
)
from dlop.frameworks.kubeflow.pytorch_init import init_containers
from dlop.frameworks.kubeflow.schema import KubeflowSpec, at_least_one, exactly_one, spec_config, with_replica_specs, worker_scale_paths
from dlop.kube.resources import HORIZONTAL_POD_AUTOSCALERS
from dlop.kube.types import JsonObject


class PyTorchJobModel(KubeflowSpec):
    """Specification of a PyTorchJob."""

    model_config = spec_config(
        exactly_one("pytorchReplicaSpecs", "Master"),
        at_least_one("pytorchReplicaSpecs", "Worker"),
        *ELASTIC_POLICY_RULES,
    )

    elastic_policy: ElasticPolicyModel | None = None
    """Elastic training with `torchrun`."""
    nproc_per_node: str | None = None
    """Number of processes that `torchrun` starts per pod: auto, cpu, gpu or an integer. Defaults to auto."""


class PyTorchJob(KubeflowJob):
    """A PyTorch job. It succeeds with its master; without a master, with all workers, or with any worker if they are elastic."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="PyTorchJob")
    replica_types = (ReplicaType("Master", minimum=1, maximum=1), ReplicaType("Worker"))
    container_properties = ContainerProperties(name="pytorch", port=23456, port_name="pytorchjob-port", required=True)
    framework_label = "pytorch"
    replica_specs_field = "pytorchReplicaSpecs"
    leading_roles = ("Master", "Worker")
    spec_model = with_replica_specs(PyTorchJobModel, field=replica_specs_field, names=leading_roles, container=container_properties.name)
    scale_paths = worker_scale_paths(replica_specs_field)
    child_resources = (HORIZONTAL_POD_AUTOSCALERS,)
    ephemeral_resources = child_resources
    extra_rules = AUTOSCALER_RBAC_RULES

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {**self._common_variables, **self._rank_variables(replica)}

    def child_objects(self) -> tuple[Create, ...]:
        """An autoscaler for the workers if the elastic policy has metrics."""
        name = self.metadata.name
        return build_autoscalers(
            self._elastic, job=self.owner_reference(), metadata=self.child_metadata(name), workers=self.replicas("Worker")
        )

    def updated_children(self, progress: Progress) -> tuple[Create, ...]:
        return self.child_objects()

    def has_elastic_workers(self) -> bool:
        return has_bounds(self._elastic)

    def has_succeeded(self, progress: Progress) -> bool:
        """Elastic workers without a master: the first success is enough, because the others have no work left."""
        workers = progress.role("Worker")
        if self.leading_role == "Worker" and self._elastic.value is not None and workers is not None:
            return workers.count(ReplicaState.SUCCEEDED) > 0
        return super().has_succeeded(progress)

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Adds init containers that wait for the master, if they are configured."""
        if replica.role == "Master" or self.spec.role("Master") is None:
            return pod
        additional, spec = init_containers(self.options, master=self.host("Master")), pod["spec"]
        return {**pod, "spec": {**spec, "initContainers": [*(spec.get("initContainers") or []), *additional]}} if additional else pod

    @cached_property
    def _elastic(self) -> ManifestField:
        return ManifestField("spec", self.raw_spec).get("elasticPolicy")

    @cached_property
    def _processes_per_node(self) -> str:
        value = ManifestField("spec", self.raw_spec).get("nprocPerNode").string()
        return value or ("" if self._elastic.get("nProcPerNode").value is not None else "auto")

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
        port, host = str(self.role_port("Master")), self.host("Master")
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
        policy = self._elastic
        if policy.is_absent:
            return {"PET_NNODES": str(self.total_replicas)}
        return rendezvous_env(policy, host=self.host("Worker"), port=self.role_port("Worker"), workers=self.replicas("Worker"))
