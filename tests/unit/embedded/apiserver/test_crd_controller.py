"""CustomResourceDefinitions: what is refused, and what a stored one makes the server do."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from dlop.embedded.apiserver.apiextensions.crd_controller import CRD_TYPE, CustomResources
from dlop.embedded.apiserver.object_queue import Background
from dlop.embedded.apiserver.registry import Registry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ChangeType, Key, Store
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
    """A store, its verbs and the controller of CRDs, without a server around them."""

    def __init__(self) -> None:
        self.store = Store()
        self.registry = Registry()
        self.background = Background()
        uids = itertools.count(1)
        self.verbs = ResourceStorage(
            self.store,
            self.registry,
            self.background,
            clock=lambda: 1_700_000_000.0,
            new_uid=lambda: f"uid-{next(uids)}",
            randomness=random.Random(1),
        )
        self.registry.add(CRD_TYPE)
        CustomResources(self.store, self.registry, self.background, lambda: 1_700_000_000.0, verbs=self.verbs)
        self.store.create(Key("namespaces", "", "default"), {"kind": NAMESPACES.kind, "metadata": {"name": "default"}})

    async def install(self, body: JsonObject) -> JsonObject:
        self.verbs.create(CRD_TYPE, "", body)
        return await self.settled(body["metadata"]["name"])

    async def settled(self, name: str) -> JsonObject:
        # Background work takes one turn of the loop a piece, and a CRD needs a handful of pieces.
        for _ in range(50):
            await asyncio.sleep(0)
        stored = self.store.get(Key(CRD_TYPE.storage, "", name))
        return stored.body if stored else {}

    def type(self, plural: str = "widgets", version: str = "v1") -> ResourceType:
        found = self.registry.find("example.org", version, plural)
        assert found is not None
        return found

    def create(self, name: str, version: str = "v1", **fields: Any) -> JsonObject:
        body = {"apiVersion": f"example.org/{version}", "kind": "Widget", "metadata": {"name": name}, **fields}
        return self.verbs.create(self.type(version=version), "default", body).body


@pytest.fixture
def world() -> World:
    return World()


def conditions(body: JsonObject) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in body["status"]["conditions"]}


async def test_a_new_crd_gets_its_names_accepted_and_is_established_and_served(world: World) -> None:
    found = await world.install(crd(shortNames=["wd"], categories=["all"]))
    assert conditions(found) == {"NamesAccepted": ("True", "NoConflicts"), "Established": ("True", "InitialNamesAccepted")}
    assert found["status"]["acceptedNames"] == found["spec"]["names"]
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["spec"]["names"]["singular"] == "widget"
    assert found["spec"]["names"]["listKind"] == "WidgetList"
    assert world.type().short_names == ("wd",)


async def test_a_list_has_the_kind_that_the_crd_gives_it(world: World) -> None:
    await world.install(crd(listKind="WidgetHeap"))
    assert world.type().list_kind == "WidgetHeap"


async def test_a_kind_that_is_taken_is_not_accepted_until_it_is_free(world: World) -> None:
    await world.install(crd())
    found = await world.install(crd("others", singular="other"))
    assert conditions(found) == {"NamesAccepted": ("False", "ListKindConflict"), "Established": ("False", "NotAccepted")}
    assert world.registry.find("example.org", "v1", "others") is None
    world.verbs.delete(CRD_TYPE, "", "widgets.example.org")
    found = await world.settled("others.example.org")
    assert conditions(found)["Established"] == ("True", "InitialNamesAccepted")


async def test_a_change_of_the_schema_holds_for_the_next_object_and_is_seen_on_old_ones(world: World) -> None:
    await world.install(crd())
    world.create("old", spec={"n": 1})
    changed = crd(properties={"n": {"type": "integer"}, "mode": {"type": "string", "default": "fast"}})
    world.verbs.change(CRD_TYPE, "", "widgets.example.org", lambda body: {**body, "spec": {**body["spec"], **changed["spec"]}})
    await world.settled("widgets.example.org")
    assert world.create("new", spec={"n": 1})["spec"] == {"n": 1, "mode": "fast"}
    stored = world.verbs.get(world.type(), "default", "old")
    read = world.type().from_storage
    assert read is not None
    assert read(stored.body)["spec"] == {"n": 1, "mode": "fast"}


async def test_an_object_is_served_in_every_version_and_stored_in_one(world: World) -> None:
    body = crd()
    second = {**body["spec"]["versions"][0], "name": "v2", "storage": False}
    second["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    body["spec"]["versions"].append(second)
    await world.install(body)
    stored = world.create("a", spec={"n": 1})
    assert stored["apiVersion"] == "example.org/v1"
    read = world.type(version="v2").from_storage
    assert read is not None
    assert read(stored) == {**stored, "apiVersion": "example.org/v2", "spec": {}}
    assert world.create("b", version="v2")["apiVersion"] == "example.org/v1"


async def test_deleting_a_crd_deletes_its_objects_first(world: World) -> None:
    await world.install(crd())
    for name in ("a", "b"):
        world.create(name)
    gone: list[tuple[str, str]] = []
    world.store.listeners.append(lambda change: gone.append(change.key[0::2]) if change.type is ChangeType.DELETED else None)
    marked = world.verbs.delete(CRD_TYPE, "", "widgets.example.org")
    assert marked.stored.body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert conditions(marked.stored.body)["Terminating"] == ("True", "InstanceDeletionPending")
    assert await world.settled("widgets.example.org") == {}
    assert gone == [("widgets.example.org", "a"), ("widgets.example.org", "b"), (CRD_TYPE.storage, "widgets.example.org")]
    assert world.registry.find("example.org", "v1", "widgets") is None


async def test_a_crd_waits_for_objects_that_finalizers_hold(world: World) -> None:
    await world.install(crd())
    world.verbs.create(
        world.type(),
        "default",
        {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "held", "finalizers": ["example.org/hold"]}},
    )
    world.verbs.delete(CRD_TYPE, "", "widgets.example.org")
    assert await world.settled("widgets.example.org") != {}
    with pytest.raises(MethodNotAllowedError, match="create not allowed while custom resource definition is terminating"):
        world.create("late")
    free: Callable[[JsonObject], JsonObject] = lambda body: {**body, "metadata": {**body["metadata"], "finalizers": []}}  # noqa: E731
    world.verbs.change(world.type(), "default", "held", free)
    assert await world.settled("widgets.example.org") == {}


def refusal(body: JsonObject) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        World().verbs.create(CRD_TYPE, "", body)
    return [f"{cause['field']}: {cause['message']}" for cause in caught.value.causes]


def test_the_name_must_be_made_of_plural_and_group() -> None:
    body = crd()
    body["metadata"]["name"] = "gadgets.example.org"
    assert refusal(body) == ['metadata.name: Invalid value: "gadgets.example.org": must be spec.names.plural+"."+spec.group']


def test_a_crd_needs_scope_kind_and_a_schema() -> None:
    body = crd()
    del body["spec"]["scope"], body["spec"]["names"]["kind"], body["spec"]["versions"][0]["schema"]
    assert refusal(body) == [
        "spec.scope: Required value",
        "spec.versions[0].schema.openAPIV3Schema: Required value",
        "spec.names.singular: Required value",
        "spec.names.kind: Required value",
        "spec.names.listKind: Required value",
    ]


def test_exactly_one_version_is_stored() -> None:
    body = crd()
    body["spec"]["versions"][0]["storage"] = False
    assert refusal(body)[0].endswith("must have exactly one version marked as storage version")


def test_a_schema_without_types_is_not_structural() -> None:
    assert refusal(crd(properties={"a": {}, "b": {"type": "array"}})) == [
        (
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].type: "
            "Required value: must not be empty for specified object fields"
        ),
        "spec.validation.openAPIV3Schema.properties[spec].properties[b].items: Required value: must be specified",
    ]


def test_a_default_must_fit_its_own_schema() -> None:
    assert refusal(crd(properties={"a": {"type": "string", "default": 3}})) == [
        (
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].default: "
            'Invalid value: "integer":  in body must be of type string: "integer"'
        )
    ]


def test_versions_that_differ_are_named_in_messages() -> None:
    body = crd(properties={"a": {}})
    body["spec"]["versions"].append({**crd()["spec"]["versions"][0], "name": "v2", "storage": False})
    assert refusal(body)[0].startswith("spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[a].type")


def test_the_past_of_items_without_keys_is_unknown() -> None:
    item = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    words = refusal(crd(properties={"a": {"type": "array", "items": item}}))
    assert words[0].endswith(
        "oldSelf cannot be used on the uncorrelatable portion of the schema within "
        "spec.validation.openAPIV3Schema.properties[spec].properties[a]"
    )


async def test_group_plural_kind_and_scope_cannot_change(world: World) -> None:
    await world.install(crd())
    with pytest.raises(InvalidError) as caught:
        world.verbs.change(CRD_TYPE, "", "widgets.example.org", lambda body: {**body, "spec": {**body["spec"], "scope": "Cluster"}})
    assert caught.value.causes[0]["message"] == 'Invalid value: "Cluster": field is immutable'


@pytest.mark.parametrize("spec", [None, {}, {"versions": [{}]}, {"names": {}, "versions": []}])
def test_a_crd_with_nothing_in_it_is_refused_and_not_stumbled_over(spec: JsonObject | None) -> None:
    body = {**crd(), "spec": spec}
    assert refusal(body)
