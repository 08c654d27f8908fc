"""XGBoostJob of training.kubedl.io/v1alpha1: a master and workers."""

from __future__ import annotations

from collections.abc import Mapping

from dlop import CleanPodPolicy, Replica, ReplicaType, RestartPolicy
from dlop.frameworks.kubedl.base import COLUMNS, KubeDLContainer, KubeDLJob, KubeDLLeader, KubeDLNaming, kubedl_type
from dlop.frameworks.kubedl.schema import KubeDLModel, KubeDLSchema, ReplicaSpecs

_TTL_SECONDS = 100


class XGBoostJobModel(KubeDLModel):
    """Specification of an XGBoostJob."""

    xgb_replica_specs: ReplicaSpecs
    """Replica specs by role: Master, Worker."""


class XGBoostJob(KubeDLJob):
    """An XGBoost job with one master and workers. It succeeds when the master succeeds."""

    job_type = kubedl_type("XGBoostJob")
    replica_types = (
        ReplicaType("Master", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.ALWAYS),
        ReplicaType("Worker", restart_policy=RestartPolicy.ALWAYS, start_after="Master"),
    )
    container_properties = KubeDLContainer(name="xgboostjob", port=9999, port_name="xgboostjob-port")
    schema = KubeDLSchema(
        field="xgbReplicaSpecs",
        model=XGBoostJobModel,
        columns=COLUMNS,
        clean_pod_policy=CleanPodPolicy.NONE,
        default_ttl_seconds=_TTL_SECONDS,
    )
    naming = KubeDLNaming(master_roles=("Master",))
    lifecycle = KubeDLLeader("Master")

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """The rank is the index in the role, as for KubeDL."""
        return self.master_variables(RANK=str(replica.index))
