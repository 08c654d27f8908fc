"""PaddleJob of kubeflow.org/v1: workers only (collective training), or workers and masters (parameter servers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlop import ApiModel, Count, FieldRef, JobType, Replica, ReplicaType
from dlop.frameworks.kubeflow.base import KubeflowContainer, KubeflowJob, KubeflowLifecycle, KubeflowNaming, KubeflowStatus
from dlop.frameworks.kubeflow.schema import KubeflowSchema, KubeflowSpec


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
    container_properties = KubeflowContainer(name="paddle", port=36543, port_name="master")
    schema = KubeflowSchema(field="paddleReplicaSpecs", model=PaddleJobModel, scale="Worker")
    naming = KubeflowNaming(master_role="Master")
    lifecycle = KubeflowLifecycle("Master", "Worker")
    status = KubeflowStatus(metric_label="paddle")

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        leader = self.leader or "Worker"
        # The first replica listens on its own address.
        is_first = replica.role == self.leader and replica.index == 0
        return {
            **({"POD_IP_DUMMY": FieldRef("status.podIP")} if is_first else {}),
            "PYTHONUNBUFFERED": "1",
            "PADDLE_JOB_ID": self.metadata.name,
            "PADDLE_NNODES": str(self.total_replicas),
            "PADDLE_MASTER": f"{'$(POD_IP_DUMMY)' if is_first else self.host(leader)}:{self.port(leader)}",
            **self._role_variables(replica),
        }

    def _role_variables(self, replica: Replica) -> dict[str, str]:
        """With parameter servers, each pod is either one server or one trainer."""
        if self.spec.role("Master") is None:
            return {}
        return {"PADDLE_SERVER_NUM": "1"} if replica.role == "Master" else {"PADDLE_TRAINER_NUM": "1"}
