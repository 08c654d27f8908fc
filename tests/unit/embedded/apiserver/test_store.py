"""The versioned store: objects, history, cursors and listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.embedded.apiserver.store import ChangeType, CompactedError, ObjectKey, Store, StoreEvent
from dlop.testing.virtual_time import virtual_time

Name = tuple[str, str]
State = dict[Name, int]
"""The version of every existing object."""

_NAMES = [(namespace, name) for namespace in ("one", "two") for name in ("a", "b", "c")]
steps = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "delete", "other", "compact"]), st.sampled_from(_NAMES)), max_size=40)


def key(namespace: str, name: str) -> ObjectKey:
    return ObjectKey("things", namespace, name)


def state(store: Store, *, version: int | None = None) -> State:
    return {(key.namespace, key.name): stored.version for key, stored in store.list("things", version=version)}


def replay(state: State, changes: Iterable[StoreEvent]) -> State:
    result = dict(state)
    for change in changes:
        name = (change.key.namespace, change.key.name)
        assert (name in result) is (change.type is not ChangeType.ADDED), "an event contradicts an earlier one"
        if change.type is ChangeType.DELETED:
            del result[name]
        else:
            result[name] = change.version
    return result


def apply_step(store: Store, action: str, name: Name) -> None:
    object_key = key(*name)
    match action:
        case "put" if store.get(object_key) is None:
            store.create(object_key, {"metadata": {"name": object_key.name}})
        case "put":
            store.update(object_key, {"metadata": {"name": object_key.name}})
        case "delete" if store.get(object_key) is not None:
            store.delete(object_key)
        case "other":
            store.create(ObjectKey("others", "", str(store.version)), {"metadata": {}})
        case "compact":
            store.compact(store.version - 2)


@given(steps, st.integers(min_value=2, max_value=12))
def test_replaying_a_watch_onto_the_list_of_its_version_gives_the_current_list_or_410(
    actions: list[tuple[str, Name]], history_limit: int
) -> None:
    store = Store(history_limit=history_limit)
    history = {store.version: state(store)}
    for action, name in actions:
        apply_step(store, action, name)
        history[store.version] = state(store)
    for since, expected in history.items():
        if since < store.floor:
            with pytest.raises(CompactedError):
                store.cursor("things", since=since)
            with pytest.raises(CompactedError):
                state(store, version=since)
            continue
        assert state(store, version=since) == expected
        assert replay(expected, store.cursor("things", since=since).take()) == state(store)


@given(steps, st.data())
def test_a_reader_gets_every_change_once_or_a_compaction_error(actions: list[tuple[str, Name]], data: st.DataObject) -> None:
    store = Store(history_limit=6)
    cursor = store.cursor("things", since=store.version)
    seen: State = {}
    for action, name in actions:
        apply_step(store, action, name)
        if data.draw(st.booleans()):
            try:
                seen = replay(seen, cursor.take(data.draw(st.integers(1, 3))))
            except CompactedError:
                assert cursor.version < store.floor
                return
    try:
        while changes := cursor.take(2):
            seen = replay(seen, changes)
    except CompactedError:
        assert cursor.version < store.floor
    else:
        assert seen == state(store)


@given(steps, st.sampled_from(["", "one", "two"]), st.sampled_from([None, *_NAMES]))
def test_a_list_is_in_key_order_and_starts_after_the_requested_key(
    actions: list[tuple[str, Name]], namespace: str, after: Name | None
) -> None:
    store = Store()
    for action, name in actions:
        apply_step(store, action, name)
    everything = sorted(state(store))
    expected = [name for name in everything if (not namespace or name[0] == namespace) and (after is None or name > after)]
    after_in_namespace = after if after is None or not namespace or after[0] == namespace else None
    if after_in_namespace == after:
        assert [(key.namespace, key.name) for key, _ in store.list("things", namespace=namespace, after=after)] == expected


def test_every_change_has_a_unique_version_that_the_body_contains() -> None:
    store = Store()
    created = store.create(key("one", "a"), {"metadata": {"name": "a"}})
    updated = store.update(key("one", "a"), {"metadata": {"name": "a"}})
    deleted = store.delete(key("one", "a"))
    versions = [created.version, updated.version, deleted.version]
    assert versions == sorted(set(versions))
    assert [stored.body["metadata"]["resourceVersion"] for stored in (created, updated, deleted)] == [str(version) for version in versions]


def test_stored_bodies_are_never_modified() -> None:
    store = Store()
    created = store.create(key("one", "a"), {"metadata": {"name": "a"}, "spec": {"x": 1}})
    before = created.encoded
    store.update(key("one", "a"), {**created.body, "spec": {"x": 2}})
    store.delete(key("one", "a"))
    assert created.body["spec"] == {"x": 1}
    assert created.encoded == before


def test_listeners_are_called_after_every_change() -> None:
    store = Store()
    observed: list[tuple[str, bool]] = []
    store.listeners.append(lambda change: observed.append((change.type, store.get(change.key) is not None)))
    store.create(key("one", "a"), {"metadata": {}})
    store.delete(key("one", "a"))
    assert observed == [("ADDED", True), ("DELETED", False)]


@virtual_time
async def test_a_waiting_reader_is_only_woken_by_changes_of_its_resource() -> None:
    store = Store()
    cursor = store.cursor("things", since=store.version)
    waiting = asyncio.create_task(cursor.wait())
    await asyncio.sleep(0)
    store.create(ObjectKey("others", "", "a"), {"metadata": {}})
    await asyncio.sleep(1)
    assert not waiting.done()
    store.create(key("one", "a"), {"metadata": {}})
    await waiting
    assert [change.type for change in cursor.take()] == ["ADDED"]


@virtual_time
async def test_a_cancelled_wait_removes_its_waiter() -> None:
    store = Store()
    cursor = store.cursor("things", since=store.version)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await cursor.wait()
    assert not store._table("things").waiters
