"""Common base class of the kinds of mpba.fbk.eu: names begin with the role, and the spec is a list of roles without a run policy."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping

from pydantic import BaseModel

from dlop import DLJob, JsonObject, ListSchema, Replica, RoleSpec
from dlop.policies import REPLICA_TYPE_LABEL, Naming, dns_label, label_value


def entries_schema(model: type[BaseModel]) -> ListSchema:
    """The schema of a spec that is a list of `{replicas, replicaType, template}`."""
    return ListSchema(field="", type_field="replicaType", model=model, scale="", suspend_path=None)


class RoleFirstNaming(Naming[DLJob]):
    """Pods are named `<type>-<job>-<index>`, and services `<type>-<job>-<index>-service`."""

    def pod_name(self, job: DLJob, role: RoleSpec, index: int) -> str:
        return dns_label(_prefix(job, role), f"-{index}")

    def service_name(self, job: DLJob, role: RoleSpec, index: int) -> str:
        return dns_label(_prefix(job, role), f"-{index}-service")

    def role_labels(self, job: DLJob, role: RoleSpec) -> Mapping[str, str]:
        """The role label is an extension of dlop."""
        return {"job_name": label_value(job.metadata.name), REPLICA_TYPE_LABEL: role.name.lower()}

    def labels(self, job: DLJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {"job_name": label_value(job.metadata.name), "pod_name": self.pod_name(job, role, index)}

    def pod_labels(self, job: DLJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return self.role_labels(job, role)

    def service_labels(self, job: DLJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {"job_name": label_value(job.metadata.name), "service_name": self.service_name(job, role, index)}


class EntriesJob(DLJob, ABC):
    """A job of mpba.fbk.eu."""

    naming = RoleFirstNaming()

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """The default host name is the pod name."""
        return {**pod, "spec": {"hostname": replica.name, **pod["spec"]}}


def _prefix(job: DLJob, role: RoleSpec) -> str:
    return f"{role.name}-{job.metadata.name}".casefold()
