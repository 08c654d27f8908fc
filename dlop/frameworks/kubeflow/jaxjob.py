"""JAXJob of kubeflow.org/v1: workers for `jax.distributed`, with worker 0 as coordinator."""

from __future__ import annotations

from collections.abc import Mapping

from dlop import JobType, Replica, ReplicaType, RestartPolicy
from dlop.frameworks.kubeflow.base import KubeflowContainer, KubeflowJob, KubeflowLifecycle, KubeflowStatus
from dlop.frameworks.kubeflow.schema import KubeflowSchema


class JAXJob(KubeflowJob):
    """A JAX job with workers. Worker 0 is the coordinator. It succeeds when all workers succeed."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="JAXJob")
    replica_types = (ReplicaType("Worker", required=True, restart_policy=RestartPolicy.NEVER),)
    container_properties = KubeflowContainer(name="jax", port=6666, port_name="jaxjob-port")
    schema = KubeflowSchema(field="jaxReplicaSpecs", scale="Worker")
    lifecycle = KubeflowLifecycle("Worker")
    status = KubeflowStatus(metric_label="jax")

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": str(self.port("Worker")),
            "COORDINATOR_ADDRESS": self.host("Worker"),
            "NUM_PROCESSES": str(self.total_replicas),
            "PROCESS_ID": str(replica.index),
        }
