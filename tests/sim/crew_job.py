"""A framework with a chief and workers, and manifests of jobs in several dialects."""

from __future__ import annotations

from collections.abc import Mapping

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType
from dlop.frameworks.fioravanzo.mxjob import MXJob as FioravanzoMXJob
from dlop.frameworks.mpba.mxjob import MXJob as MpbaMXJob
from dlop.frameworks.mpba.tfjob import TFJob as MpbaTFJob
from dlop.kube.types import JsonObject


class CrewJob(DLJob):
    """A chief and its workers, with dlop's default schema and status."""

    job_type = JobType("crew.dlop.dev", "v1", "CrewJob", short_names=("crew",))
    replica_types = (ReplicaType("Chief", maximum=1), ReplicaType("Worker"))
    container_properties = ContainerProperties("main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"RANK": str(replica.index)}


KINDS = (CrewJob, FioravanzoMXJob, MpbaMXJob, MpbaTFJob)
FRAMEWORK = ("--framework", "tests.sim.crew_job:CrewJob")


def template(name: str = "main") -> JsonObject:
    return {"spec": {"containers": [{"name": name, "image": "any"}]}}


def crew(
    name: str, *, namespace: str | None = None, policy: JsonObject | None = None, restart: str = "Never", workers: int = 2
) -> JsonObject:
    roles = {
        "Chief": {"replicas": 1, "restartPolicy": restart, "template": template()},
        "Worker": {"replicas": workers, "restartPolicy": restart, "template": template()},
    }
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    spec = {"replicaSpecs": roles} | ({"runPolicy": policy} if policy else {})
    return {"apiVersion": "crew.dlop.dev/v1", "kind": "CrewJob", "metadata": metadata, "spec": spec}


def mxjob(name: str) -> JsonObject:
    """An MXJob of fioravanzo.org, whose roles are a list in its spec."""
    roles = [{"replicas": 1, "mxReplicaType": role, "template": template("mxnet")} for role in ("SCHEDULER", "SERVER", "WORKER")]
    return {"apiVersion": "fioravanzo.org/v1alpha1", "kind": "MXJob", "metadata": {"name": name}, "spec": {"replicaSpecs": roles}}


def mpba_mxjob(name: str) -> JsonObject:
    """An MXJob of mpba.fbk.eu, whose spec is a list."""
    roles = [{"replicas": 1, "replicaType": role, "template": template()} for role in ("SCHEDULER", "SERVER", "WORKER")]
    return {"apiVersion": "mpba.fbk.eu/v1", "kind": "MXJob", "metadata": {"name": name}, "spec": roles}
