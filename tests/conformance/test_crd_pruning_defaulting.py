"""Pruning of unknown fields and defaulting of missing ones."""

from __future__ import annotations

from dlop.kube.types import JsonObject
from tests.conformance.crds import PARTS, part
from tests.conformance.support import Api

DEFAULTS: JsonObject = {"size": 3, "mode": "Auto", "nested": {"deep": "bottom"}, "nullable": "text"}


async def test_missing_fields_get_their_defaults(api: Api) -> None:
    assert (await api.create(PARTS, part("a", {})))["spec"] == DEFAULTS


async def test_defaults_inside_a_missing_object_are_not_set(api: Api) -> None:
    created = await api.create(PARTS, part("a"))
    assert "spec" not in created


async def test_explicit_values_are_kept(api: Api) -> None:
    created = await api.create(PARTS, part("a", {"size": 0, "mode": "", "nested": {"deep": "top"}}))
    assert created["spec"] == DEFAULTS | {"size": 0, "mode": "", "nested": {"deep": "top"}}


async def test_defaults_are_set_inside_objects_lists_and_maps(api: Api) -> None:
    spec = {"optional": {}, "items": [{"name": "x"}, {"weight": 7}], "map": {"k": {}}}
    stored_spec = (await api.create(PARTS, part("a", spec)))["spec"]
    assert stored_spec["optional"] == {"inner": True}
    assert stored_spec["items"] == [{"name": "x", "weight": 1}, {"weight": 7}]
    assert stored_spec["map"] == {"k": {"on": False}}


async def test_a_null_is_replaced_by_the_default_unless_the_field_is_nullable(api: Api) -> None:
    created = await api.create(PARTS, part("a", {"size": None, "nullable": None}))
    assert created["spec"] == DEFAULTS | {"nullable": None}


async def test_unknown_fields_are_pruned_at_every_depth(api: Api) -> None:
    spec = {"bogus": 1, "nested": {"deep": "x", "bogus": 2}, "items": [{"name": "x", "bogus": 3}], "map": {"k": {"bogus": 4}}}
    created = await api.create(PARTS, part("a", spec, bogus=5))
    assert "bogus" not in created
    kept = {"nested": {"deep": "x"}, "items": [{"name": "x", "weight": 1}], "map": {"k": {"on": False}}}
    assert created["spec"] == DEFAULTS | kept


async def test_unknown_fields_are_kept_where_the_schema_preserves_them(api: Api) -> None:
    created = await api.create(PARTS, part("a", {"open": {"any": {"depth": [1, {"x": None}]}, "known": {"x": 1, "bogus": 2}}}))
    assert created["spec"]["open"] == {"any": {"depth": [1, {"x": None}]}, "known": {"x": 1}}


async def test_an_embedded_object_keeps_its_kind_and_its_fields(api: Api) -> None:
    inner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"any": "thing"}}
    assert (await api.create(PARTS, part("a", {"embedded": inner})))["spec"]["embedded"] == inner


async def test_a_patch_is_pruned_and_defaulted(api: Api) -> None:
    await api.create(PARTS, part("a", {"size": 5}))
    patched = await api.patch(PARTS, "a", {"spec": {"size": None, "bogus": 1, "optional": {}}})
    assert patched["spec"] == DEFAULTS | {"optional": {"inner": True}}


async def test_a_status_is_pruned_and_defaulted(api: Api) -> None:
    await api.create(PARTS, part("a", {}))
    patched = await api.patch(PARTS, "a", {"status": {"bogus": 1}}, subresource="status")
    assert patched["status"] == {"phase": "New"}


async def test_a_patch_that_only_restores_defaults_keeps_the_resource_version(api: Api) -> None:
    created = await api.create(PARTS, part("a", {}))
    patched = await api.patch(PARTS, "a", {"spec": {"size": 3, "bogus": 1}})
    assert patched["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
