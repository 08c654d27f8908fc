"""CRDs are generated from job classes."""

from __future__ import annotations

import pytest

from dlop import Schema
from dlop.api.crd import SIZE_LIMIT_BYTES, build_crd, build_crds
from dlop.deploy.kustomize import to_yaml
from dlop.frameworks.registry import load_registry
from dlop.kube.types import JsonObject
from tests.kinds_for_crds import KINDS, Anything, ListAsSpec, ListInside, Newer, Plain, TwoVersions, WithRules


def version(crd: JsonObject, index: int = 0) -> JsonObject:
    served: JsonObject = crd["spec"]["versions"][index]
    return served


def spec_schema(crd: JsonObject) -> JsonObject:
    schema: JsonObject = version(crd)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def test_the_names_come_from_the_job_type() -> None:
    crd = build_crd(Plain)
    assert crd["metadata"]["name"] == "ringjobs.crds.dlop.dev"
    assert crd["spec"]["names"] == {
        "kind": "RingJob",
        "listKind": "RingJobList",
        "plural": "ringjobs",
        "singular": "ringjob",
        "shortNames": ["ring"],
        "categories": ["training"],
    }


def test_kubectl_explain_shows_the_docstring_of_the_class() -> None:
    assert version(build_crd(WithRules))["schema"]["openAPIV3Schema"]["description"] == WithRules.__doc__


def test_classes_with_one_plural_are_versions_of_one_crd_and_the_first_is_stored() -> None:
    (crd,) = build_crds([Plain, Newer])
    assert [(served["name"], served["served"], served["storage"]) for served in crd["spec"]["versions"]] == [
        ("v1", True, True),
        ("v2alpha1", True, False),
    ]


def test_further_served_versions_have_the_same_schema() -> None:
    first, second = build_crd(TwoVersions)["spec"]["versions"]
    assert [(served["name"], served["storage"]) for served in (first, second)] == [("v1", True), ("v1alpha1", False)]
    assert {**first, "name": "", "storage": False} == {**second, "name": ""}


def test_only_a_kind_with_one_role_has_a_scale_subresource() -> None:
    assert version(build_crd(Plain))["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicaSpecs.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
    assert version(build_crd(WithRules))["subresources"] == {"status": {}}


def test_a_spec_may_be_a_list_or_anything() -> None:
    assert spec_schema(build_crd(ListAsSpec))["type"] == "array"
    assert spec_schema(build_crd(Anything)) == {"x-kubernetes-preserve-unknown-fields": True}


def test_a_kind_may_restrict_the_names_of_its_jobs() -> None:
    class Restricted(Plain):
        """A job."""

        schema = Schema(name_pattern="^[a-z]+$")

    [version] = build_crd(Restricted)["spec"]["versions"]
    metadata = version["schema"]["openAPIV3Schema"]["properties"]["metadata"]
    assert metadata == {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}}}


def test_columns_are_in_the_order_of_the_class() -> None:
    columns = version(build_crd(ListInside))["additionalPrinterColumns"]
    assert [column["name"] for column in columns] == ["Phase", "State", "Age", "Last Failure"]
    assert columns[0] == {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "Phase of the job"}


@pytest.mark.parametrize("crd", build_crds([*load_registry(), *KINDS]), ids=lambda crd: crd["metadata"]["name"])
def test_every_crd_is_below_the_size_limit_of_kubectl_apply(crd: JsonObject) -> None:
    assert len(to_yaml(crd)) < SIZE_LIMIT_BYTES
