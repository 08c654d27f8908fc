"""Rules of a schema in CEL (`x-kubernetes-validations`)."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable
from typing import Any

import pytest

from dlop.kube.client import PatchType
from dlop.kube.errors import InvalidError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import custom, definition, schema, version
from tests.conformance.definitions import RULED
from tests.conformance.support import Api, refused


async def created(api: Api, **spec: Any) -> JsonObject:
    return await api.create(RULED, custom(RULED, "a", spec=spec))


async def test_an_object_that_keeps_the_rules_is_created(api: Api) -> None:
    found = await created(api, low=1, high=2, name="x-ray", items=["abc"], workers={"a": 0, "b": 1}, url="https://example.org", port=8080)
    assert found["spec"]["name"] == "x-ray"


@pytest.mark.parametrize(
    ("spec", "reason", "field", "message"),
    [
        ({"low": 11}, "FieldValueInvalid", "spec", "Invalid value: low must not be above high"),
        ({"name": "ray"}, "FieldValueInvalid", "spec.name", "Invalid value: the name begins with x-"),
        ({"items": ["a", "abcd"]}, "FieldValueInvalid", "spec", "Invalid value: too long after a"),
        ({"low": 13, "high": 20}, "FieldValueForbidden", "spec", "Forbidden: not thirteen"),
        ({"workers": {"a": 0}}, "FieldValueInvalid", "spec", "Invalid value: somebody must work"),
        ({"url": "nowhere"}, "FieldValueInvalid", "spec", "Invalid value: an address"),
        ({"port": 80}, "FieldValueInvalid", "spec.port", "Invalid value: 80: failed rule: self > 1024"),
    ],
)
async def test_a_broken_rule_is_told(api: Api, spec: JsonObject, reason: str, field: str, message: str) -> None:
    error = await refused(created(api, **spec), InvalidError)
    assert error.causes == [{"reason": reason, "message": message, "field": field}]


async def test_a_rule_sees_the_defaults(api: Api) -> None:
    assert (await refused(created(api, high=-1), InvalidError)).causes[0]["message"].endswith("low must not be above high")


async def test_a_transition_rule_compares_with_what_was(api: Api) -> None:
    await created(api, fixed="for ever")
    error = await refused(api.patch(RULED, "a", {"spec": {"fixed": "else"}}), InvalidError)
    assert [cause["message"] for cause in error.causes] == ["Invalid value: fixed cannot change"]
    assert (await api.patch(RULED, "a", {"spec": {"low": 1}}))["spec"]["fixed"] == "for ever"


async def test_a_transition_rule_says_nothing_about_a_new_value(api: Api) -> None:
    await created(api)
    await api.patch(RULED, "a", {"spec": {"frozen": 1}})
    error = await refused(api.patch(RULED, "a", {"spec": {"frozen": 2}}), InvalidError)
    message = "Invalid value: 2: frozen is frozen"
    assert error.causes == [{"reason": "FieldValueInvalid", "message": message, "field": "spec.frozen"}]


async def test_several_broken_rules_are_all_told(api: Api) -> None:
    error = await refused(created(api, low=20, name="ray", port=1), InvalidError)
    assert {cause["field"] for cause in error.causes} == {"spec", "spec.name", "spec.port"}


async def test_rules_are_not_asked_about_values_of_a_wrong_type(api: Api) -> None:
    error = await refused(created(api, low="x"), InvalidError)
    assert {"FieldValueTypeInvalid"} <= {cause["reason"] for cause in error.causes}
    assert not any("low must not be above high" in cause["message"] for cause in error.causes)


async def test_a_rule_that_is_no_cel_is_refused_with_the_definition(api: Api) -> None:
    broken = {"type": "object", "x-kubernetes-validations": [{"rule": "self.nope > "}]}
    body = definition(Resource("broken.dlop.dev", "v1", "brokens", "Broken"), version("v1", schema(spec=broken)))
    error = await refused(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    field = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    assert {cause["field"] for cause in error.causes} == {field}
    assert "compilation failed" in str(error)


class Late:
    """An object that was stored before there was a rule."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.resource = Resource(f"late-{uuid.uuid4().hex[:8]}.dlop.dev", "v1", "latecomers", "Latecomer")

    async def store(self, spec: JsonObject) -> None:
        """Store it, and bring in the rule afterwards."""
        await self._api.install(self._definition())
        await self._api.create(self.resource, custom(self.resource, "a", spec=spec))
        ruled = self._definition({"rule": "self.size < 3", "message": "too large"})
        name = self.resource.qualified_name
        await self._api.patch(CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": ruled["spec"]}, patch_type=PatchType.MERGE)
        await self._api.eventually(lambda: self.refusal(self._api.create(self.resource, self._other(spec), dry_run=True)), bool)

    async def refusal(self, call: Awaitable[object]) -> str:
        """What the server says to a call; empty when it does it."""
        try:
            await call
        except InvalidError as error:
            return str(error)
        return ""

    def _other(self, spec: JsonObject) -> JsonObject:
        return custom(self.resource, "b", spec=spec)

    def _definition(self, *rules: JsonObject) -> JsonObject:
        part = {"type": "object", "properties": {"known": {"type": "integer"}}, "x-kubernetes-preserve-unknown-fields": True}
        spec: JsonObject = {"type": "object", "properties": {"size": {"type": "integer"}, "part": part}, "required": ["size"]}
        spec |= {"x-kubernetes-validations": list(rules)} if rules else {}
        status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return definition(self.resource, version("v1", schema(spec=spec, status=status), subresources={"status": {}}))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"known": 1}, "", id="what is described"),
        pytest.param({"unknown": 1}, "too large", id="what is not described"),
    ],
)
async def test_what_has_not_changed_is_forgiven_as_far_as_the_schema_can_tell(api: Api, part: JsonObject, said: str) -> None:
    late = Late(api)
    await late.store({"size": 5, "part": part})
    told = api.patch(late.resource, "a", {"status": {"n": 1}}, subresource="status", patch_type=PatchType.MERGE)
    found = await late.refusal(told)
    assert said in found
    assert bool(said) == bool(found)
