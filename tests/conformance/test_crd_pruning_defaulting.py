"""What is not in the schema is dropped; what is missing gets its default."""

from __future__ import annotations

from typing import Any

from dlop.kube.types import JsonObject
from tests.conformance.bodies import custom
from tests.conformance.definitions import PARTS
from tests.conformance.support import Api

DEFAULTS: JsonObject = {"size": 3, "mode": "Auto", "nested": {"deep": "bottom"}, "nullable": "text"}


async def created(api: Api, spec: Any = None, **fields: Any) -> JsonObject:
    return await api.create(PARTS, custom(PARTS, "a", spec=spec, **fields))


async def test_missing_fields_get_their_defaults(api: Api) -> None:
    assert (await created(api, {}))["spec"] == DEFAULTS


async def test_a_default_is_not_given_below_what_is_missing(api: Api) -> None:
    found = await created(api)
    assert "spec" not in found


async def test_given_values_go_before_defaults(api: Api) -> None:
    found = await created(api, {"size": 0, "mode": "", "nested": {"deep": "top"}})
    assert found["spec"] == DEFAULTS | {"size": 0, "mode": "", "nested": {"deep": "top"}}


async def test_defaults_reach_into_objects_lists_and_maps(api: Api) -> None:
    spec = {"optional": {}, "items": [{"name": "x"}, {"weight": 7}], "map": {"k": {}}}
    found = (await created(api, spec))["spec"]
    assert found["optional"] == {"inner": True}
    assert found["items"] == [{"name": "x", "weight": 1}, {"weight": 7}]
    assert found["map"] == {"k": {"on": False}}


async def test_a_null_takes_the_default_unless_it_is_allowed(api: Api) -> None:
    found = await created(api, {"size": None, "nullable": None})
    assert found["spec"] == DEFAULTS | {"nullable": None}


async def test_unknown_fields_are_dropped_at_every_depth(api: Api) -> None:
    spec = {"bogus": 1, "nested": {"deep": "x", "bogus": 2}, "items": [{"name": "x", "bogus": 3}], "map": {"k": {"bogus": 4}}}
    found = await created(api, spec, bogus=5)
    assert "bogus" not in found
    kept = {"nested": {"deep": "x"}, "items": [{"name": "x", "weight": 1}], "map": {"k": {"on": False}}}
    assert found["spec"] == DEFAULTS | kept


async def test_unknown_fields_are_kept_where_the_schema_says_so(api: Api) -> None:
    found = await created(api, {"open": {"any": {"depth": [1, {"x": None}]}, "known": {"x": 1, "bogus": 2}}})
    assert found["spec"]["open"] == {"any": {"depth": [1, {"x": None}]}, "known": {"x": 1}}


async def test_an_embedded_object_keeps_its_kind_and_its_fields(api: Api) -> None:
    inner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"any": "thing"}}
    assert (await created(api, {"embedded": inner}))["spec"]["embedded"] == inner


async def test_a_patch_prunes_and_defaults_too(api: Api) -> None:
    await created(api, {"size": 5})
    patched = await api.patch(PARTS, "a", {"spec": {"size": None, "bogus": 1, "optional": {}}})
    assert patched["spec"] == DEFAULTS | {"optional": {"inner": True}}


async def test_a_status_is_pruned_and_defaulted_too(api: Api) -> None:
    await created(api, {})
    patched = await api.patch(PARTS, "a", {"status": {"bogus": 1}}, subresource="status")
    assert patched["status"] == {"phase": "New"}


async def test_a_default_that_changes_nothing_makes_no_new_version(api: Api) -> None:
    found = await created(api, {})
    patched = await api.patch(PARTS, "a", {"spec": {"size": 3, "bogus": 1}})
    assert patched["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
