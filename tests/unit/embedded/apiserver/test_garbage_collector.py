"""Garbage collection and going namespaces where the conformance suite does not look: circles, scopes, strangers, numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from dlop.embedded.apiserver.controllers.owner_graph import Owners
from dlop.embedded.apiserver.query_options import DeleteOptions, PropagationPolicy
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.store import Key, Store
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.resources import CLUSTER_ROLES, CONFIG_MAPS, CORE_EVENTS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, Resource
from dlop.kube.types import JsonObject

FOREGROUND = DeleteOptions(propagation=PropagationPolicy.FOREGROUND)


class World:
    """A cluster, and the few things that these tests do to it."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    def type(self, resource: Resource) -> ResourceType:
        found = self.cluster.registry.find(resource.group, resource.version, resource.plural)
        assert found is not None
        return found

    def create(self, resource: Resource, name: str, *owners: JsonObject, namespace: str = "default", **fields: Any) -> JsonObject:
        body = {"metadata": {"name": name, "ownerReferences": list(owners)}, **fields}
        return self.cluster.verbs.create(self.type(resource), namespace if resource.namespaced else "", body).body

    def find(self, resource: Resource, name: str, *, namespace: str = "default") -> JsonObject | None:
        stored = self.cluster.store.get(Key(resource.qualified_name, namespace if resource.namespaced else "", name))
        return None if stored is None else stored.body

    def own(self, child: str, *owners: JsonObject) -> None:
        def changed(body: JsonObject) -> JsonObject:
            return {**body, "metadata": {**body["metadata"], "ownerReferences": list(owners)}}

        self.cluster.verbs.change(self.type(CONFIG_MAPS), "default", child, changed)

    def delete(self, resource: Resource, name: str, options: DeleteOptions | None = None) -> None:
        namespace = "default" if resource.namespaced else ""
        self.cluster.verbs.delete(self.type(resource), namespace, name, options or DeleteOptions())

    async def settle(self) -> None:
        """Return when nothing has changed for three rounds of background work."""
        quiet = 0
        while quiet < 3:
            version = self.cluster.store.version
            done = asyncio.Event()
            self.cluster.background.later(done.set)
            await done.wait()
            quiet = quiet + 1 if self.cluster.store.version == version else 0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with EmbeddedCluster() as cluster:
        yield World(cluster)


def owner(body: JsonObject, *, blocks: bool = False) -> JsonObject:
    reference = {"apiVersion": body["apiVersion"], "kind": body["kind"], "name": body["metadata"]["name"], "uid": body["metadata"]["uid"]}
    return {**reference, "blockOwnerDeletion": True} if blocks else reference


async def test_objects_that_own_each_other_can_be_deleted_in_the_foreground(world: World) -> None:
    first = world.create(CONFIG_MAPS, "first")
    second = world.create(CONFIG_MAPS, "second", owner(first, blocks=True))
    world.own("first", owner(second, blocks=True))
    world.delete(CONFIG_MAPS, "first", FOREGROUND)
    await world.settle()
    assert world.find(CONFIG_MAPS, "first") is None
    assert world.find(CONFIG_MAPS, "second") is None


async def test_an_owner_of_an_unknown_kind_counts_as_there(world: World) -> None:
    world.create(CONFIG_MAPS, "child", {"apiVersion": "example.org/v1", "kind": "Unheard", "name": "x", "uid": "1"})
    await world.settle()
    assert world.find(CONFIG_MAPS, "child") is not None


async def test_an_owner_in_another_namespace_counts_as_gone(world: World) -> None:
    stranger = world.create(CONFIG_MAPS, "stranger", namespace="kube-system")
    world.create(CONFIG_MAPS, "child", owner(stranger))
    await world.settle()
    assert world.find(CONFIG_MAPS, "child") is None


async def test_a_cluster_wide_owner_takes_its_children_in_namespaces_along(world: World) -> None:
    role = world.create(CLUSTER_ROLES, "role")
    world.create(CONFIG_MAPS, "child", owner(role))
    await world.settle()
    assert world.find(CONFIG_MAPS, "child") is not None
    world.delete(CLUSTER_ROLES, "role")
    await world.settle()
    assert world.find(CONFIG_MAPS, "child") is None


async def test_a_cluster_wide_object_cannot_be_owned_from_within_a_namespace(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    world.create(CLUSTER_ROLES, "child", owner(parent))
    world.delete(CONFIG_MAPS, "parent")
    await world.settle()
    assert world.find(CLUSTER_ROLES, "child") is not None


async def test_events_are_left_alone(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    world.create(CORE_EVENTS, "event", owner(parent), involvedObject={"namespace": "default"})
    world.delete(CONFIG_MAPS, "parent")
    await world.settle()
    assert world.find(CORE_EVENTS, "event") is not None


async def test_an_owner_that_waits_for_its_children_is_forgotten_by_a_child_that_has_another(world: World) -> None:
    going, staying = world.create(CONFIG_MAPS, "going"), world.create(CONFIG_MAPS, "staying")
    world.create(CONFIG_MAPS, "child", owner(going, blocks=True), owner(staying))
    world.delete(CONFIG_MAPS, "going", FOREGROUND)
    await world.settle()
    assert world.find(CONFIG_MAPS, "going") is None
    child = world.find(CONFIG_MAPS, "child")
    assert child is not None
    assert child["metadata"]["ownerReferences"] == [owner(staying)]


async def test_a_child_born_to_an_owner_that_is_going_goes_too(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    pod = {"nodeName": "one", "containers": [{"name": "c", "image": "i"}]}
    world.create(PODS, "held", owner(parent, blocks=True), spec=pod)
    world.delete(CONFIG_MAPS, "parent", FOREGROUND)
    await world.settle()
    world.create(CONFIG_MAPS, "late", owner(parent))
    await world.settle()
    assert world.find(CONFIG_MAPS, "late") is None
    assert world.find(CONFIG_MAPS, "parent") is not None
    world.delete(PODS, "held", DeleteOptions(grace_seconds=0))
    await world.settle()
    assert world.find(CONFIG_MAPS, "parent") is None


async def test_a_name_that_is_taken_again_does_not_inherit_the_fate_of_the_old_object(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    world.create(CONFIG_MAPS, "child", owner(parent))
    world.delete(CONFIG_MAPS, "parent")
    world.delete(CONFIG_MAPS, "child")
    world.create(CONFIG_MAPS, "child")
    await world.settle()
    assert world.find(CONFIG_MAPS, "child") is not None


async def test_a_thousand_children_go_without_holding_up_the_loop(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    for number in range(1000):
        world.create(CONFIG_MAPS, f"child-{number}", owner(parent))
    world.delete(CONFIG_MAPS, "parent")
    turns = 0
    while world.cluster.store.count("configmaps"):
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 1000


def test_nothing_is_remembered_of_what_is_gone() -> None:
    store, owners = Store(), Owners()
    store.listeners.append(owners.follow)
    parent, child = Key("configmaps", "default", "parent"), Key("configmaps", "default", "child")
    store.create(parent, {"metadata": {"uid": "p"}})
    store.create(child, {"metadata": {"uid": "c", "ownerReferences": [{"uid": "p"}, {"uid": "q"}]}})
    assert (owners.living("p"), owners.dependents("p"), owners.dependents("q")) == (parent, [child], [child])
    store.update(child, {"metadata": {"uid": "c", "ownerReferences": [{"uid": "p"}]}})
    assert owners.dependents("q") == []
    store.delete(child)
    store.delete(parent)
    assert (owners.living("p"), owners.living("c"), owners.dependents("p")) == (None, None, [])


def namespace_conditions(world: World, name: str) -> dict[str, tuple[str, str, str]]:
    body = world.find(NAMESPACES, name)
    assert body is not None
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in body["status"]["conditions"]}


async def test_a_namespace_gets_its_service_account_back(world: World) -> None:
    accounts = Resource("", "v1", "serviceaccounts", "ServiceAccount")
    world.create(NAMESPACES, "mine")
    await world.settle()
    first = world.find(accounts, "default", namespace="mine")
    assert first is not None
    world.cluster.verbs.delete(world.type(accounts), "mine", "default")
    await world.settle()
    second = world.find(accounts, "default", namespace="mine")
    assert second is not None
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_going_namespace_keeps_everything_until_its_pods_are_gone(world: World) -> None:
    world.create(NAMESPACES, "mine")
    world.create(CONFIG_MAPS, "needed", namespace="mine")
    world.create(PODS, "p", namespace="mine", spec={"nodeName": "one", "containers": [{"name": "c", "image": "i"}]})
    world.delete(NAMESPACES, "mine")
    await world.settle()
    assert world.find(CONFIG_MAPS, "needed", namespace="mine") is not None
    pod = world.find(PODS, "p", namespace="mine")
    assert pod is not None
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    world.cluster.verbs.delete(world.type(PODS), "mine", "p", DeleteOptions(grace_seconds=0))
    await world.settle()
    assert world.find(NAMESPACES, "mine") is None
    assert world.find(CONFIG_MAPS, "needed", namespace="mine") is None


async def test_a_going_namespace_says_what_holds_it(world: World) -> None:
    world.create(NAMESPACES, "mine")
    held = {"metadata": {"name": "held", "finalizers": ["example.org/hold"]}}
    world.cluster.verbs.create(world.type(CONFIG_MAPS), "mine", held)
    world.delete(NAMESPACES, "mine")
    await world.settle()
    found = namespace_conditions(world, "mine")
    remaining = "Some resources are remaining: configmaps. has 1 resource instances"
    assert found["NamespaceContentRemaining"] == ("True", "SomeResourcesRemain", remaining)
    holding = "Some content in the namespace has finalizers remaining: example.org/hold in 1 resource instances"
    assert found["NamespaceFinalizersRemaining"] == ("True", "SomeFinalizersRemain", holding)
    assert found["NamespaceDeletionContentFailure"][0] == "False"


async def test_a_large_namespace_is_emptied_in_slices(world: World) -> None:
    world.create(NAMESPACES, "mine")
    for number in range(350):
        world.create(CONFIG_MAPS, f"c-{number}", namespace="mine")
    world.delete(NAMESPACES, "mine")
    counts = [world.cluster.store.count("configmaps")]
    while world.find(NAMESPACES, "mine") is not None:
        await asyncio.sleep(0)
        counts.append(world.cluster.store.count("configmaps"))
    assert max(before - after for before, after in pairwise(counts)) <= 100
    assert counts[-1] == 0


async def test_children_go_when_the_definition_of_their_owner_takes_it_along(world: World) -> None:
    trinkets = Resource("collector.dlop.dev", "v1", "trinkets", "Trinket")
    await install(world, trinkets)
    parent = world.create(trinkets, "parent", kind="Trinket", apiVersion=trinkets.api_version)
    world.create(CONFIG_MAPS, "child", owner(parent))
    world.delete(CUSTOM_RESOURCE_DEFINITIONS, trinkets.qualified_name)
    await world.settle()
    assert world.cluster.registry.find(trinkets.group, trinkets.version, trinkets.plural) is None
    assert world.find(CONFIG_MAPS, "child") is None


async def install(world: World, resource: Resource) -> None:
    names = {"plural": resource.plural, "singular": "trinket", "kind": resource.kind, "listKind": f"{resource.kind}List"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    spec = {"group": resource.group, "names": names, "scope": "Namespaced", "versions": [version]}
    world.create(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name, spec=spec)
    await world.settle()
