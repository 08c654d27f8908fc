"""PyTorchJob of kubeflow.org/v1: a master and workers, or workers alone, which may come and go (`elasticPolicy`).

Each pod is told its place twice: as `torch.distributed` reads it (`MASTER_ADDR`, `RANK`), and as `torchrun` does (`PET_*`).
"""

from __future__ import annotations

from collections.abc import Mapping

from dlop import ContainerProperties, Create, JobType, ManifestField, Progress, Replica, ReplicaState, ReplicaType
from dlop.api.cached_property import cached_property
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.pytorch_elastic import (
    AUTOSCALER_RULES,
    ELASTIC_RULES,
    ElasticPolicyModel,
    autoscalers,
    has_bounds,
    rendezvous,
)
from dlop.frameworks.kubeflow.pytorch_init import init_containers
from dlop.frameworks.kubeflow.schema import KubeflowSpec, at_least_one, exactly_one, rules_of_spec, scaled_by_workers, with_roles
from dlop.kube.resources import HORIZONTAL_POD_AUTOSCALERS
from dlop.kube.types import JsonObject


class PyTorchJobModel(KubeflowSpec):
    """What a PyTorchJob asks for."""

    model_config = rules_of_spec(
        exactly_one("pytorchReplicaSpecs", "Master"),
        at_least_one("pytorchReplicaSpecs", "Worker"),
        *ELASTIC_RULES,
    )

    elastic_policy: ElasticPolicyModel | None = None
    """How workers that come and go find each other."""
    nproc_per_node: str | None = None
    """How many processes `torchrun` starts in a pod: auto, cpu, gpu or a number."""


class PyTorchJob(KubeflowJob):
    """A PyTorch job. It is done when its master is; without one, when all workers are, or with `elasticPolicy` the first of them."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="PyTorchJob")
    replica_types = (ReplicaType("Master", minimum=1, maximum=1), ReplicaType("Worker"))
    container_properties = ContainerProperties(name="pytorch", port=23456, port_name="pytorchjob-port", required=True)
    framework_label = "pytorch"
    replica_specs_field = "pytorchReplicaSpecs"
    leading_roles = ("Master", "Worker")
    spec_model = with_roles(PyTorchJobModel, field=replica_specs_field, names=leading_roles, container=container_properties.name)
    scale_paths = scaled_by_workers(replica_specs_field)
    other_resources = (HORIZONTAL_POD_AUTOSCALERS,)
    passing_resources = other_resources
    extra_rules = AUTOSCALER_RULES

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """Where the master is, how many there are, and which one of them the replica is."""
        return {**self._told_to_all, **self._place(replica)}

    def other_objects(self) -> tuple[Create, ...]:
        """An autoscaler for the workers, where the elastic policy has metrics."""
        name = self.metadata.name
        return autoscalers(self._elastic, job=self.owner_reference(), metadata=self.owned(name), workers=self.replicas("Worker"))

    def changing_objects(self, progress: Progress) -> tuple[Create, ...]:
        """It follows the policy."""
        return self.other_objects()

    def has_elastic_workers(self) -> bool:
        """With an elastic policy that says how many there may be."""
        return has_bounds(self._elastic)

    def is_done(self, progress: Progress) -> bool:
        """As soon as one elastic worker is: the others have nothing left to do."""
        workers = progress.role("Worker")
        if self.leading_role == "Worker" and self._elastic.value is not None and workers is not None:
            return workers.count(ReplicaState.SUCCEEDED) > 0
        return super().is_done(progress)

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Where the operator was told to, workers wait for the name of the master."""
        if replica.role == "Master" or self.spec.role("Master") is None:
            return pod
        added, spec = init_containers(self.options, master=self.host("Master")), pod["spec"]
        return {**pod, "spec": {**spec, "initContainers": [*(spec.get("initContainers") or []), *added]}} if added else pod

    @cached_property
    def _elastic(self) -> ManifestField:
        return ManifestField("spec", self.raw_spec).get("elasticPolicy")

    @cached_property
    def _processes_per_node(self) -> str:
        given = ManifestField("spec", self.raw_spec).get("nprocPerNode").text()
        return given or ("" if self._elastic.get("nProcPerNode").value is not None else "auto")

    @cached_property
    def _told_to_all(self) -> dict[str, str]:
        return {"PYTHONUNBUFFERED": "1", **self._led_by_master(), **self._processes(), **self._nodes()}

    def _place(self, replica: Replica) -> dict[str, str]:
        if self.spec.role("Master") is None:
            return {}
        rank = str(replica.index if replica.role == "Master" else replica.index + 1)
        return {"RANK": rank, "PET_NODE_RANK": rank}

    def _led_by_master(self) -> dict[str, str]:
        if self.spec.role("Master") is None:
            return {}
        port, host = str(self.port_of("Master")), self.host("Master")
        each = self._processes_per_node
        return {
            "MASTER_PORT": port,
            "PET_MASTER_PORT": port,
            "MASTER_ADDR": host,
            "PET_MASTER_ADDR": host,
            "WORLD_SIZE": str(self.total_replicas * (int(each) if each.isdecimal() else 1)),
        }

    def _processes(self) -> dict[str, str]:
        given = self._processes_per_node
        return {"PET_NPROC_PER_NODE": given} if given else {}

    def _nodes(self) -> dict[str, str]:
        policy = self._elastic
        if policy.is_absent:
            return {"PET_NNODES": str(self.total_replicas)}
        return rendezvous(policy, host=self.host("Worker"), port=self.port_of("Worker"), workers=self.replicas("Worker"))
