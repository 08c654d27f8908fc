"""The kinds whose specs are edited, and a kind-independent representation of their specs.

A draft is plain data: `roles` (a list of `name`, `replicas`, `restartPolicy`, `template`), `policy` (the run policy), and
`more` (other fields of the kind). Each kind converts it into its own spec format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import RootModel

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType, Schema
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.frameworks.mpba.mxjob import MXJob as ListedMXJob
from dlop.frameworks.mpba.tfjob import TFJob as ListedTFJob
from dlop.kube.types import JsonObject

Draft = dict[str, Any]


class CrewJob(DLJob):
    """A chief, workers and helpers that know each other's addresses. Uses all defaults of `DLJob`."""

    job_type = JobType(group="edits.dlop.dev", version="v1", kind="CrewJob")
    replica_types = (
        ReplicaType("Chief", maximum=1, required=True),
        ReplicaType("Worker"),
        ReplicaType("Helper", required_for_success=False),
    )
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        crew = (address for role in self.replica_types for address in self.addresses(role.name))
        return {"ME": f"{replica.role}-{replica.index}", "CREW": ",".join(crew)}


class FreeCrewJob(CrewJob):
    """The same without a schema for the spec, so that all errors reach the operator."""

    job_type = JobType(group="edits.dlop.dev", version="v1", kind="FreeCrewJob")
    schema = Schema(model=RootModel[Any])


@dataclass(frozen=True)
class EditedKind:
    """A kind and how its spec is built from a draft."""

    name: str
    framework: type[DLJob]
    container: str
    build_spec: Callable[[Draft], Any]
    has_policy: bool = True
    has_role_list: bool = True
    has_schema: bool = True
    """Whether the CRD has a schema for the spec."""

    @property
    def roles(self) -> tuple[ReplicaType, ...]:
        return self.framework.replica_types

    def role(self, name: str) -> ReplicaType:
        """The role with this name, ignoring case."""
        return next(role for role in self.roles if role.name.casefold() == name.casefold())

    def body(self, draft: Draft, *, name: str) -> JsonObject:
        job_type = self.framework.job_type
        return {"apiVersion": job_type.api_version, "kind": job_type.kind, "metadata": {"name": name}, "spec": self.build_spec(draft)}

    def new_role(self, name: str) -> JsonObject:
        container = {"name": self.container, "image": "example.org/train:1"}
        return {"name": name, "replicas": 1, "template": {"spec": {"containers": [container]}}}


def finishes_immediately(draft: Draft) -> bool:
    """Whether a job with this spec fails at once, so that later edits have no effect."""
    return draft["policy"].get("activeDeadlineSeconds") == 0 and not draft["policy"].get("suspend")


def role_map_spec(draft: Draft) -> JsonObject:
    """`replicaSpecs` is a mapping by role name."""
    roles = {role["name"]: {name: value for name, value in role.items() if name != "name"} for role in draft["roles"]}
    return {"replicaSpecs": roles, "runPolicy": draft["policy"], **draft["more"]}


def role_list_spec(draft: Draft) -> JsonObject:
    """`replicaSpecs` is a list."""
    return {"replicaSpecs": [_list_entry(role, "mxReplicaType") for role in draft["roles"]], "runPolicy": draft["policy"], **draft["more"]}


def list_spec(draft: Draft) -> list[JsonObject]:
    """The spec itself is a list."""
    return [_list_entry(role, "replicaType") for role in draft["roles"]]


def _list_entry(role: JsonObject, type_field: str) -> JsonObject:
    """Kinds with a list of roles have the restart policy in the pod template."""
    entry = {name: value for name, value in role.items() if name not in ("name", "restartPolicy")}
    if "restartPolicy" in role:
        template = entry["template"]
        entry["template"] = {**template, "spec": {**template.get("spec", {}), "restartPolicy": role["restartPolicy"]}}
    return {type_field: role["name"], **entry}


KINDS = (
    EditedKind("crew", CrewJob, "main", role_map_spec, has_role_list=False),
    EditedKind("free-crew", FreeCrewJob, "main", role_map_spec, has_role_list=False, has_schema=False),
    EditedKind("fioravanzo", MXJob, "mxnet", role_list_spec),
    EditedKind("mpba-mx", ListedMXJob, "mxnet", list_spec, has_policy=False),
    EditedKind("mpba-tf", ListedTFJob, "tensorflow", list_spec, has_policy=False),
)
