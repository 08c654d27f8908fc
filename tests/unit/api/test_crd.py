"""Definitions say what the class says."""

from __future__ import annotations

import pytest

from dlop.api.crd import SIZE_LIMIT_BYTES, definition, definitions
from dlop.deploy.kustomize import to_yaml
from dlop.frameworks.registry import load_registry
from dlop.kube.types import JsonObject
from tests.kinds_for_crds import KINDS, Anything, ListAsSpec, ListInside, Newer, Plain, WithRules


def version(found: JsonObject, index: int = 0) -> JsonObject:
    served: JsonObject = found["spec"]["versions"][index]
    return served


def spec_schema(found: JsonObject) -> JsonObject:
    schema: JsonObject = version(found)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def test_names_are_those_of_the_job_type() -> None:
    found = definition(Plain)
    assert found["metadata"]["name"] == "ringjobs.crds.dlop.dev"
    assert found["spec"]["names"] == {
        "kind": "RingJob",
        "listKind": "RingJobList",
        "plural": "ringjobs",
        "singular": "ringjob",
        "shortNames": ["ring"],
        "categories": ["training"],
    }


def test_the_docstring_of_the_class_is_what_kubectl_explains() -> None:
    assert version(definition(WithRules))["schema"]["openAPIV3Schema"]["description"] == "A job whose roles have limits."


def test_classes_of_one_plural_are_versions_of_one_definition_and_the_first_is_stored() -> None:
    (found,) = definitions([Plain, Newer])
    assert [(each["name"], each["served"], each["storage"]) for each in found["spec"]["versions"]] == [
        ("v1", True, True),
        ("v2alpha1", True, False),
    ]


def test_a_kind_with_one_role_has_a_scale_subresource_and_others_have_none() -> None:
    assert version(definition(Plain))["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicaSpecs.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
    assert version(definition(WithRules))["subresources"] == {"status": {}}


def test_a_spec_may_be_a_list_or_anything() -> None:
    assert spec_schema(definition(ListAsSpec))["type"] == "array"
    assert spec_schema(definition(Anything)) == {"x-kubernetes-preserve-unknown-fields": True}


def test_a_kind_may_be_particular_about_names() -> None:
    class Particular(Plain):
        """A job."""

        name_pattern = "^[a-z]+$"

    [version] = definition(Particular)["spec"]["versions"]
    metadata = version["schema"]["openAPIV3Schema"]["properties"]["metadata"]
    assert metadata == {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}}}


def test_columns_come_in_the_order_of_the_class() -> None:
    columns = version(definition(ListInside))["additionalPrinterColumns"]
    assert [column["name"] for column in columns] == ["Phase", "State", "Age", "Last Failure"]
    assert columns[0] == {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "Where it stands"}


@pytest.mark.parametrize("found", definitions([*load_registry(), *KINDS]), ids=lambda found: found["metadata"]["name"])
def test_every_definition_is_far_below_the_limit_of_kubectl_apply(found: JsonObject) -> None:
    assert len(to_yaml(found)) < SIZE_LIMIT_BYTES
