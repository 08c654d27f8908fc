"""MXJob of kubeflow.org/v1: MXNet with a scheduler, servers and workers, or TVM's tuning with its three roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dlop import ContainerProperties, Field, JobType, Replica, ReplicaType, RestartPolicy, RoleSpec
from dlop.api.schema import rule
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.models import KubeflowSpec, with_roles

_ROLES = ("Scheduler", "Server", "Worker", "TunerTracker", "TunerServer", "Tuner")
_TUNER_KEY = "tuner-server-key"
"""The annotation of a template that names the devices that a role offers or asks for."""
_ONE_SCHEDULER = rule(
    "!('Scheduler' in self) || !has(self['Scheduler'].replicas) || self['Scheduler'].replicas <= 1",
    "must be at most 1",
    field_path=".Scheduler.replicas",
    reason="FieldValueForbidden",
)


class MXJobModel(KubeflowSpec):
    """What an MXJob asks for."""

    job_mode: str
    """MXTrain or MXTune. The roles that there are say the same."""


class MXJob(KubeflowJob):
    """An MXNet job. It is done when its scheduler is; a tuning job when its tuner is."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="MXJob")
    replica_types = tuple(
        ReplicaType(name, maximum=1 if name == "Scheduler" else None, restart_policy=RestartPolicy.NEVER) for name in _ROLES
    )
    container_properties = ContainerProperties(name="mxnet", port=9091, port_name="mxjob-port", required=True)
    replica_specs_field = "mxReplicaSpecs"
    leading_roles = ("Scheduler", "Tuner", "Worker")
    spec_model = with_roles(
        MXJobModel, _ONE_SCHEDULER, field=replica_specs_field, names=_ROLES, container=container_properties.name, any_case=True
    )
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
        found = sorted(self.spec.roles, key=lambda role: role.name.lower())
        return {
            "cluster": {role.name.lower(): self._places(role) for role in found},
            "labels": {role.name.lower(): _tuner_key(role) for role in found},
            "task": {"type": replica.role.lower(), "index": replica.index},
        }

    def _places(self, role: RoleSpec) -> list[dict[str, Any]]:
        port = self.port_of(role.name)
        return [{"url": self.host(role.name, index), "port": port} for index in range(role.replicas)]


def _tuner_key(role: RoleSpec) -> str:
    return Field("template", role.template).get("metadata").get("annotations").get(_TUNER_KEY).text()
