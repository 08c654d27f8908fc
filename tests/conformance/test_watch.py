"""Watches: order, resource versions, selectors and expiry."""

from __future__ import annotations

import asyncio

from dlop.kube.errors import GoneError, ServerError
from dlop.kube.resources import LEASES, PODS
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import binding, lease, pod
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, over_https, resource_version_of

pytestmark = over_https(reason="a watch is a stream whose chunks can split events")


async def test_a_watch_sends_creates_changes_and_deletes_in_order(api: Api) -> None:
    async with api.watch(LEASES) as watch:
        await api.create(LEASES, lease("a"))
        await api.patch(LEASES, "a", {"spec": {"holderIdentity": "other"}})
        await api.create(LEASES, lease("b"))
        await api.delete(LEASES, "a")
        assert await watch.next_changes(4) == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_a_watch_event_contains_the_object_that_the_write_returned(api: Api) -> None:
    async with api.watch(LEASES) as watch:
        created = await api.create(LEASES, lease("a"))
        assert await watch.next() == (WatchEventType.ADDED, created)
        changed = await api.patch(LEASES, "a", {"spec": {"holderIdentity": "other"}})
        assert await watch.next() == (WatchEventType.MODIFIED, changed)


async def test_a_deleted_event_has_the_last_state_and_a_newer_resource_version(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    async with api.watch(LEASES) as watch:
        await api.delete(LEASES, "a")
        event_type, last = await watch.next()
    assert event_type is WatchEventType.DELETED
    assert last["spec"] == created["spec"]
    assert resource_version_of(last) > resource_version_of(created)


async def test_resource_versions_of_a_watch_increase_with_concurrent_writers(api: Api) -> None:
    async with api.watch(LEASES) as watch:
        await asyncio.gather(*(api.create(LEASES, lease(f"a{i}")) for i in range(20)))
        versions = [resource_version_of((await watch.next())[1]) for _ in range(20)]
    assert versions == sorted(set(versions))


async def test_a_watch_resumes_after_its_resource_version(api: Api) -> None:
    first = await api.create(LEASES, lease("a"))
    await api.create(LEASES, lease("b"))
    await api.patch(LEASES, "a", {"spec": {"holderIdentity": "other"}})
    async with api.watch(LEASES, resource_version=first["metadata"]["resourceVersion"]) as watch:
        assert await watch.next_changes(2) == [("ADDED", "b"), ("MODIFIED", "a")]


async def test_a_watch_from_a_list_sends_each_later_change_once(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    listed = await api.list(LEASES)
    await api.create(LEASES, lease("b"))
    async with api.watch(LEASES, resource_version=listed["metadata"]["resourceVersion"]) as watch:
        await api.create(LEASES, lease("c"))
        assert await watch.next_changes(2) == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_watch_without_a_resource_version_starts_with_existing_objects(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    await api.patch(LEASES, "a", {"spec": {"holderIdentity": "other"}})
    for version in (None, "0"):
        async with api.watch(LEASES, resource_version=version) as watch:
            event_type, obj = await watch.next()
            assert (event_type, obj["spec"]["holderIdentity"]) == (WatchEventType.ADDED, "other")


async def test_a_watch_of_a_namespace_excludes_other_namespaces(api: Api) -> None:
    async with api.watch(LEASES) as watch:
        await api.client.create(LEASES, lease(api.namespace), namespace="default")
        await api.create(LEASES, lease("a"))
        assert await watch.next_changes(1) == [("ADDED", "a")]


async def test_a_watch_of_all_namespaces_includes_each_namespace(api: Api) -> None:
    selector = f"metadata.name={api.namespace}"
    async with api.watch(LEASES, namespace=None, field_selector=selector) as watch:
        for namespace in (api.namespace, "default"):
            await api.client.create(LEASES, lease(api.namespace), namespace=namespace)
        namespaces = [(await watch.next())[1]["metadata"]["namespace"] for _ in range(2)]
    assert namespaces == [api.namespace, "default"]


async def test_an_object_is_added_when_it_starts_to_match_and_deleted_when_it_stops(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    async with api.watch(LEASES, label_selector="watched=yes") as watch:
        await api.patch(LEASES, "a", {"metadata": {"labels": {"watched": "yes"}}})
        await api.patch(LEASES, "a", {"spec": {"holderIdentity": "other"}})
        await api.patch(LEASES, "a", {"metadata": {"labels": {"watched": "no"}}})
        await api.patch(LEASES, "a", {"spec": {"holderIdentity": "third"}})
        await api.patch(LEASES, "a", {"metadata": {"labels": {"watched": "yes"}}})
        expected = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a")]
        assert await watch.next_changes(4) == expected


async def test_an_object_that_no_longer_matches_is_deleted_with_its_last_matching_state(api: Api) -> None:
    await api.create(LEASES, lease("a", labels={"watched": "yes"}))
    async with api.watch(LEASES, label_selector="watched=yes") as watch:
        changed = await api.patch(LEASES, "a", {"metadata": {"labels": {"watched": "no"}}})
        event_type, last = await watch.next()
    assert (event_type, last["metadata"]["labels"]) == (WatchEventType.DELETED, {"watched": "yes"})
    assert resource_version_of(last) == resource_version_of(changed)


async def test_a_watch_by_node_name_sends_a_pod_when_it_is_bound(api: Api) -> None:
    await api.create(PODS, pod("a"))
    async with api.watch(PODS, field_selector="spec.nodeName=one") as watch:
        await api.create(PODS, binding("a", "one"), name="a", subresource="binding")
        event_type, obj = await watch.next()
    assert (event_type, obj["spec"]["nodeName"]) == (WatchEventType.ADDED, "one")


async def test_a_write_without_changes_sends_no_event(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    async with api.watch(WIDGETS) as watch:
        await api.patch(WIDGETS, "a", {"spec": {"replicas": 1}})
        await api.create(WIDGETS, widget("sentinel"))
        assert await watch.next_changes(1) == [("ADDED", "sentinel")]


async def test_a_watch_ends_after_its_timeout(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    async with api.watch(LEASES, resource_version="0", timeout_seconds=1) as watch:
        assert [event_type for event_type, _ in await watch.read_to_end()] == [WatchEventType.ADDED]


async def test_a_watch_from_a_compacted_resource_version_expires(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    await api.compact()
    async with api.watch(WIDGETS, resource_version="1") as watch:
        error = await expect_error(watch.next(), GoneError)
    assert (error.status_code, error.status_reason) == (410, "Expired")
    assert str(error).startswith("too old resource version: 1 (")


async def test_a_watch_from_the_current_resource_version_works_after_a_compaction(api: Api) -> None:
    await api.compact()
    async with api.watch(LEASES) as watch:
        await api.create(LEASES, lease("a"))
        assert await watch.next_changes(1) == [("ADDED", "a")]


async def test_a_watch_from_an_invalid_resource_version_is_a_server_error(api: Api) -> None:
    async def watch_invalid_version() -> None:
        async with api.watch(LEASES, resource_version="abc") as watch:
            await watch.next()

    error = await expect_error(watch_invalid_version(), ServerError)
    assert (error.status_code, str(error)) == (
        500,
        'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax',
    )
