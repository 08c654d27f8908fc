"""Common base class of the kinds of mpba.fbk.eu: `spec` is a list of roles, and names begin with the role."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

from dlop import CleanPodPolicy, DLJob, JobSpec, ManifestField, Replica, RoleSpec, RunPolicy
from dlop.api.constants import REPLICA_TYPE_LABEL
from dlop.api.names import dns_label, label_value
from dlop.api.parsing import listed_role_index, read_listed_roles
from dlop.kube.types import JsonObject


class ListSpecJob(DLJob, ABC):
    """A job whose spec is a list of `{replicas, replicaType, template}`, without a run policy."""

    scale_paths: ClassVar[Any] = None
    suspend_path: ClassVar[Any] = None

    def read_spec(self, spec: ManifestField) -> JobSpec:
        """A role without a restart policy in its template is restarted on failure."""
        roles = read_listed_roles(spec, self.replica_types, self.container_properties, type_field="replicaType")
        return JobSpec(roles=roles, run_policy=RunPolicy(clean_pod_policy=CleanPodPolicy.RUNNING))

    def replicas_path(self, role: str) -> tuple[str | int, ...] | None:
        index = listed_role_index(ManifestField("spec", self.raw_spec), role, type_field="replicaType")
        return None if index is None else (index, "replicas")

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """`<type>-<job>-<index>`."""
        return dns_label(self._prefix(role), f"-{index}")

    def service_name(self, role: RoleSpec, index: int) -> str:
        """`<type>-<job>-<index>-service`."""
        return dns_label(self._prefix(role), f"-{index}-service")

    def role_labels(self, role: RoleSpec) -> Mapping[str, str]:
        """The role label is an extension of dlop."""
        return {"job_name": label_value(self.metadata.name), REPLICA_TYPE_LABEL: role.name.lower()}

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {"job_name": label_value(self.metadata.name), "pod_name": self.replica_name(role, index)}

    def pod_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        return self.role_labels(role)

    def service_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {"job_name": label_value(self.metadata.name), "service_name": self.service_name(role, index)}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """The default host name is the pod name."""
        return {**pod, "spec": {"hostname": replica.name, **pod["spec"]}}

    def _prefix(self, role: RoleSpec) -> str:
        return f"{role.name}-{self.metadata.name}".casefold()
