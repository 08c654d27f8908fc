"""Models are converted to structural schemas. Unsupported models raise an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from dlop.api.parsing import MAX_REPLICAS
from dlop.api.spec import CleanPodPolicy, RestartPolicy, RestartScope
from dlop.api.spec_models import ApiModel, OpenModel, PodTemplate, ReplicaModel, Replicas, RunPolicyModel, problems_from
from dlop.api.structural_schema import ANYTHING, SchemaError, rule, structural_schema, with_rules
from dlop.kube.types import JsonObject


def properties(model: type[BaseModel]) -> JsonObject:
    fields: JsonObject = structural_schema(model)["properties"]
    return fields


class Fields(ApiModel):
    """All kinds of fields."""

    optional_number: int | None = None
    """An optional number."""
    one_of: Literal["red", "green"] = "red"
    fixed: Literal["only"]
    above: Annotated[float, Field(gt=1.5, lt=9)]
    by_name: dict[str, int]
    several: list[str]
    port: int | str
    anything: Any
    kept: OpenModel


def test_every_type_of_field_is_converted() -> None:
    assert properties(Fields) == {
        "optionalNumber": {"type": "integer", "description": "An optional number."},
        "oneOf": {"type": "string", "enum": ["red", "green"]},
        "fixed": {"type": "string", "enum": ["only"]},
        "above": {"type": "number", "minimum": 1.5, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": True},
        "byName": {"type": "object", "additionalProperties": {"type": "integer"}},
        "several": {"type": "array", "items": {"type": "string"}},
        "port": {"x-kubernetes-int-or-string": True},
        "anything": ANYTHING,
        "kept": {"type": "object", "description": OpenModel.__doc__, **ANYTHING},
    }


def test_only_fields_without_a_default_are_required() -> None:
    assert structural_schema(Fields)["required"] == ["fixed", "above", "byName", "several", "port", "anything", "kept"]


def test_defaults_are_not_in_the_schema_because_they_would_be_written_into_the_spec() -> None:
    assert "'default'" not in str(structural_schema(RunPolicyModel))


def test_rules_are_at_the_field_of_the_model() -> None:
    class Ruled(ApiModel):
        size: Annotated[list[int], Field(max_length=3, json_schema_extra=with_rules(rule("self.size() > 0", "must not be empty")))]

    assert properties(Ruled)["size"]["x-kubernetes-validations"] == [{"rule": "self.size() > 0", "message": "must not be empty"}]


class Union(ApiModel):
    """Has a union."""

    value: list[int] | dict[str, int]


class Recursive(ApiModel):
    """Refers to itself."""

    again: Recursive | None = None


class Unsupported(ApiModel):
    """Uses a keyword that structural schemas do not have."""

    value: Annotated[int, Field(json_schema_extra={"if": {"minimum": 3}})]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Union, r"spec\.value is a union"),
        (Recursive, r"spec\.again\.again is recursive|spec\.again is recursive"),
        (Unsupported, r"spec\.value uses if"),
    ],
)
def test_an_unsupported_model_raises_an_error_that_names_the_field(model: type[BaseModel], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        structural_schema(model)


def test_the_enums_of_the_schema_are_those_of_the_planner() -> None:
    policy = properties(RunPolicyModel)
    assert policy["cleanPodPolicy"]["enum"] == ["", *CleanPodPolicy]
    assert policy["restartScope"]["enum"] == list(RestartScope)
    assert properties(ReplicaModel)["restartPolicy"]["enum"] == ["", *RestartPolicy]


def test_the_schema_allows_as_many_replicas_as_the_operator() -> None:
    class Role(ApiModel):
        replicas: Replicas

    assert properties(Role)["replicas"]["maximum"] == MAX_REPLICAS


def test_unknown_fields_of_a_template_are_preserved() -> None:
    schema = structural_schema(PodTemplate)
    container = schema["properties"]["spec"]["properties"]["containers"]["items"]
    assert container["required"] == ["name", "image"]
    for node in (schema, schema["properties"]["spec"], container):
        assert node["x-kubernetes-preserve-unknown-fields"] is True


def test_validation_errors_have_the_path_of_the_field() -> None:
    with pytest.raises(ValidationError) as caught:
        ReplicaModel.model_validate({"replicas": -1, "template": {"spec": {"containers": [{"name": "main"}]}}})
    paths = [problem.path for problem in problems_from(caught.value, under="spec.replicaSpecs.Worker")]
    assert paths == ["spec.replicaSpecs.Worker.replicas", "spec.replicaSpecs.Worker.template.spec.containers[0].image"]
