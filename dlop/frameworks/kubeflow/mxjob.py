"""MXJob of kubeflow.org/v1: MXNet with a scheduler, servers and workers, or TVM's tuning with its three roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dlop import ContainerProperties, JobType, ManifestField, Replica, ReplicaType, RestartPolicy, RoleSpec
from dlop.api.cached_property import cached_property
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.schema import KubeflowSpec, at_most_one, rules_of_spec, with_roles

_ROLES = ("Scheduler", "Server", "Worker", "TunerTracker", "TunerServer", "Tuner")
_TUNER_KEY = "tuner-server-key"
"""The annotation of a template that names the devices that a role offers or asks for."""


class MXJobModel(KubeflowSpec):
    """What an MXJob asks for."""

    model_config = rules_of_spec(at_most_one("mxReplicaSpecs", "Scheduler"))

    job_mode: str
    """MXTrain or MXTune. The roles that there are say the same."""


class MXJob(KubeflowJob):
    """An MXNet job. It is done when its scheduler is; a tuning job when its tuner is."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="MXJob")
    replica_types = tuple(
        ReplicaType(name, maximum=1 if name == "Scheduler" else None, restart_policy=RestartPolicy.NEVER) for name in _ROLES
    )
    container_properties = ContainerProperties(name="mxnet", port=9091, port_name="mxjob-port", required=True)
    framework_label = "mxnet"
    replica_specs_field = "mxReplicaSpecs"
    leading_roles = ("Scheduler", "Tuner", "Worker")
    spec_model = with_roles(MXJobModel, field=replica_specs_field, names=_ROLES, container=container_properties.name, any_case=True)
    scale_paths = None

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """The whole cluster (`MX_CONFIG`), and what ps-lite reads."""
        has_scheduler = self.spec.role("Scheduler") is not None
        return {
            "MX_CONFIG": msgspec.json.encode(self._config(replica)).decode(),
            "DMLC_PS_ROOT_PORT": str(self.port_of("Scheduler")) if has_scheduler else "0",
            "DMLC_PS_ROOT_URI": self.host("Scheduler"),
            "DMLC_NUM_SERVER": str(self.replicas("Server")),
            "DMLC_NUM_WORKER": str(self.replicas("Worker")),
            "DMLC_ROLE": replica.role.lower(),
            "DMLC_USE_KUBERNETES": "1",
            **({"DMLC_WORKER_ID": str(replica.index)} if replica.role == "Worker" else {}),
        }

    def is_master(self, role: RoleSpec, index: int) -> bool:
        """Every server."""
        return role.name == "Server"

    def names_namespace(self) -> bool:
        """Never."""
        return False

    def failure_message(self, *, failed: int, role: str) -> str:
        """In the words of this kind."""
        return f"mxjob {self.metadata.name} is failed because {failed} {role} replica(s) failed."

    def _config(self, replica: Replica) -> dict[str, Any]:
        return {**self._cluster, "task": {"type": replica.role.lower(), "index": replica.index}}

    @cached_property
    def _cluster(self) -> dict[str, msgspec.Raw]:
        """What is the same for all replicas, written once."""
        found = sorted(self.spec.roles, key=lambda role: role.name.lower())
        cluster = {role.name.lower(): self._places(role) for role in found}
        labels = {role.name.lower(): _tuner_key(role) for role in found}
        return {"cluster": msgspec.Raw(msgspec.json.encode(cluster)), "labels": msgspec.Raw(msgspec.json.encode(labels))}

    def _places(self, role: RoleSpec) -> list[dict[str, Any]]:
        port = self.port_of(role.name)
        return [{"url": self.host(role.name, index), "port": port} for index in range(role.replicas)]


def _tuner_key(role: RoleSpec) -> str:
    return ManifestField("template", role.template).get("metadata").get("annotations").get(_TUNER_KEY).text()
