"""XGBoostJob of kubeflow.org/v1: a master and workers, for distributed XGBoost and LightGBM."""

from __future__ import annotations

from collections.abc import Mapping

from dlop import ContainerProperties, JobType, Outcome, Replica, ReplicaType, RestartPolicy
from dlop.api.cached_property import cached_property
from dlop.api.constants import Reason
from dlop.api.schema import rule
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.schema import KubeflowSpec, exactly_one, spec_config, with_replica_specs
from dlop.kube.types import JsonObject


class XGBoostJobModel(KubeflowSpec):
    """Specification of an XGBoostJob."""

    model_config = spec_config(
        rule("'Master' in self.xgbReplicaSpecs", "must be present", field_path=".xgbReplicaSpecs.Master", reason="FieldValueRequired"),
        exactly_one("xgbReplicaSpecs", "Master"),
    )


class XGBoostJob(KubeflowJob):
    """An XGBoost job with one master and workers. It succeeds when the master succeeds."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="XGBoostJob")
    replica_types = (
        ReplicaType("Master", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.NEVER),
        ReplicaType("Worker", restart_policy=RestartPolicy.NEVER),
    )
    container_properties = ContainerProperties(name="xgboost", port=9999, port_name="xgboostjob-port", required=True)
    framework_label = "xgboost"
    replica_specs_field = "xgbReplicaSpecs"
    leading_roles = ("Master",)
    spec_model = with_replica_specs(
        XGBoostJobModel, field=replica_specs_field, names=("Master", "Worker"), container=container_properties.name
    )
    scale_paths = None

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {
            "MASTER_PORT": str(self.role_port("Master")),
            "MASTER_ADDR": self.host("Master"),
            "WORLD_SIZE": str(self.total_replicas),
            "RANK": str(replica.index if replica.role == "Master" else replica.index + self.replicas("Master")),
            "PYTHONUNBUFFERED": "1",
            **self._worker_variables,
        }

    def write_status(self, outcome: Outcome) -> JsonObject:
        """A finished job of this kind has a Running condition even if it was never observed running."""
        status = super().write_status(outcome)
        *conditions, last = status["conditions"]
        if outcome.reason not in (Reason.SUCCEEDED, Reason.FAILED) or any(each["type"] == "Running" for each in conditions):
            return status
        running = {"type": "Running", "status": "False", "reason": "XGBoostJobRunning", "message": self.running_message()}
        return {**status, "conditions": [*conditions, {**last, **running}, last]}

    @cached_property
    def _worker_variables(self) -> dict[str, str]:
        if self.total_replicas == 1:
            return {}
        hosts = [self.host("Worker", index) for index in range(self.replicas("Worker"))]
        return {"WORKER_PORT": str(self.role_port("Worker")), "WORKER_ADDRS": ",".join(hosts)}
