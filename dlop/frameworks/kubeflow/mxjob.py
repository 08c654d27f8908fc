"""MXJob of kubeflow.org/v1: MXNet with a scheduler, servers and workers, or TVM auto-tuning with its three roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dlop import JobType, ManifestField, Replica, ReplicaType, RestartPolicy, RoleSpec, cached_property
from dlop.frameworks.kubeflow.base import KubeflowContainer, KubeflowJob, KubeflowLifecycle, KubeflowNaming, KubeflowStatus
from dlop.frameworks.kubeflow.schema import KubeflowSchema, KubeflowSpec
from dlop.policies import ps_lite_variables

_PS_LITE = ("DMLC_PS_ROOT_PORT", "DMLC_PS_ROOT_URI", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER", "DMLC_ROLE", "DMLC_USE_KUBERNETES")
"""The variables of ps-lite, in the order of Kubeflow's operator. Another order would change the hash of the pods of existing jobs."""
_TUNER_KEY = "tuner-server-key"
"""Annotation of a pod template with the device key that the role offers or requests."""


class KubeflowMXJobModel(KubeflowSpec):
    """Specification of an MXJob."""

    job_mode: str
    """MXTrain or MXTune. Required for compatibility; the roles determine the mode."""


class MXJob(KubeflowJob):
    """An MXNet job. It succeeds when its scheduler succeeds, and a tuning job when its tuner succeeds."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="MXJob")
    replica_types = (
        ReplicaType("Scheduler", maximum=1, restart_policy=RestartPolicy.NEVER),
        ReplicaType("Server", restart_policy=RestartPolicy.NEVER),
        ReplicaType("Worker", restart_policy=RestartPolicy.NEVER),
        ReplicaType("TunerTracker", restart_policy=RestartPolicy.NEVER),
        ReplicaType("TunerServer", restart_policy=RestartPolicy.NEVER),
        ReplicaType("Tuner", restart_policy=RestartPolicy.NEVER),
    )
    container_properties = KubeflowContainer(name="mxnet", port=9091, port_name="mxjob-port")
    schema = KubeflowSchema(field="mxReplicaSpecs", model=KubeflowMXJobModel, any_case=True)
    naming = KubeflowNaming(master_role="Server")
    lifecycle = KubeflowLifecycle("Scheduler", "Tuner", "Worker")
    status = KubeflowStatus(
        metric_label="mxnet", uses_qualified_name=False, failure_message="mxjob {name} is failed because {count} {role} replica(s) failed."
    )

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """`MX_CONFIG` with all addresses, and the variables of ps-lite."""
        ps_lite = ps_lite_variables(self, replica, scheduler="Scheduler", server="Server", worker="Worker")
        return {
            "MX_CONFIG": msgspec.json.encode(self._config(replica)).decode(),
            **{name: ps_lite[name] for name in _PS_LITE},
            **({"DMLC_WORKER_ID": str(replica.index)} if replica.role == "Worker" else {}),
        }

    def _config(self, replica: Replica) -> dict[str, Any]:
        return {**self._cluster, "task": {"type": replica.role.lower(), "index": replica.index}}

    @cached_property
    def _cluster(self) -> dict[str, msgspec.Raw]:
        """The part that is the same for all replicas, encoded once."""
        roles = sorted(self.spec.roles, key=lambda role: role.name.lower())
        cluster = {role.name.lower(): self._urls(role) for role in roles}
        labels = {role.name.lower(): _tuner_key(role) for role in roles}
        return {"cluster": msgspec.Raw(msgspec.json.encode(cluster)), "labels": msgspec.Raw(msgspec.json.encode(labels))}

    def _urls(self, role: RoleSpec) -> list[dict[str, Any]]:
        return [{"url": self.host(role.name, index), "port": self.port(role.name, index)} for index in range(role.replicas)]


def _tuner_key(role: RoleSpec) -> str:
    return ManifestField("template", role.template).get("metadata").get("annotations").get(_TUNER_KEY).string()
