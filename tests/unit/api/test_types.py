from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any

import pytest

from dlop import (
    CONFIG_MAPS,
    ContainerProperties,
    Create,
    DeclarationError,
    DLJob,
    FrameworkFlags,
    JobType,
    ListSchema,
    Replica,
    ReplicaType,
    Schema,
    StartAfter,
)
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


class IncompleteFlags(FrameworkFlags):
    image: str


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"naming": Naming}, "RingJob.naming must be an instance, not a class: naming = Naming()"),
        ({"status": "conditions"}, "RingJob must have a class attribute of type Status: status = Status()"),
        ({"schema": Schema(scale="Boss")}, "RingJob.schema has scale='Boss', which is not a role; use one of Worker."),
        ({"children": Roster()}, "RingJob.children must be a tuple of ChildObjects: children = (MyObjects(),)"),
        ({"children": (Roster(),)}, "Roster must list the resources of its objects: resources = (CONFIG_MAPS,)"),
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
            {"children": (PodList(),)},
            "PodList.resources must not contain pods or services, which the operator watches anyway.",
        ),
        (
            {"children": (Kept(), Dropped())},
            "Dropped.is_ephemeral must be the same for all children of RingJob with the same resource.",
        ),
        ({"flags": dict}, "RingJob.flags must be a subclass of FrameworkFlags: flags = MyFlags"),
        (
            {"flags": IncompleteFlags},
            "IncompleteFlags.image needs a default and a description: image: str = Field(default='', description='...')",
        ),
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
        (lambda: ReplicaType("my worker"), "ReplicaType name 'my worker' must be made of letters and digits, like 'Worker'."),
        (lambda: ReplicaType("Worker", minimum=2), "must be 0 <= minimum <= default_replicas <= maximum."),
        (
            lambda: ReplicaType("Worker", start_after=5),  # type: ignore[arg-type]
            "start_after=5 must be a role, a StartAfter or a tuple of them.",
        ),
        (lambda: StartAfter("PS", "Done"), "StartAfter condition 'Done' must be one of Running, Ready, Succeeded."),  # type: ignore[arg-type]
        (lambda: Schema(columns=("x",)), "Schema columns must be a tuple of Column"),  # type: ignore[arg-type]
        (lambda: Schema(suspend_path="suspend"), "Schema suspend_path must be a tuple of fields"),  # type: ignore[arg-type]
        (lambda: ContainerProperties(name="Main"), "ContainerProperties name 'Main' must be a DNS label"),
        (lambda: ContainerProperties(name="main", port=70000), "ContainerProperties port 70000 must be a number from 1 to 65535."),
        (lambda: ContainerProperties(name="main", port_name="a-very-long-port-name"), "must be at most 15 lower-case letters"),
    ],
)
def test_an_invalid_value_is_rejected_with_a_message(make: Any, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert message in str(caught.value)


def test_an_abstract_base_class_need_not_declare_anything() -> None:
    class Shared(DLJob, ABC):
        pass

    assert not hasattr(Shared, "job_type")


def test_plural_and_singular_default_to_the_kind() -> None:
    assert (JOB_TYPE.plural, JOB_TYPE.singular, str(JOB_TYPE)) == ("ringjobs", "ringjob", "example.org/v1 RingJob")


def test_a_declared_kind_has_a_model_columns_and_a_scale_subresource() -> None:
    kind = declare()
    assert kind.schema.spec_model(kind) is not None
    assert [column.name for column in kind.schema.columns][:2] == ["State", "Age"]
    scale_paths = kind.schema.scale_paths(kind)
    assert scale_paths is not None
    assert scale_paths.spec_replicas == ".spec.replicaSpecs.Worker.replicas"
