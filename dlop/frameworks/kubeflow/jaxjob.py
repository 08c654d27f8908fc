"""JAXJob of kubeflow.org/v1: processes that `jax.distributed` brings together; the first of them coordinates."""

from __future__ import annotations

from collections.abc import Mapping

from dlop import ContainerProperties, JobType, Replica, ReplicaType, RestartPolicy
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.schema import KubeflowSpec, scaled_by_workers, with_roles


class JAXJobModel(KubeflowSpec):
    """What a JAXJob asks for."""


class JAXJob(KubeflowJob):
    """A JAX job: workers, of which the first coordinates. It is done when all of them are."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="JAXJob")
    replica_types = (ReplicaType("Worker", required=True, restart_policy=RestartPolicy.NEVER),)
    container_properties = ContainerProperties(name="jax", port=6666, port_name="jaxjob-port", required=True)
    framework_label = "jax"
    replica_specs_field = "jaxReplicaSpecs"
    leading_roles = ("Worker",)
    spec_model = with_roles(JAXJobModel, field=replica_specs_field, names=leading_roles, container=container_properties.name)
    scale_paths = scaled_by_workers(replica_specs_field)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """Where the coordinator is, how many processes there are, and which one of them this is."""
        return {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": str(self.port_of("Worker")),
            "COORDINATOR_ADDRESS": self.host("Worker"),
            "NUM_PROCESSES": str(self.total_replicas),
            "PROCESS_ID": str(replica.index),
        }
