"""Garbage collection and namespace deletion in cases that the conformance suite does not cover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from dlop.embedded.apiserver.controllers.owner_graph import OwnerGraph
from dlop.embedded.apiserver.query_options import DeleteOptions, PropagationPolicy
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.store import ObjectKey, Store
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.resources import CLUSTER_ROLES, CONFIG_MAPS, CORE_EVENTS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, Resource
from dlop.kube.types import JsonObject

FOREGROUND = DeleteOptions(propagation=PropagationPolicy.FOREGROUND)


class World:
    """A cluster with helpers for these tests."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    def type(self, resource: Resource) -> ResourceType:
        resource_type = self.cluster.registry.find(resource.group, resource.version, resource.plural)
        assert resource_type is not None
        return resource_type

    def create(self, resource: Resource, name: str, *owners: JsonObject, namespace: str = "default", **fields: Any) -> JsonObject:
        body = {"metadata": {"name": name, "ownerReferences": list(owners)}, **fields}
        return self.cluster.storage.create(self.type(resource), namespace if resource.namespaced else "", body).body

    def find(self, resource: Resource, name: str, *, namespace: str = "default") -> JsonObject | None:
        stored = self.cluster.store.get(ObjectKey(resource.qualified_name, namespace if resource.namespaced else "", name))
        return None if stored is None else stored.body

    def set_owners(self, child: str, *owners: JsonObject) -> None:
        def mutate(body: JsonObject) -> JsonObject:
            return {**body, "metadata": {**body["metadata"], "ownerReferences": list(owners)}}

        self.cluster.storage.change(self.type(CONFIG_MAPS), "default", child, mutate)

    def delete(self, resource: Resource, name: str, options: DeleteOptions | None = None) -> None:
        namespace = "default" if resource.namespaced else ""
        self.cluster.storage.delete(self.type(resource), namespace, name, options or DeleteOptions())

    async def wait_until_idle(self) -> None:
        """Wait until nothing has changed for three rounds of queued work."""
        quiet = 0
        while quiet < 3:
            version = self.cluster.store.version
            done = asyncio.Event()
            self.cluster.queue.add(done.set)
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
    world.set_owners("first", owner(second, blocks=True))
    world.delete(CONFIG_MAPS, "first", FOREGROUND)
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "first") is None
    assert world.find(CONFIG_MAPS, "second") is None


async def test_an_owner_of_an_unknown_kind_counts_as_existing(world: World) -> None:
    world.create(CONFIG_MAPS, "child", {"apiVersion": "example.org/v1", "kind": "Unknown", "name": "x", "uid": "1"})
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "child") is not None


async def test_an_owner_in_another_namespace_counts_as_missing(world: World) -> None:
    other = world.create(CONFIG_MAPS, "other", namespace="kube-system")
    world.create(CONFIG_MAPS, "child", owner(other))
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "child") is None


async def test_deleting_a_cluster_scoped_owner_deletes_its_namespaced_dependents(world: World) -> None:
    role = world.create(CLUSTER_ROLES, "role")
    world.create(CONFIG_MAPS, "child", owner(role))
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "child") is not None
    world.delete(CLUSTER_ROLES, "role")
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "child") is None


async def test_a_cluster_scoped_object_cannot_have_a_namespaced_owner(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    world.create(CLUSTER_ROLES, "child", owner(parent))
    world.delete(CONFIG_MAPS, "parent")
    await world.wait_until_idle()
    assert world.find(CLUSTER_ROLES, "child") is not None


async def test_events_are_not_collected(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    world.create(CORE_EVENTS, "event", owner(parent), involvedObject={"namespace": "default"})
    world.delete(CONFIG_MAPS, "parent")
    await world.wait_until_idle()
    assert world.find(CORE_EVENTS, "event") is not None


async def test_a_dependent_with_another_owner_loses_the_reference_to_a_waiting_owner(world: World) -> None:
    deleted, kept = world.create(CONFIG_MAPS, "deleted"), world.create(CONFIG_MAPS, "kept")
    world.create(CONFIG_MAPS, "child", owner(deleted, blocks=True), owner(kept))
    world.delete(CONFIG_MAPS, "deleted", FOREGROUND)
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "deleted") is None
    child = world.find(CONFIG_MAPS, "child")
    assert child is not None
    assert child["metadata"]["ownerReferences"] == [owner(kept)]


async def test_a_new_dependent_of_a_terminating_owner_is_deleted(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    pod = {"nodeName": "one", "containers": [{"name": "c", "image": "i"}]}
    world.create(PODS, "held", owner(parent, blocks=True), spec=pod)
    world.delete(CONFIG_MAPS, "parent", FOREGROUND)
    await world.wait_until_idle()
    world.create(CONFIG_MAPS, "late", owner(parent))
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "late") is None
    assert world.find(CONFIG_MAPS, "parent") is not None
    world.delete(PODS, "held", DeleteOptions(grace_seconds=0))
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "parent") is None


async def test_a_recreated_object_is_not_deleted_with_the_old_one(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    world.create(CONFIG_MAPS, "child", owner(parent))
    world.delete(CONFIG_MAPS, "parent")
    world.delete(CONFIG_MAPS, "child")
    world.create(CONFIG_MAPS, "child")
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "child") is not None


async def test_deleting_a_thousand_dependents_does_not_block_the_event_loop(world: World) -> None:
    parent = world.create(CONFIG_MAPS, "parent")
    for number in range(1000):
        world.create(CONFIG_MAPS, f"child-{number}", owner(parent))
    world.delete(CONFIG_MAPS, "parent")
    iterations = 0
    while world.cluster.store.count("configmaps"):
        iterations += 1
        await asyncio.sleep(0)
    assert iterations >= 1000


def test_the_graph_forgets_deleted_objects() -> None:
    store, owners = Store(), OwnerGraph()
    store.listeners.append(owners.observe)
    parent, child = ObjectKey("configmaps", "default", "parent"), ObjectKey("configmaps", "default", "child")
    store.create(parent, {"metadata": {"uid": "p"}})
    store.create(child, {"metadata": {"uid": "c", "ownerReferences": [{"uid": "p"}, {"uid": "q"}]}})
    assert (owners.find("p"), owners.dependents("p"), owners.dependents("q")) == (parent, [child], [child])
    store.update(child, {"metadata": {"uid": "c", "ownerReferences": [{"uid": "p"}]}})
    assert owners.dependents("q") == []
    store.delete(child)
    store.delete(parent)
    assert (owners.find("p"), owners.find("c"), owners.dependents("p")) == (None, None, [])


def namespace_conditions(world: World, name: str) -> dict[str, tuple[str, str, str]]:
    body = world.find(NAMESPACES, name)
    assert body is not None
    return {
        condition["type"]: (condition["status"], condition["reason"], condition["message"]) for condition in body["status"]["conditions"]
    }


async def test_a_deleted_default_service_account_is_recreated(world: World) -> None:
    accounts = Resource("", "v1", "serviceaccounts", "ServiceAccount")
    world.create(NAMESPACES, "mine")
    await world.wait_until_idle()
    first = world.find(accounts, "default", namespace="mine")
    assert first is not None
    world.cluster.storage.delete(world.type(accounts), "mine", "default")
    await world.wait_until_idle()
    second = world.find(accounts, "default", namespace="mine")
    assert second is not None
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_terminating_namespace_keeps_its_content_until_its_pods_are_deleted(world: World) -> None:
    world.create(NAMESPACES, "mine")
    world.create(CONFIG_MAPS, "needed", namespace="mine")
    world.create(PODS, "p", namespace="mine", spec={"nodeName": "one", "containers": [{"name": "c", "image": "i"}]})
    world.delete(NAMESPACES, "mine")
    await world.wait_until_idle()
    assert world.find(CONFIG_MAPS, "needed", namespace="mine") is not None
    pod = world.find(PODS, "p", namespace="mine")
    assert pod is not None
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    world.cluster.storage.delete(world.type(PODS), "mine", "p", DeleteOptions(grace_seconds=0))
    await world.wait_until_idle()
    assert world.find(NAMESPACES, "mine") is None
    assert world.find(CONFIG_MAPS, "needed", namespace="mine") is None


async def test_a_terminating_namespace_reports_what_blocks_it(world: World) -> None:
    world.create(NAMESPACES, "mine")
    held = {"metadata": {"name": "held", "finalizers": ["example.org/hold"]}}
    world.cluster.storage.create(world.type(CONFIG_MAPS), "mine", held)
    world.delete(NAMESPACES, "mine")
    await world.wait_until_idle()
    conditions = namespace_conditions(world, "mine")
    remaining = "Some resources are remaining: configmaps. has 1 resource instances"
    assert conditions["NamespaceContentRemaining"] == ("True", "SomeResourcesRemain", remaining)
    finalizers = "Some content in the namespace has finalizers remaining: example.org/hold in 1 resource instances"
    assert conditions["NamespaceFinalizersRemaining"] == ("True", "SomeFinalizersRemain", finalizers)
    assert conditions["NamespaceDeletionContentFailure"][0] == "False"


async def test_a_large_namespace_is_emptied_in_batches(world: World) -> None:
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


async def test_dependents_are_deleted_when_the_crd_of_their_owner_is_deleted(world: World) -> None:
    trinkets = Resource("collector.dlop.dev", "v1", "trinkets", "Trinket")
    await install(world, trinkets)
    parent = world.create(trinkets, "parent", kind="Trinket", apiVersion=trinkets.api_version)
    world.create(CONFIG_MAPS, "child", owner(parent))
    world.delete(CUSTOM_RESOURCE_DEFINITIONS, trinkets.qualified_name)
    await world.wait_until_idle()
    assert world.cluster.registry.find(trinkets.group, trinkets.version, trinkets.plural) is None
    assert world.find(CONFIG_MAPS, "child") is None


async def install(world: World, resource: Resource) -> None:
    names = {"plural": resource.plural, "singular": "trinket", "kind": resource.kind, "listKind": f"{resource.kind}List"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    spec = {"group": resource.group, "names": names, "scope": "Namespaced", "versions": [version]}
    world.create(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name, spec=spec)
    await world.wait_until_idle()
