"""CEL validation rules (`x-kubernetes-validations`)."""

from __future__ import annotations

import pytest

from dlop.kube.client import PatchType
from dlop.kube.errors import InvalidError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import crd, crd_version, object_schema
from tests.conformance.crds import LIMITS, limit
from tests.conformance.ratcheting import create_before_rule
from tests.conformance.support import Api, expect_error, validation_error
from tests.kubernetes_versions import since

STATUS_RATCHETING = since("1.33", reason="rules are ratcheted when the status is written")


async def test_an_object_that_satisfies_the_rules_is_created(api: Api) -> None:
    created = await api.create(
        LIMITS, limit("a", low=1, high=2, name="x-ray", items=["abc"], workers={"a": 0, "b": 1}, url="https://example.org", port=8080)
    )
    assert created["spec"]["name"] == "x-ray"


@pytest.mark.parametrize(
    ("spec", "reason", "field", "message"),
    [
        ({"low": 11}, "FieldValueInvalid", "spec", "low must not be above high"),
        ({"name": "ray"}, "FieldValueInvalid", "spec.name", "name must start with x-"),
        ({"items": ["a", "abcd"]}, "FieldValueInvalid", "spec", "too long after a"),
        ({"low": 13, "high": 20}, "FieldValueForbidden", "spec", "low must not be 13"),
        ({"workers": {"a": 0}}, "FieldValueInvalid", "spec", "one worker must be positive"),
        ({"url": "no-url"}, "FieldValueInvalid", "spec", "must be a URL"),
        ({"port": 80}, "FieldValueInvalid", "spec.port", "failed rule: self > 1024"),
    ],
)
async def test_a_violated_rule_is_reported(api: Api, spec: JsonObject, reason: str, field: str, message: str) -> None:
    error = await expect_error(api.create(LIMITS, limit("a", **spec)), InvalidError)
    assert [(cause["reason"], cause["field"]) for cause in error.causes] == [(reason, field)]
    assert error.causes[0]["message"].endswith(f": {message}")


@since("1.35", reason="the message contains the value instead of its type, except for objects and lists")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"low": 11}, "Invalid value: low must not be above high"),
        ({"name": "ray"}, "Invalid value: name must start with x-"),
        ({"port": 80}, "Invalid value: 80: failed rule: self > 1024"),
    ],
)
async def test_the_message_of_a_violated_rule_contains_only_scalar_values(api: Api, spec: JsonObject, message: str) -> None:
    error = await expect_error(api.create(LIMITS, limit("a", **spec)), InvalidError)
    assert [cause["message"] for cause in error.causes] == [message]


async def test_rules_are_evaluated_after_defaulting(api: Api) -> None:
    error = await expect_error(api.create(LIMITS, limit("a", high=-1)), InvalidError)
    assert error.causes[0]["message"].endswith("low must not be above high")


async def test_a_transition_rule_compares_with_the_stored_value(api: Api) -> None:
    await api.create(LIMITS, limit("a", fixed="initial"))
    error = await expect_error(api.patch(LIMITS, "a", {"spec": {"fixed": "changed"}}), InvalidError)
    assert len(error.causes) == 1
    assert error.causes[0]["message"].endswith(": fixed cannot change")
    assert (await api.patch(LIMITS, "a", {"spec": {"low": 1}}))["spec"]["fixed"] == "initial"


async def test_a_transition_rule_does_not_apply_to_a_new_value(api: Api) -> None:
    await api.create(LIMITS, limit("a"))
    await api.patch(LIMITS, "a", {"spec": {"frozen": 1}})
    error = await expect_error(api.patch(LIMITS, "a", {"spec": {"frozen": 2}}), InvalidError)
    assert [(cause["reason"], cause["field"]) for cause in error.causes] == [("FieldValueInvalid", "spec.frozen")]
    assert error.causes[0]["message"].endswith(": frozen is immutable")


async def test_all_violated_rules_are_reported(api: Api) -> None:
    error = await expect_error(api.create(LIMITS, limit("a", low=20, name="ray", port=1)), InvalidError)
    assert {cause["field"] for cause in error.causes} == {"spec", "spec.name", "spec.port"}


async def test_rules_are_not_evaluated_for_values_of_a_wrong_type(api: Api) -> None:
    error = await expect_error(api.create(LIMITS, limit("a", low="x")), InvalidError)
    assert {"FieldValueTypeInvalid"} <= {cause["reason"] for cause in error.causes}
    assert not any("low must not be above high" in cause["message"] for cause in error.causes)


async def test_a_crd_with_an_invalid_rule_is_rejected(api: Api) -> None:
    invalid = {"type": "object", "x-kubernetes-validations": [{"rule": "self.nope > "}]}
    body = crd(Resource("invalid.dlop.dev", "v1", "invalids", "Invalid"), crd_version("v1", object_schema(spec=invalid)))
    error = await expect_error(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    field = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    assert {cause["field"] for cause in error.causes} == {field}
    assert "compilation failed" in str(error)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        pytest.param({}, "", id="no field", marks=STATUS_RATCHETING),
        pytest.param({"known": 1}, "", id="described field", marks=STATUS_RATCHETING),
        pytest.param({"unknown": 1}, "too large", id="field without a schema"),
    ],
)
async def test_a_rule_is_ratcheted_if_the_schema_describes_all_unchanged_fields(api: Api, part: JsonObject, message: str) -> None:
    resource = await create_before_rule(api, {"size": 5, "part": part})
    patch = api.patch(resource, "a", {"status": {"n": 1}}, subresource="status", patch_type=PatchType.MERGE)
    error = await validation_error(patch)
    assert message in error
    assert bool(message) == bool(error)
