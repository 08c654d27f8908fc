"""PaddleJob of kubeflow.org/v1: workers alone (collective training), or with masters (parameter servers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlop import ContainerProperties, JobType, Replica, ReplicaType, RoleSpec
from dlop.api.spec_models import ApiModel, Count
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.schema import KubeflowSpec, scaled_by_workers, with_roles


class PaddleElasticPolicyModel(ApiModel):
    """Bounds for a number of workers that changes. Kept for manifests that have them."""

    min_replicas: Count | None = None
    max_replicas: Count | None = None
    max_restarts: Count | None = None
    metrics: list[Any] | None = None


class PaddleJobModel(KubeflowSpec):
    """What a PaddleJob asks for."""

    elastic_policy: PaddleElasticPolicyModel | None = None
    """Bounds for a number of workers that changes."""


class PaddleJob(KubeflowJob):
    """A PaddlePaddle job: workers, with or without masters. It is done when the masters are, or else when all workers are."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="PaddleJob")
    replica_types = (ReplicaType("Master"), ReplicaType("Worker"))
    container_properties = ContainerProperties(name="paddle", port=36543, port_name="master", required=True)
    framework_label = "paddle"
    replica_specs_field = "paddleReplicaSpecs"
    leading_roles = ("Master", "Worker")
    spec_model = with_roles(PaddleJobModel, field=replica_specs_field, names=leading_roles, container=container_properties.name)
    scale_paths = scaled_by_workers(replica_specs_field)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """Where the first replica is, and how many there are."""
        leading = self.leading_role or "Worker"
        host = "$(POD_IP_DUMMY)" if self._is_first(replica) else self.host(leading)
        return {
            "PYTHONUNBUFFERED": "1",
            "PADDLE_JOB_ID": self.metadata.name,
            "PADDLE_NNODES": str(self.total_replicas),
            "PADDLE_MASTER": f"{host}:{self.port_of(leading)}",
            **self._part(replica),
        }

    def get_pod_fields(self, replica: Replica) -> Mapping[str, str]:
        """The first one listens on its own address."""
        return {"POD_IP_DUMMY": "status.podIP"} if self._is_first(replica) else {}

    def is_master(self, role: RoleSpec, index: int) -> bool:
        """Every master."""
        return role.name == "Master"

    def _is_first(self, replica: Replica) -> bool:
        return replica.role == self.leading_role and replica.index == 0

    def _part(self, replica: Replica) -> dict[str, str]:
        """With parameter servers, each pod is one of them or one trainer."""
        if self.spec.role("Master") is None:
            return {}
        return {"PADDLE_SERVER_NUM": "1"} if replica.role == "Master" else {"PADDLE_TRAINER_NUM": "1"}
