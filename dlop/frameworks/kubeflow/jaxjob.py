"""JAXJob of kubeflow.org/v1: workers for `jax.distributed`, with worker 0 as coordinator."""

from __future__ import annotations

from collections.abc import Mapping

from dlop import ContainerProperties, JobType, Replica, ReplicaType, RestartPolicy
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.schema import KubeflowSpec, with_replica_specs, worker_scale_paths


class JAXJobModel(KubeflowSpec):
    """Specification of a JAXJob."""


class JAXJob(KubeflowJob):
    """A JAX job with workers. Worker 0 is the coordinator. It succeeds when all workers succeed."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="JAXJob")
    replica_types = (ReplicaType("Worker", required=True, restart_policy=RestartPolicy.NEVER),)
    container_properties = ContainerProperties(name="jax", port=6666, port_name="jaxjob-port", required=True)
    framework_label = "jax"
    replica_specs_field = "jaxReplicaSpecs"
    leading_roles = ("Worker",)
    spec_model = with_replica_specs(JAXJobModel, field=replica_specs_field, names=leading_roles, container=container_properties.name)
    scale_paths = worker_scale_paths(replica_specs_field)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": str(self.role_port("Worker")),
            "COORDINATOR_ADDRESS": self.host("Worker"),
            "NUM_PROCESSES": str(self.total_replicas),
            "PROCESS_ID": str(replica.index),
        }
