"""XGBoostJob of kubeflow.org/v1: a master and workers, for distributed XGBoost and LightGBM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlop import JobType, JsonObject, Outcome, Reason, Replica, ReplicaType, RestartPolicy, cached_property
from dlop.frameworks.kubeflow.base import KubeflowContainer, KubeflowJob, KubeflowLifecycle, KubeflowStatus
from dlop.frameworks.kubeflow.schema import KubeflowSchema


@dataclass(frozen=True, kw_only=True)
class XGBoostStatus(KubeflowStatus):
    """A finished job has a Running condition even if it was never observed running."""

    def write(self, job: KubeflowJob, outcome: Outcome) -> JsonObject:
        status = super().write(job, outcome)
        *conditions, last = status["conditions"]
        if outcome.reason not in (Reason.SUCCEEDED, Reason.FAILED) or any(each["type"] == "Running" for each in conditions):
            return status
        running = {"type": "Running", "status": "False", "reason": "XGBoostJobRunning", "message": self.running_message(job)}
        return {**status, "conditions": [*conditions, {**last, **running}, last]}


class XGBoostJob(KubeflowJob):
    """An XGBoost job with one master and workers. It succeeds when the master succeeds."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="XGBoostJob")
    replica_types = (
        ReplicaType("Master", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.NEVER),
        ReplicaType("Worker", restart_policy=RestartPolicy.NEVER, shares_port=True),
    )
    container_properties = KubeflowContainer(name="xgboost", port=9999, port_name="xgboostjob-port")
    schema = KubeflowSchema(field="xgbReplicaSpecs")
    lifecycle = KubeflowLifecycle("Master")
    status = XGBoostStatus(metric_label="xgboost")

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {
            "MASTER_PORT": str(self.port("Master")),
            "MASTER_ADDR": self.host("Master"),
            "WORLD_SIZE": str(self.total_replicas),
            "RANK": str(replica.index if replica.role == "Master" else replica.index + self.replicas("Master")),
            "PYTHONUNBUFFERED": "1",
            **self._worker_variables,
        }

    @cached_property
    def _worker_variables(self) -> dict[str, str]:
        if self.total_replicas == 1:
            return {}
        hosts = [self.host("Worker", index) for index in range(self.replicas("Worker"))]
        return {"WORKER_PORT": str(self.port("Worker")), "WORKER_ADDRS": ",".join(hosts)}
