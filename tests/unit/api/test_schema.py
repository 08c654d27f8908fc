"""Models become structural schemas, and what cannot be said is refused when the schema is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from dlop.api.parsing import MOST_REPLICAS
from dlop.api.schema import ANYTHING, SchemaError, rule, structural, with_rules
from dlop.api.spec import CleanPodPolicy, RestartPolicy, RestartScope
from dlop.api.spec_models import ApiModel, OpenModel, PodTemplate, ReplicaModel, Replicas, RunPolicyModel, problems_of
from dlop.kube.types import JsonObject


def properties(model: type[BaseModel]) -> JsonObject:
    found: JsonObject = structural(model)["properties"]
    return found


class Colours(ApiModel):
    """All kinds of fields."""

    optional_number: int | None = None
    """A number that may be left out."""
    one_of: Literal["red", "green"] = "red"
    fixed: Literal["only"]
    above: Annotated[float, Field(gt=1.5, lt=9)]
    by_name: dict[str, int]
    several: list[str]
    port: int | str
    anything: Any
    kept: OpenModel


def test_each_kind_of_field_has_its_place_in_a_structural_schema() -> None:
    assert properties(Colours) == {
        "optionalNumber": {"type": "integer", "description": "A number that may be left out."},
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
    assert structural(Colours)["required"] == ["fixed", "above", "byName", "several", "port", "anything", "kept"]


def test_no_default_reaches_the_schema_because_it_would_be_written_into_the_spec() -> None:
    assert "default" not in str(structural(RunPolicyModel)).replace("The kind has a default", "")


def test_rules_stand_where_the_model_has_them() -> None:
    class Ruled(ApiModel):
        size: Annotated[list[int], Field(max_length=3, json_schema_extra=with_rules(rule("self.size() > 0", "say at least one")))]

    assert properties(Ruled)["size"]["x-kubernetes-validations"] == [{"rule": "self.size() > 0", "message": "say at least one"}]


class Either(ApiModel):
    """Of two types."""

    value: list[int] | dict[str, int]


class Loop(ApiModel):
    """Contains itself."""

    again: Loop | None = None


class Unsayable(ApiModel):
    """Uses a word that structural schemas do not have."""

    value: Annotated[int, Field(json_schema_extra={"if": {"minimum": 3}})]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Either, r"spec\.value may be of several types"),
        (Loop, r"spec\.again\.again contains itself|spec\.again contains itself"),
        (Unsayable, r"spec\.value uses if"),
    ],
)
def test_what_a_structural_schema_cannot_say_is_an_error_that_names_the_field(model: type[BaseModel], sentence: str) -> None:
    with pytest.raises(SchemaError, match=sentence):
        structural(model)


def test_the_words_of_the_schema_are_those_of_the_engine() -> None:
    policy = properties(RunPolicyModel)
    assert policy["cleanPodPolicy"]["enum"] == ["", *CleanPodPolicy]
    assert policy["restartScope"]["enum"] == list(RestartScope)
    assert properties(ReplicaModel)["restartPolicy"]["enum"] == ["", *RestartPolicy]


def test_the_schema_takes_as_many_replicas_as_the_operator_does() -> None:
    class Role(ApiModel):
        replicas: Replicas

    assert properties(Role)["replicas"]["maximum"] == MOST_REPLICAS


def test_a_template_is_described_in_part_and_the_rest_is_kept() -> None:
    schema = structural(PodTemplate)
    container = schema["properties"]["spec"]["properties"]["containers"]["items"]
    assert container["required"] == ["name", "image"]
    for place in (schema, schema["properties"]["spec"], container):
        assert place["x-kubernetes-preserve-unknown-fields"] is True


def test_what_a_model_finds_wrong_is_told_with_the_path_of_the_field() -> None:
    with pytest.raises(ValidationError) as refused:
        ReplicaModel.model_validate({"replicas": -1, "template": {"spec": {"containers": [{"name": "main"}]}}})
    paths = [problem.path for problem in problems_of(refused.value, under="spec.replicaSpecs.Worker")]
    assert paths == ["spec.replicaSpecs.Worker.replicas", "spec.replicaSpecs.Worker.template.spec.containers[0].image"]
