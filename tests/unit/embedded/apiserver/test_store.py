"""The versioned store: what is kept, what is remembered, and who hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.embedded.apiserver.store import ChangeType, CompactedError, Key, Store, StoreEvent
from dlop.testing.virtual_time import virtual_time

Place = tuple[str, str]
State = dict[Place, int]
"""The version of every object that is there."""

_PLACES = [(namespace, name) for namespace in ("one", "two") for name in ("a", "b", "c")]
steps = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "delete", "other", "compact"]), st.sampled_from(_PLACES)), max_size=40)


def key(namespace: str, name: str) -> Key:
    return Key("things", namespace, name)


def state(store: Store, *, version: int | None = None) -> State:
    return {(found.namespace, found.name): stored.version for found, stored in store.list("things", version=version)}


def replayed(onto: State, changes: Iterable[StoreEvent]) -> State:
    result = dict(onto)
    for change in changes:
        place = (change.key.namespace, change.key.name)
        assert (place in result) is (change.type is not ChangeType.ADDED), "an event contradicts what came before it"
        if change.type is ChangeType.DELETED:
            del result[place]
        else:
            result[place] = change.version
    return result


def take_step(store: Store, what: str, place: Place) -> None:
    here = key(*place)
    match what:
        case "put" if store.get(here) is None:
            store.create(here, {"metadata": {"name": here.name}})
        case "put":
            store.update(here, {"metadata": {"name": here.name}})
        case "delete" if store.get(here) is not None:
            store.delete(here)
        case "other":
            store.create(Key("others", "", str(store.version)), {"metadata": {}})
        case "compact":
            store.compact(store.version - 2)


@given(steps, st.integers(min_value=2, max_value=12))
def test_a_watch_replayed_onto_the_list_of_its_version_gives_the_list_of_now_or_410(
    taken: list[tuple[str, Place]], history_limit: int
) -> None:
    store = Store(history_limit=history_limit)
    history = {store.version: state(store)}
    for what, place in taken:
        take_step(store, what, place)
        history[store.version] = state(store)
    for since, then in history.items():
        if since < store.floor:
            with pytest.raises(CompactedError):
                store.cursor("things", since=since)
            with pytest.raises(CompactedError):
                state(store, version=since)
            continue
        assert state(store, version=since) == then
        assert replayed(then, store.cursor("things", since=since).take()) == state(store)


@given(steps, st.data())
def test_a_reader_that_takes_now_and_then_hears_everything_once_or_is_told_that_it_cannot(
    taken: list[tuple[str, Place]], data: st.DataObject
) -> None:
    store = Store(history_limit=6)
    cursor = store.cursor("things", since=store.version)
    seen: State = {}
    for what, place in taken:
        take_step(store, what, place)
        if data.draw(st.booleans()):
            try:
                seen = replayed(seen, cursor.take(data.draw(st.integers(1, 3))))
            except CompactedError:
                assert cursor.version < store.floor
                return
    try:
        while changes := cursor.take(2):
            seen = replayed(seen, changes)
    except CompactedError:
        assert cursor.version < store.floor
    else:
        assert seen == state(store)


@given(steps, st.sampled_from(["", "one", "two"]), st.sampled_from([None, *_PLACES]))
def test_a_list_is_in_key_order_and_begins_behind_the_place_it_is_told(
    taken: list[tuple[str, Place]], namespace: str, after: Place | None
) -> None:
    store = Store()
    for what, place in taken:
        take_step(store, what, place)
    everything = sorted(state(store))
    wanted = [place for place in everything if (not namespace or place[0] == namespace) and (after is None or place > after)]
    after_in_namespace = after if after is None or not namespace or after[0] == namespace else None
    if after_in_namespace == after:
        assert [(found.namespace, found.name) for found, _ in store.list("things", namespace=namespace, after=after)] == wanted


def test_every_change_has_a_number_of_its_own_and_the_body_carries_it() -> None:
    store = Store()
    created = store.create(key("one", "a"), {"metadata": {"name": "a"}})
    updated = store.update(key("one", "a"), {"metadata": {"name": "a"}})
    deleted = store.delete(key("one", "a"))
    numbers = [created.version, updated.version, deleted.version]
    assert numbers == sorted(set(numbers))
    assert [each.body["metadata"]["resourceVersion"] for each in (created, updated, deleted)] == [str(number) for number in numbers]


def test_stored_bodies_are_never_changed_afterwards() -> None:
    store = Store()
    created = store.create(key("one", "a"), {"metadata": {"name": "a"}, "spec": {"x": 1}})
    before = created.encoded
    store.update(key("one", "a"), {**created.body, "spec": {"x": 2}})
    store.delete(key("one", "a"))
    assert created.body["spec"] == {"x": 1}
    assert created.encoded == before


def test_listeners_hear_of_every_change_right_after_it() -> None:
    store = Store()
    heard: list[tuple[str, bool]] = []
    store.listeners.append(lambda change: heard.append((change.type, store.get(change.key) is not None)))
    store.create(key("one", "a"), {"metadata": {}})
    store.delete(key("one", "a"))
    assert heard == [("ADDED", True), ("DELETED", False)]


@virtual_time
async def test_a_waiting_reader_is_woken_by_a_change_of_its_own_resource_only() -> None:
    store = Store()
    cursor = store.cursor("things", since=store.version)
    waiting = asyncio.create_task(cursor.wait())
    await asyncio.sleep(0)
    store.create(Key("others", "", "a"), {"metadata": {}})
    await asyncio.sleep(1)
    assert not waiting.done()
    store.create(key("one", "a"), {"metadata": {}})
    await waiting
    assert [change.type for change in cursor.take()] == ["ADDED"]


@virtual_time
async def test_a_reader_that_stops_waiting_leaves_nothing_behind() -> None:
    store = Store()
    cursor = store.cursor("things", since=store.version)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await cursor.wait()
    assert not store._shelf("things").waiters
