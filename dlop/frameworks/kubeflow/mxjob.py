"""MXJob of kubeflow.org/v1: MXNet with a scheduler, servers and workers, or TVM auto-tuning with its three roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dlop import ContainerProperties, JobType, ManifestField, Replica, ReplicaType, RestartPolicy, RoleSpec
from dlop.api.cached_property import cached_property
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.schema import KubeflowSpec, at_most_one, spec_config, with_replica_specs

_ROLES = ("Scheduler", "Server", "Worker", "TunerTracker", "TunerServer", "Tuner")
_TUNER_KEY = "tuner-server-key"
"""Annotation of a pod template with the device key that the role offers or requests."""


class KubeflowMXJobModel(KubeflowSpec):
    """Specification of an MXJob."""

    model_config = spec_config(at_most_one("mxReplicaSpecs", "Scheduler"))

    job_mode: str
    """MXTrain or MXTune. Required for compatibility; the roles determine the mode."""


class MXJob(KubeflowJob):
    """An MXNet job. It succeeds when its scheduler succeeds, and a tuning job when its tuner succeeds."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="MXJob")
    replica_types = tuple(
        ReplicaType(name, maximum=1 if name == "Scheduler" else None, restart_policy=RestartPolicy.NEVER) for name in _ROLES
    )
    container_properties = ContainerProperties(name="mxnet", port=9091, port_name="mxjob-port", required=True)
    framework_label = "mxnet"
    replica_specs_field = "mxReplicaSpecs"
    leading_roles = ("Scheduler", "Tuner", "Worker")
    spec_model = with_replica_specs(
        KubeflowMXJobModel, field=replica_specs_field, names=_ROLES, container=container_properties.name, any_case=True
    )
    scale_paths = None

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """`MX_CONFIG` with all addresses, and the variables of ps-lite."""
        has_scheduler = self.spec.role("Scheduler") is not None
        return {
            "MX_CONFIG": msgspec.json.encode(self._config(replica)).decode(),
            "DMLC_PS_ROOT_PORT": str(self.role_port("Scheduler")) if has_scheduler else "0",
            "DMLC_PS_ROOT_URI": self.host("Scheduler"),
            "DMLC_NUM_SERVER": str(self.replicas("Server")),
            "DMLC_NUM_WORKER": str(self.replicas("Worker")),
            "DMLC_ROLE": replica.role.lower(),
            "DMLC_USE_KUBERNETES": "1",
            **({"DMLC_WORKER_ID": str(replica.index)} if replica.role == "Worker" else {}),
        }

    def is_master(self, role: RoleSpec, index: int) -> bool:
        return role.name == "Server"

    def uses_qualified_name(self) -> bool:
        return False

    def failure_message(self, *, failed: int, role: str) -> str:
        return f"mxjob {self.metadata.name} is failed because {failed} {role} replica(s) failed."

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
        port = self.role_port(role.name)
        return [{"url": self.host(role.name, index), "port": port} for index in range(role.replicas)]


def _tuner_key(role: RoleSpec) -> str:
    return ManifestField("template", role.template).get("metadata").get("annotations").get(_TUNER_KEY).string()
