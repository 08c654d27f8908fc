"""PaddleJob of kubeflow.org/v1: workers only (collective training), or workers and masters (parameter servers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlop import ContainerProperties, JobType, Replica, ReplicaType, RoleSpec
from dlop.api.spec_models import ApiModel, Count
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.schema import KubeflowSpec, with_replica_specs, worker_scale_paths


class PaddleElasticPolicyModel(ApiModel):
    """Elastic policy of a PaddleJob. Accepted for compatibility and ignored."""

    min_replicas: Count | None = None
    """Minimum number of workers."""
    max_replicas: Count | None = None
    """Maximum number of workers."""
    max_restarts: Count | None = None
    """Maximum number of restarts."""
    metrics: list[Any] | None = None
    """Metrics for autoscaling."""


class PaddleJobModel(KubeflowSpec):
    """Specification of a PaddleJob."""

    elastic_policy: PaddleElasticPolicyModel | None = None
    """Accepted for compatibility and ignored."""


class PaddleJob(KubeflowJob):
    """A PaddlePaddle job with workers and optional masters. It succeeds when all masters succeed, or without masters all workers."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="PaddleJob")
    replica_types = (ReplicaType("Master"), ReplicaType("Worker"))
    container_properties = ContainerProperties(name="paddle", port=36543, port_name="master", required=True)
    framework_label = "paddle"
    replica_specs_field = "paddleReplicaSpecs"
    leading_roles = ("Master", "Worker")
    spec_model = with_replica_specs(PaddleJobModel, field=replica_specs_field, names=leading_roles, container=container_properties.name)
    scale_paths = worker_scale_paths(replica_specs_field)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        leading = self.leading_role or "Worker"
        host = "$(POD_IP_DUMMY)" if self._is_first(replica) else self.host(leading)
        return {
            "PYTHONUNBUFFERED": "1",
            "PADDLE_JOB_ID": self.metadata.name,
            "PADDLE_NNODES": str(self.total_replicas),
            "PADDLE_MASTER": f"{host}:{self.role_port(leading)}",
            **self._role_variables(replica),
        }

    def get_pod_fields(self, replica: Replica) -> Mapping[str, str]:
        """The first replica listens on its own address."""
        return {"POD_IP_DUMMY": "status.podIP"} if self._is_first(replica) else {}

    def is_master(self, role: RoleSpec, index: int) -> bool:
        return role.name == "Master"

    def _is_first(self, replica: Replica) -> bool:
        return replica.role == self.leading_role and replica.index == 0

    def _role_variables(self, replica: Replica) -> dict[str, str]:
        """With parameter servers, each pod is either one server or one trainer."""
        if self.spec.role("Master") is None:
            return {}
        return {"PADDLE_SERVER_NUM": "1"} if replica.role == "Master" else {"PADDLE_TRAINER_NUM": "1"}
