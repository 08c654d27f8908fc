"""The kinds whose specs are edited in chains, and one neutral way to say what a job asks for.

A wish is plain data: `roles` (a list of `name`, `replicas`, `restartPolicy`, `template`), `policy` (the run policy), and
`more` (whatever else the kind knows). Each kind writes it down in its own dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.frameworks.mpba.mxjob import MXJob as ListedMXJob
from dlop.frameworks.mpba.tfjob import TFJob as ListedTFJob
from dlop.kube.types import JsonObject

Wish = dict[str, Any]


class CrewJob(DLJob):
    """A chief, workers and helpers, who all know each other. It has all that a kind gets without asking."""

    job_type = JobType(group="chains.dlop.dev", version="v1", kind="CrewJob")
    replica_types = (ReplicaType("Chief", maximum=1, required=True), ReplicaType("Worker"), ReplicaType("Helper", decides=False))
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        crew = (address for role in self.replica_types for address in self.addresses(role.name))
        return {"ME": f"{replica.role}-{replica.index}", "CREW": ",".join(crew)}


class FreeCrewJob(CrewJob):
    """The same, but nothing is described in its definition: whatever is wrong gets through to the operator."""

    job_type = JobType(group="chains.dlop.dev", version="v1", kind="FreeCrewJob")
    spec_model = None


@dataclass(frozen=True)
class Kind:
    """What the edits have to know of a kind."""

    name: str
    framework: type[DLJob]
    container: str
    spec_of: Callable[[Wish], Any]
    has_policy: bool = True
    roles_are_listed: bool = True
    is_described: bool = True
    """Whether the API server knows what a spec looks like."""

    @property
    def roles(self) -> tuple[ReplicaType, ...]:
        """All roles that a job of this kind may have."""
        return self.framework.replica_types

    def role(self, name: str) -> ReplicaType:
        """The role of that name, whatever the case of its letters."""
        return next(role for role in self.roles if role.name.casefold() == name.casefold())

    def body(self, wish: Wish, *, name: str) -> JsonObject:
        """The custom resource."""
        job_type = self.framework.job_type
        return {"apiVersion": job_type.api_version, "kind": job_type.kind, "metadata": {"name": name}, "spec": self.spec_of(wish)}

    def new_role(self, name: str) -> JsonObject:
        """One replica with a plain template."""
        container = {"name": self.container, "image": "example.org/train:1"}
        return {"name": name, "replicas": 1, "template": {"spec": {"containers": [container]}}}


def ends(wish: Wish) -> bool:
    """Whether a job that asks for this is over at once, so that no later edit matters."""
    return wish["policy"].get("activeDeadlineSeconds") == 0 and not wish["policy"].get("suspend")


def by_role(wish: Wish) -> JsonObject:
    """`replicaSpecs` is a mapping, as in most kinds."""
    roles = {role["name"]: {name: value for name, value in role.items() if name != "name"} for role in wish["roles"]}
    return {"replicaSpecs": roles, "runPolicy": wish["policy"], **wish["more"]}


def listed_in_spec(wish: Wish) -> JsonObject:
    """`replicaSpecs` is a list."""
    return {"replicaSpecs": [_entry(role, "mxReplicaType") for role in wish["roles"]], "runPolicy": wish["policy"], **wish["more"]}


def bare_list(wish: Wish) -> list[JsonObject]:
    """The spec is the list."""
    return [_entry(role, "replicaType") for role in wish["roles"]]


def _entry(role: JsonObject, type_field: str) -> JsonObject:
    """Early kinds have the restart policy in the template."""
    entry = {name: value for name, value in role.items() if name not in ("name", "restartPolicy")}
    if "restartPolicy" in role:
        template = entry["template"]
        entry["template"] = {**template, "spec": {**template.get("spec", {}), "restartPolicy": role["restartPolicy"]}}
    return {type_field: role["name"], **entry}


KINDS = (
    Kind("crew", CrewJob, "main", by_role, roles_are_listed=False),
    Kind("free-crew", FreeCrewJob, "main", by_role, roles_are_listed=False, is_described=False),
    Kind("fioravanzo", MXJob, "mxnet", listed_in_spec),
    Kind("mpba-mx", ListedMXJob, "mxnet", bare_list, has_policy=False),
    Kind("mpba-tf", ListedTFJob, "tensorflow", bare_list, has_policy=False),
)
