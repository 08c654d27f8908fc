"""Naming: the names, labels and host names of the pods and services of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from dlop.api.constants import JOB_NAME_LABEL, REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL
from dlop.api.names import dns_label, label_value
from dlop.api.spec import RoleSpec

if TYPE_CHECKING:
    from dlop.job import DLJob

Job = TypeVar("Job", bound="DLJob")


class Naming(Generic[Job]):
    """Names and labels in the style of dlop. Names must be deterministic, because a repeated create must not make a second pod."""

    def pod_name(self, job: Job, role: RoleSpec, index: int) -> str:
        """The name of a replica's pod."""
        return dns_label(job.metadata.name, f"-{role.name.lower()}-{index}")

    def service_name(self, job: Job, role: RoleSpec, index: int) -> str | None:
        """The name of a replica's service; None if the replica has no service."""
        return self.pod_name(job, role, index)

    def host(self, job: Job, role: RoleSpec, index: int) -> str:
        """The host name of a replica: the name of its service, or of its pod if it has no service.

        It is fully qualified if the operator knows the cluster domain.
        """
        service, domain = self.service_name(job, role, index), job.options.cluster_domain
        if service is None:
            return self.pod_name(job, role, index)
        return f"{service}.{job.metadata.namespace}.svc.{domain}" if domain else service

    def role_labels(self, job: Job, role: RoleSpec) -> Mapping[str, str]:
        """Labels that select the pods of a role."""
        return {JOB_NAME_LABEL: label_value(job.metadata.name), REPLICA_TYPE_LABEL: role.name.lower()}

    def labels(self, job: Job, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Labels that select the pod of one replica."""
        return {**self.role_labels(job, role), REPLICA_INDEX_LABEL: str(index)}

    def pod_labels(self, job: Job, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Additional labels of a pod."""
        return {}

    def service_labels(self, job: Job, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Labels of a service."""
        return self.labels(job, role, index)
