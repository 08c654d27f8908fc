"""What the kinds of mpba.fbk.eu share: `spec` is a list of roles, names begin with the role, and services have names of their own."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

from dlop import CleanPodPolicy, DLJob, JobSpec, ManifestField, Replica, RoleSpec, RunPolicy
from dlop.api.constants import REPLICA_TYPE_LABEL
from dlop.api.names import dns_label, label_value
from dlop.api.parsing import listed_at, read_listed_roles
from dlop.kube.types import JsonObject


class ListedJob(DLJob, ABC):
    """A job whose spec is a list of `{replicas, replicaType, template}`. There is no room in it for a run policy."""

    scale_paths: ClassVar[Any] = None
    suspend_path: ClassVar[Any] = None

    def read_spec(self, spec: ManifestField) -> JobSpec:
        """The list. A role without a restart policy in its template is restarted on failure."""
        roles = read_listed_roles(spec, self.replica_types, self.container_properties, type_field="replicaType")
        return JobSpec(roles=roles, run_policy=RunPolicy(clean_pod_policy=CleanPodPolicy.RUNNING))

    def replicas_path(self, role: str) -> tuple[str | int, ...] | None:
        """In the entry of the role."""
        place = listed_at(ManifestField("spec", self.raw_spec), role, type_field="replicaType")
        return None if place is None else (place, "replicas")

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """`<type>-<job>-<index>`."""
        return dns_label(self._base(role), f"-{index}")

    def service_name(self, role: RoleSpec, index: int) -> str:
        """The name of the pod with `-service` behind it."""
        return dns_label(self._base(role), f"-{index}-service")

    def role_labels(self, role: RoleSpec) -> Mapping[str, str]:
        """The job, and the role, which this API has not had as a label before."""
        return {"job_name": label_value(self.metadata.name), REPLICA_TYPE_LABEL: role.name.lower()}

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Job and pod."""
        return {"job_name": label_value(self.metadata.name), "pod_name": self.replica_name(role, index)}

    def pod_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The role."""
        return self.role_labels(role)

    def service_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Job and service."""
        return {"job_name": label_value(self.metadata.name), "service_name": self.service_name(role, index)}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Its host name is its name, unless the user wants another one."""
        return {**pod, "spec": {"hostname": replica.name, **pod["spec"]}}

    def _base(self, role: RoleSpec) -> str:
        return f"{role.name}-{self.metadata.name}".casefold()
