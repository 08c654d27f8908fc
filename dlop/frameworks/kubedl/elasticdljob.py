"""ElasticDLJob of training.kubedl.io/v1alpha1: a master of ElasticDL, which starts the other pods itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlop import CleanPodPolicy, Replica, ReplicaType, RestartPolicy, RoleSpec
from dlop.frameworks.kubedl.base import COLUMNS, ExitCodes, KubeDLContainer, KubeDLJob, KubeDLNaming, kubedl_type
from dlop.frameworks.kubedl.schema import KubeDLModel, KubeDLSchema, ReplicaSpecs
from dlop.policies import object_name


class ElasticDLJobModel(KubeDLModel):
    """Specification of an ElasticDLJob."""

    elasticdl_replica_specs: ReplicaSpecs
    """Replica specs by role: Master."""


@dataclass(frozen=True, kw_only=True)
class ElasticDLNaming(KubeDLNaming):
    """The master and its pods rely on the name of the master."""

    def pod_name(self, job: KubeDLJob, role: RoleSpec, index: int) -> str:
        return object_name(f"elasticdl-{job.metadata.name}", "-master")

    def service_name(self, job: KubeDLJob, role: RoleSpec, index: int) -> str | None:
        return None


class ElasticDLJob(KubeDLJob):
    """An ElasticDL job. Its master starts the other pods, and the job succeeds with the master."""

    job_type = kubedl_type("ElasticDLJob")
    replica_types = (ReplicaType("Master", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.NEVER),)
    container_properties = KubeDLContainer(name="elasticdl", port=11111, port_name="elasticdl-port")
    schema = KubeDLSchema(field="elasticdlReplicaSpecs", model=ElasticDLJobModel, columns=COLUMNS, clean_pod_policy=CleanPodPolicy.NONE)
    naming = ElasticDLNaming(master_roles=("Master",))
    lifecycle = ExitCodes()

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """The user sets the variables that ElasticDL needs."""
        return {}
