"""CustomResourceDefinitions: validation, registration and deletion."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from dlop.embedded.apiserver.apiextensions.crd_controller import CRD_TYPE, CrdController
from dlop.embedded.apiserver.object_queue import ObjectQueue
from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ChangeType, ObjectKey, Store
from dlop.kube.errors import InvalidError, MethodNotAllowedError
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject


def crd(plural: str = "widgets", kind: str = "Widget", *, properties: JsonObject | None = None, **names: Any) -> JsonObject:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties or {"n": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, **names},
            "versions": [version],
        },
    }


class World:
    """A store, its storage and the CRD controller, without an API server."""

    def __init__(self) -> None:
        self.store = Store()
        self.registry = ResourceRegistry()
        self.queue = ObjectQueue()
        uids = itertools.count(1)
        self.storage = ResourceStorage(
            self.store,
            self.registry,
            self.queue,
            clock=lambda: 1_700_000_000.0,
            new_uid=lambda: f"uid-{next(uids)}",
            rng=random.Random(1),
        )
        self.registry.add(CRD_TYPE)
        CrdController(self.store, self.registry, self.queue, lambda: 1_700_000_000.0, storage=self.storage)
        self.store.create(ObjectKey("namespaces", "", "default"), {"kind": NAMESPACES.kind, "metadata": {"name": "default"}})

    async def install(self, body: JsonObject) -> JsonObject:
        self.storage.create(CRD_TYPE, "", body)
        return await self.wait_until_idle(body["metadata"]["name"])

    async def wait_until_idle(self, name: str) -> JsonObject:
        # Queued work runs one item per iteration of the event loop, and a CRD needs a few items.
        for _ in range(50):
            await asyncio.sleep(0)
        stored = self.store.get(ObjectKey(CRD_TYPE.storage, "", name))
        return stored.body if stored else {}

    def type(self, plural: str = "widgets", version: str = "v1") -> ResourceType:
        resource_type = self.registry.find("example.org", version, plural)
        assert resource_type is not None
        return resource_type

    def create(self, name: str, version: str = "v1", **fields: Any) -> JsonObject:
        body = {"apiVersion": f"example.org/{version}", "kind": "Widget", "metadata": {"name": name}, **fields}
        return self.storage.create(self.type(version=version), "default", body).body


@pytest.fixture
def world() -> World:
    return World()


def conditions(body: JsonObject) -> dict[str, tuple[str, str]]:
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in body["status"]["conditions"]}


async def test_a_new_crd_gets_its_names_accepted_and_is_established_and_served(world: World) -> None:
    installed = await world.install(crd(shortNames=["wd"], categories=["all"]))
    assert conditions(installed) == {"NamesAccepted": ("True", "NoConflicts"), "Established": ("True", "InitialNamesAccepted")}
    assert installed["status"]["acceptedNames"] == installed["spec"]["names"]
    assert installed["status"]["storedVersions"] == ["v1"]
    assert installed["spec"]["names"]["singular"] == "widget"
    assert installed["spec"]["names"]["listKind"] == "WidgetList"
    assert world.type().short_names == ("wd",)


async def test_a_list_has_the_list_kind_of_the_crd(world: World) -> None:
    await world.install(crd(listKind="WidgetHeap"))
    assert world.type().list_kind == "WidgetHeap"


async def test_a_kind_that_is_in_use_is_not_accepted_until_it_is_free(world: World) -> None:
    await world.install(crd())
    installed = await world.install(crd("others", singular="other"))
    assert conditions(installed) == {"NamesAccepted": ("False", "ListKindConflict"), "Established": ("False", "NotAccepted")}
    assert world.registry.find("example.org", "v1", "others") is None
    world.storage.delete(CRD_TYPE, "", "widgets.example.org")
    installed = await world.wait_until_idle("others.example.org")
    assert conditions(installed)["Established"] == ("True", "InitialNamesAccepted")


async def test_a_schema_change_applies_to_new_objects_and_to_reads_of_old_ones(world: World) -> None:
    await world.install(crd())
    world.create("old", spec={"n": 1})
    changed = crd(properties={"n": {"type": "integer"}, "mode": {"type": "string", "default": "fast"}})
    world.storage.change(CRD_TYPE, "", "widgets.example.org", lambda body: {**body, "spec": {**body["spec"], **changed["spec"]}})
    await world.wait_until_idle("widgets.example.org")
    assert world.create("new", spec={"n": 1})["spec"] == {"n": 1, "mode": "fast"}
    stored = world.storage.get(world.type(), "default", "old")
    convert = world.type().from_storage
    assert convert is not None
    assert convert(stored.body)["spec"] == {"n": 1, "mode": "fast"}


async def test_an_object_is_served_in_every_version_and_stored_in_one(world: World) -> None:
    body = crd()
    second = {**body["spec"]["versions"][0], "name": "v2", "storage": False}
    second["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    body["spec"]["versions"].append(second)
    await world.install(body)
    stored = world.create("a", spec={"n": 1})
    assert stored["apiVersion"] == "example.org/v1"
    convert = world.type(version="v2").from_storage
    assert convert is not None
    assert convert(stored) == {**stored, "apiVersion": "example.org/v2", "spec": {}}
    assert world.create("b", version="v2")["apiVersion"] == "example.org/v1"


async def test_deleting_a_crd_deletes_its_objects_first(world: World) -> None:
    await world.install(crd())
    for name in ("a", "b"):
        world.create(name)
    deletions: list[tuple[str, str]] = []
    world.store.listeners.append(lambda change: deletions.append(change.key[0::2]) if change.type is ChangeType.DELETED else None)
    result = world.storage.delete(CRD_TYPE, "", "widgets.example.org")
    assert result.stored.body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert conditions(result.stored.body)["Terminating"] == ("True", "InstanceDeletionPending")
    assert await world.wait_until_idle("widgets.example.org") == {}
    assert deletions == [("widgets.example.org", "a"), ("widgets.example.org", "b"), (CRD_TYPE.storage, "widgets.example.org")]
    assert world.registry.find("example.org", "v1", "widgets") is None


async def test_a_crd_waits_for_objects_with_finalizers(world: World) -> None:
    await world.install(crd())
    world.storage.create(
        world.type(),
        "default",
        {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "held", "finalizers": ["example.org/hold"]}},
    )
    world.storage.delete(CRD_TYPE, "", "widgets.example.org")
    assert await world.wait_until_idle("widgets.example.org") != {}
    with pytest.raises(MethodNotAllowedError, match="create not allowed while custom resource definition is terminating"):
        world.create("late")
    remove_finalizers: Callable[[JsonObject], JsonObject] = lambda body: {**body, "metadata": {**body["metadata"], "finalizers": []}}  # noqa: E731
    world.storage.change(world.type(), "default", "held", remove_finalizers)
    assert await world.wait_until_idle("widgets.example.org") == {}


def errors_of(body: JsonObject) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        World().storage.create(CRD_TYPE, "", body)
    return [f"{cause['field']}: {cause['message']}" for cause in caught.value.causes]


def test_the_name_must_consist_of_plural_and_group() -> None:
    body = crd()
    body["metadata"]["name"] = "gadgets.example.org"
    assert errors_of(body) == ['metadata.name: Invalid value: "gadgets.example.org": must be spec.names.plural+"."+spec.group']


def test_a_crd_needs_scope_kind_and_a_schema() -> None:
    body = crd()
    del body["spec"]["scope"], body["spec"]["names"]["kind"], body["spec"]["versions"][0]["schema"]
    assert errors_of(body) == [
        "spec.scope: Required value",
        "spec.versions[0].schema.openAPIV3Schema: Required value",
        "spec.names.singular: Required value",
        "spec.names.kind: Required value",
        "spec.names.listKind: Required value",
    ]


def test_exactly_one_version_is_stored() -> None:
    body = crd()
    body["spec"]["versions"][0]["storage"] = False
    assert errors_of(body)[0].endswith("must have exactly one version marked as storage version")


def test_a_schema_without_types_is_not_structural() -> None:
    assert errors_of(crd(properties={"a": {}, "b": {"type": "array"}})) == [
        (
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].type: "
            "Required value: must not be empty for specified object fields"
        ),
        "spec.validation.openAPIV3Schema.properties[spec].properties[b].items: Required value: must be specified",
    ]


def test_a_default_must_match_its_schema() -> None:
    assert errors_of(crd(properties={"a": {"type": "string", "default": 3}})) == [
        (
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].default: "
            'Invalid value: "integer":  in body must be of type string: "integer"'
        )
    ]


def test_errors_of_different_versions_name_the_version() -> None:
    body = crd(properties={"a": {}})
    body["spec"]["versions"].append({**crd()["spec"]["versions"][0], "name": "v2", "storage": False})
    assert errors_of(body)[0].startswith("spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[a].type")


def test_items_of_atomic_lists_have_no_old_self() -> None:
    item = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    errors = errors_of(crd(properties={"a": {"type": "array", "items": item}}))
    assert errors[0].endswith(
        "oldSelf cannot be used on the uncorrelatable portion of the schema within "
        "spec.validation.openAPIV3Schema.properties[spec].properties[a]"
    )


async def test_group_plural_kind_and_scope_cannot_change(world: World) -> None:
    await world.install(crd())
    with pytest.raises(InvalidError) as caught:
        world.storage.change(CRD_TYPE, "", "widgets.example.org", lambda body: {**body, "spec": {**body["spec"], "scope": "Cluster"}})
    assert caught.value.causes[0]["message"] == 'Invalid value: "Cluster": field is immutable'


@pytest.mark.parametrize("spec", [None, {}, {"versions": [{}]}, {"names": {}, "versions": []}])
def test_an_empty_crd_is_invalid(spec: JsonObject | None) -> None:
    body = {**crd(), "spec": spec}
    assert errors_of(body)
