from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ConfigDict, Field, field_validator

from dlop import (
    CONFIG_MAPS,
    CleanPodPolicy,
    Column,
    ContainerProperties,
    Create,
    DeclarationError,
    DLJob,
    FrameworkFlags,
    JobType,
    ListSchema,
    PermissionSet,
    Replica,
    ReplicaType,
    RestartPolicy,
    RestartScope,
    RoleFieldsSchema,
    Schema,
    StartAfter,
    StartCondition,
)
from dlop.api.types import RULES_EXAMPLE
from dlop.kube.resources import PODS
from dlop.policies import ChildObjects, LeaderRole, Naming

JOB_TYPE = JobType(group="example.org", version="v1", kind="RingJob")
ROLES = (ReplicaType("Worker"),)
CONTAINER = ContainerProperties(name="main")


def environment(self: DLJob, replica: Replica) -> Mapping[str, str]:
    return {"ROLE": replica.role, "JOB": self.metadata.name}


COMPLETE: dict[str, Any] = {
    "job_type": JOB_TYPE,
    "replica_types": ROLES,
    "container_properties": CONTAINER,
    "get_environment_variables": environment,
}


def job_type(**fields: Any) -> JobType:
    return JobType(**({"group": "example.org", "version": "v1", "kind": "RingJob"} | fields))


def schema(**fields: Any) -> Schema:
    return Schema(**fields)


def declare(**changes: Any) -> type[DLJob]:
    attributes = {name: value for name, value in (COMPLETE | changes).items() if value is not None}
    return type("RingJob", (DLJob,), attributes)


def test_four_attributes_declare_a_framework() -> None:
    assert declare().job_type.resource.path(namespace="lab") == "/apis/example.org/v1/namespaces/lab/ringjobs"


@pytest.mark.parametrize(
    ("missing", "hint"),
    [
        ("job_type", 'job_type = JobType(group="example.org", version="v1", kind="RingJob")'),
        ("replica_types", 'replica_types = (ReplicaType("Worker"),)'),
        ("container_properties", 'container_properties = ContainerProperties(name="main", port=7000)'),
        (
            "get_environment_variables",
            "def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]: return {...}",
        ),
    ],
)
def test_a_missing_attribute_is_reported_with_an_example_when_the_class_is_defined(missing: str, hint: str) -> None:
    with pytest.raises(DeclarationError, match="RingJob must") as caught:
        declare(**{missing: None})
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"job_type": "RingJob"},
        {"replica_types": ()},
        {"replica_types": ["Worker"]},
        {"replica_types": ("Worker",)},
        {"replica_types": (ReplicaType("Worker"), ReplicaType("worker"))},
        {"container_properties": {"ports": [7000]}},
        {"schema": "replicaSpecs"},
    ],
)
def test_an_invalid_declaration_is_reported_when_the_class_is_defined(changes: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="RingJob"):
        declare(**changes)


class Roster(ChildObjects[DLJob]):
    """Objects whose resources are not declared."""

    def build(self, job: DLJob) -> tuple[Create, ...]:
        return ()


class PodList(Roster):
    resources = (PODS,)


class Kept(Roster):
    resources = (CONFIG_MAPS,)


class Dropped(Kept):
    is_ephemeral = True


class Unnamed(Roster):
    resources = ("configmaps",)  # type: ignore[assignment]


class NamedRules(Kept):
    rules = ("pods",)  # type: ignore[assignment]


class NamedPermissions(Kept):
    permission_set = "mpi"  # type: ignore[assignment]


class IncompleteFlags(FrameworkFlags):
    image: str


class InvalidDefault(FrameworkFlags):
    image: str = Field(default="", description="An image.")

    @field_validator("image")
    @classmethod
    def _check_image(cls, image: str) -> str:
        if not image:
            raise ValueError("needs a name")
        return image

    model_config = ConfigDict(validate_default=True)


ENVIRONMENT_EXAMPLE = (
    "RingJob must implement get_environment_variables: "
    "def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]: return {...}"
)
POD_EXAMPLE = (
    "RingJob must implement customize_pod: def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject: return {**pod, ...}"
)


def environment_of_a_job(self: DLJob) -> Mapping[str, str]:
    return {"JOB": self.metadata.name}


async def later_environment(self: DLJob, replica: Replica) -> Mapping[str, str]:
    return environment(self, replica)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"naming": Naming}, "RingJob.naming must be an instance, not a class: naming = Naming()"),
        ({"status": "conditions"}, "RingJob must have a class attribute of type Status: status = Status()"),
        ({"get_environment_variables": {"RANK": "0"}}, ENVIRONMENT_EXAMPLE),
        ({"get_environment_variables": environment_of_a_job}, ENVIRONMENT_EXAMPLE),
        ({"get_environment_variables": later_environment}, ENVIRONMENT_EXAMPLE),
        ({"customize_pod": environment}, POD_EXAMPLE),
        ({"lifecyle": LeaderRole("Worker")}, "RingJob.lifecyle is a LeaderRole and would be ignored: lifecycle = LeaderRole(...)"),
        (
            {"schema": Schema(field="")},
            'RingJob.schema needs the field of the spec that contains the roles: Schema(field="replicaSpecs")',
        ),
        ({"schema": Schema(scale="Boss")}, "RingJob.schema has scale='Boss', which is not a role; use one of Worker."),
        ({"children": Roster()}, "RingJob.children must be a tuple of ChildObjects: children = (MyObjects(),)"),
        ({"children": (Roster(),)}, "Roster must list the resources of its objects: resources = (CONFIG_MAPS,)"),
        ({"children": (Unnamed(),)}, "Unnamed must list the resources of its objects: resources = (CONFIG_MAPS,)"),
        (
            {"children": (NamedRules(),)},
            f"NamedRules.rules must be a tuple of RBAC rules: rules = {RULES_EXAMPLE}",
        ),
        (
            {"children": (NamedPermissions(),)},
            'NamedPermissions.permission_set must be a PermissionSet: permission_set = PermissionSet("mpi", (...))',
        ),
        (
            {"replica_types": (ReplicaType("Worker", start_after="Worker"),)},
            "RingJob: ReplicaType 'Worker' waits for itself; remove it from start_after.",
        ),
        (
            {"replica_types": (ReplicaType("Worker", start_after="Boss"),)},
            "RingJob: ReplicaType 'Worker' has start_after='Boss', which is not a role; use one of Worker.",
        ),
        (
            {"replica_types": (ReplicaType("A", start_after="B"), ReplicaType("B", start_after=("C", "A")), ReplicaType("C"))},
            "RingJob: the roles A, B wait for each other; remove one start_after.",
        ),
        ({"lifecycle": LeaderRole("Wrker")}, "RingJob.lifecycle must name roles of the kind: LeaderRole('Worker')"),
        ({"lifecycle": LeaderRole()}, "RingJob.lifecycle must name roles of the kind: LeaderRole('Worker')"),
        (
            {"schema": ListSchema(type_field="type")},
            "RingJob.schema is a ListSchema and needs the model of the spec: ListSchema(model=MySpec, ...)",
        ),
        (
            {"schema": RoleFieldsSchema()},
            "RingJob.schema is a RoleFieldsSchema and needs the model of the spec: RoleFieldsSchema(model=MySpec, ...)",
        ),
        (
            {"children": (PodList(),)},
            "PodList.resources must not contain pods or services, which the operator watches anyway.",
        ),
        (
            {"children": (Kept(), Dropped())},
            "Dropped.is_ephemeral and on_demand must be the same for all children of RingJob with the same resource.",
        ),
        ({"flags": dict}, "RingJob.flags must be a subclass of FrameworkFlags: flags = MyFlags"),
        (
            {"flags": IncompleteFlags},
            "IncompleteFlags.image needs a default and a description: image: str = Field(default='', description='...')",
        ),
        ({"flags": InvalidDefault}, "InvalidDefault must accept its own defaults: needs a name; change a default or the validator."),
    ],
)
def test_a_policy_of_the_wrong_type_is_reported_with_what_to_write(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JobType(group="example", version="v1", kind="RingJob"), "JobType group 'example' must be a domain, like 'example.org'."),
        (lambda: JobType(group="example.org", version="1", kind="RingJob"), "JobType version '1' must be like 'v1' or 'v1alpha1'."),
        (
            lambda: JobType(group="example.org", version="v1", kind="ring job"),
            "JobType kind 'ring job' must be in CamelCase, like 'RingJob'.",
        ),
        (
            lambda: job_type(served_versions=("v1",)),
            "JobType served_versions ('v1',) must be a tuple of other versions, like ('v1alpha1',).",
        ),
        (lambda: job_type(served_versions="v2"), "JobType served_versions 'v2' must be a tuple of other versions"),
        (lambda: job_type(group=None), "JobType group None must be a domain"),
        (lambda: job_type(plural="Ring Jobs"), "JobType plural 'Ring Jobs' must be in lower case, like 'ringjobs'."),
        (lambda: job_type(singular="Ring Job"), "JobType singular 'Ring Job' must be in lower case, like 'ringjob'."),
        (lambda: job_type(short_names="ring"), "JobType short_names 'ring' must be a tuple of names in lower case, like ('ring',)."),
        (lambda: job_type(categories=["all"]), "JobType categories ['all'] must be a tuple of names in lower case, like ('all',)."),
        (lambda: ReplicaType("my worker"), "ReplicaType name 'my worker' must be made of letters, digits and dashes, like 'Worker'."),
        (lambda: ReplicaType(5), "ReplicaType name 5 must be made of letters, digits and dashes"),  # type: ignore[arg-type]
        (lambda: ReplicaType("Worker", minimum=2), "must be 0 <= minimum <= default_replicas <= maximum."),
        (lambda: ReplicaType("Worker", maximum="2"), "must be 0 <= minimum <= default_replicas <= maximum."),  # type: ignore[arg-type]
        (
            lambda: ReplicaType("Worker", restart_policy="Sometimes"),  # type: ignore[arg-type]
            "ReplicaType restart_policy 'Sometimes' must be one of Always, OnFailure, Never, ExitCode.",
        ),
        (
            lambda: ReplicaType("Worker", start_after=5),  # type: ignore[arg-type]
            "start_after=5 must be a role, a StartAfter or a tuple of them.",
        ),
        (lambda: StartAfter("PS", "Done"), "StartAfter condition 'Done' must be one of Running, Ready, Succeeded."),  # type: ignore[arg-type]
        (lambda: StartAfter(5), "StartAfter role 5 must be the name of a role, like 'Worker'."),  # type: ignore[arg-type]
        (lambda: schema(columns=("x",)), "Schema columns ('x',) must be a tuple of Column, like (Column('State', '.status.state'),)."),
        (lambda: schema(model=dict), "Schema model <class 'dict'> must be a pydantic model, like `class RingSpec(ApiModel)`."),
        (lambda: schema(restart_scope="Pod"), "Schema restart_scope 'Pod' must be one of Replica, Role, Job."),
        (lambda: schema(clean_pod_policy="Some"), "Schema clean_pod_policy 'Some' must be one of All, Running, None."),
        (lambda: schema(manager_names="dlop"), "Schema manager_names 'dlop' must be a tuple, like ('dlop',)."),
        (
            lambda: schema(suspend_path="suspend"),
            "Schema suspend_path 'suspend' must be a tuple of fields, like ('runPolicy', 'suspend'), or None.",
        ),
        (lambda: Column("State", "status.state"), "Column path 'status.state' must be a JSONPath, like '.status.state'."),
        (lambda: PermissionSet("My set", ()), "PermissionSet name 'My set' must be in lower case, like 'mpi'."),
        (lambda: PermissionSet("mpi", {}), "PermissionSet 'mpi': the rules must be a tuple of RBAC rules"),  # type: ignore[arg-type]
        (lambda: ContainerProperties(name="Main"), "ContainerProperties name 'Main' must be a DNS label"),
        (
            lambda: ContainerProperties(name="main", port="7000"),  # type: ignore[arg-type]
            "ContainerProperties port '7000' must be a number from 1 to 65535.",
        ),
        (lambda: ContainerProperties(name="main", port=70000), "ContainerProperties port 70000 must be a number from 1 to 65535."),
        (lambda: ContainerProperties(name="main", port_name="a-very-long-port-name"), "must be at most 15 lower-case letters"),
    ],
)
def test_an_invalid_value_is_rejected_with_a_message(make: Any, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert message in str(caught.value)


def test_enums_can_be_declared_by_their_values() -> None:
    role = ReplicaType("Worker", restart_policy="ExitCode", start_after=StartAfter("PS", "Ready"))  # type: ignore[arg-type]
    assert role.restart_policy is RestartPolicy.EXIT_CODE
    assert role.upstream[0].condition is StartCondition.READY
    declared = schema(restart_scope="Job", clean_pod_policy="All")
    assert declared.restart_scope is RestartScope.JOB
    assert declared.clean_pod_policy is CleanPodPolicy.ALL


def test_an_abstract_base_class_need_not_declare_anything() -> None:
    class Shared(DLJob, ABC):
        pass

    assert not hasattr(Shared, "job_type")


def test_plural_and_singular_default_to_the_kind() -> None:
    assert (JOB_TYPE.plural, JOB_TYPE.singular, str(JOB_TYPE)) == ("ringjobs", "ringjob", "example.org/v1 RingJob")


def test_a_declared_kind_has_a_model_columns_and_a_scale_subresource() -> None:
    kind = declare()
    assert [field.alias for field in kind.schema.spec_model(kind).model_fields.values()] == ["runPolicy", "replicaSpecs"]
    assert [column.name for column in kind.schema.columns][:2] == ["State", "Age"]
    scale_paths = kind.schema.scale_paths(kind)
    assert scale_paths is not None
    assert scale_paths.spec_replicas == ".spec.replicaSpecs.Worker.replicas"
