"""Watches: every change once, in order, from a version that the reader names."""

from __future__ import annotations

import asyncio

from dlop.kube.errors import GoneError, ServerError
from dlop.kube.resources import LEASES, PODS
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import lease, pod
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, refused, version_of


async def test_a_watch_tells_creates_changes_and_deletes_in_order(api: Api) -> None:
    async with api.watching(LEASES) as watch:
        await api.create(LEASES, lease("a"))
        await api.patch(LEASES, "a", {"spec": {"holderIdentity": "you"}})
        await api.create(LEASES, lease("b"))
        await api.delete(LEASES, "a")
        assert await watch.story(4) == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_a_watch_event_carries_the_object_as_the_write_answered_it(api: Api) -> None:
    async with api.watching(LEASES) as watch:
        created = await api.create(LEASES, lease("a"))
        assert await watch.next() == (WatchEventType.ADDED, created)
        changed = await api.patch(LEASES, "a", {"spec": {"holderIdentity": "you"}})
        assert await watch.next() == (WatchEventType.MODIFIED, changed)


async def test_a_deletion_is_told_with_the_last_state_under_a_newer_version(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    async with api.watching(LEASES) as watch:
        await api.delete(LEASES, "a")
        kind, last = await watch.next()
    assert kind is WatchEventType.DELETED
    assert last["spec"] == created["spec"]
    assert version_of(last) > version_of(created)


async def test_versions_rise_along_a_watch_under_concurrent_writers(api: Api) -> None:
    async with api.watching(LEASES) as watch:
        await asyncio.gather(*(api.create(LEASES, lease(f"a{i}")) for i in range(20)))
        versions = [version_of((await watch.next())[1]) for _ in range(20)]
    assert versions == sorted(set(versions))


async def test_a_watch_resumes_after_the_version_it_is_given(api: Api) -> None:
    first = await api.create(LEASES, lease("a"))
    await api.create(LEASES, lease("b"))
    await api.patch(LEASES, "a", {"spec": {"holderIdentity": "you"}})
    async with api.watching(LEASES, resource_version=first["metadata"]["resourceVersion"]) as watch:
        assert await watch.story(2) == [("ADDED", "b"), ("MODIFIED", "a")]


async def test_a_watch_from_a_list_misses_nothing_and_repeats_nothing(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    listed = await api.list(LEASES)
    await api.create(LEASES, lease("b"))
    async with api.watching(LEASES, resource_version=listed["metadata"]["resourceVersion"]) as watch:
        await api.create(LEASES, lease("c"))
        assert await watch.story(2) == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_watch_without_a_version_begins_with_what_is_there(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    await api.patch(LEASES, "a", {"spec": {"holderIdentity": "you"}})
    for version in (None, "0"):
        async with api.watching(LEASES, resource_version=version) as watch:
            kind, found = await watch.next()
            assert (kind, found["spec"]["holderIdentity"]) == (WatchEventType.ADDED, "you")


async def test_a_watch_sees_its_own_namespace_only(api: Api) -> None:
    async with api.watching(LEASES) as watch:
        await api.client.create(LEASES, lease(api.namespace), namespace="default")
        await api.create(LEASES, lease("here"))
        assert await watch.story(1) == [("ADDED", "here")]


async def test_a_watch_of_all_namespaces_sees_each_of_them(api: Api) -> None:
    selector = f"metadata.name={api.namespace}"
    async with api.watching(LEASES, namespace=None, field_selector=selector) as watch:
        for namespace in (api.namespace, "default"):
            await api.client.create(LEASES, lease(api.namespace), namespace=namespace)
        found = [(await watch.next())[1]["metadata"]["namespace"] for _ in range(2)]
    assert found == [api.namespace, "default"]


async def test_an_object_that_begins_to_match_is_added_and_one_that_ceases_is_deleted(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    async with api.watching(LEASES, label_selector="watched=yes") as watch:
        await api.patch(LEASES, "a", {"metadata": {"labels": {"watched": "yes"}}})
        await api.patch(LEASES, "a", {"spec": {"holderIdentity": "you"}})
        await api.patch(LEASES, "a", {"metadata": {"labels": {"watched": "no"}}})
        await api.patch(LEASES, "a", {"spec": {"holderIdentity": "they"}})
        await api.patch(LEASES, "a", {"metadata": {"labels": {"watched": "yes"}}})
        expected = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a")]
        assert await watch.story(4) == expected


async def test_an_object_that_ceases_to_match_is_told_with_its_last_matching_state(api: Api) -> None:
    await api.create(LEASES, lease("a", labels={"watched": "yes"}))
    async with api.watching(LEASES, label_selector="watched=yes") as watch:
        changed = await api.patch(LEASES, "a", {"metadata": {"labels": {"watched": "no"}}})
        kind, last = await watch.next()
    assert (kind, last["metadata"]["labels"]) == (WatchEventType.DELETED, {"watched": "yes"})
    assert version_of(last) == version_of(changed)


async def test_a_watch_by_field_follows_a_pod_to_its_node(api: Api) -> None:
    await api.create(PODS, pod("a"))
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "one"}}
    async with api.watching(PODS, field_selector="spec.nodeName=one") as watch:
        await api.create(PODS, binding, name="a", subresource="binding")
        kind, found = await watch.next()
    assert (kind, found["spec"]["nodeName"]) == (WatchEventType.ADDED, "one")


async def test_a_write_that_changes_nothing_is_not_told(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    async with api.watching(WIDGETS) as watch:
        await api.patch(WIDGETS, "a", {"spec": {"replicas": 1}})
        await api.create(WIDGETS, widget("sentinel"))
        assert await watch.story(1) == [("ADDED", "sentinel")]


async def test_a_watch_ends_by_itself_after_its_time(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    async with api.watching(LEASES, resource_version="0", timeout_seconds=1) as watch:
        assert [kind for kind, _ in await watch.rest()] == [WatchEventType.ADDED]


async def test_a_watch_from_before_the_history_is_gone(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    await api.compact()
    async with api.watching(WIDGETS, resource_version="1") as watch:
        error = await refused(watch.next(), GoneError)
    assert (error.status_code, error.status_reason) == (410, "Expired")
    assert str(error).startswith("too old resource version: 1 (")


async def test_a_watch_from_now_on_works_right_after_a_compaction(api: Api) -> None:
    await api.compact()
    async with api.watching(LEASES) as watch:
        await api.create(LEASES, lease("a"))
        assert await watch.story(1) == [("ADDED", "a")]


async def test_a_watch_from_a_version_that_is_no_number_is_refused(api: Api) -> None:
    async def opened() -> None:
        async with api.watching(LEASES, resource_version="abc") as watch:
            await watch.next()

    error = await refused(opened(), ServerError)
    assert (error.status_code, str(error)) == (
        500,
        'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax',
    )
