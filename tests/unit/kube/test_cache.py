"""Cache: lookups by name, owner and label, relists, and the resource version."""

from __future__ import annotations

import asyncio

import pytest

from dlop.kube.cache import Cache, CacheChange, parse_resource_version
from dlop.kube.objects import ObjectMeta, OwnerReference, PartialObject
from tests.unit.kube.cache_indexes import index_sizes


def make_object(name: str, version: int, *, uid: str = "", owner: str = "", namespace: str = "ns", **labels: str) -> PartialObject:
    owners = (OwnerReference(uid=owner, controller=True),) if owner else ()
    return PartialObject(
        ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or f"uid-{name}",
            resource_version=str(version),
            labels=labels,
            owner_references=owners,
        )
    )


def names(objects: list[PartialObject]) -> list[str]:
    return [obj.metadata.name for obj in objects]


@pytest.fixture
def cache() -> Cache[PartialObject]:
    return Cache(labels=["job"])


def test_objects_are_indexed_by_name_and_owner_and_orphans_by_label(cache: Cache[PartialObject]) -> None:
    one, two, orphan = make_object("a", 1, owner="o-1", job="x"), make_object("b", 2, owner="o-1"), make_object("c", 3, job="x")
    for each in (one, two, orphan):
        cache.put(each)
    assert cache.get("a", namespace="ns") is one
    assert cache.owned_by("o-1") == [one, two]
    assert cache.orphans("job", "x", namespace="ns") == [orphan]
    assert (len(cache), list(cache), list(cache.keys())) == (3, [one, two, orphan], [("ns", "a"), ("ns", "b"), ("ns", "c")])


def test_a_label_is_looked_up_in_one_namespace(cache: Cache[PartialObject]) -> None:
    cache.put(make_object("a", 1, job="x"))
    cache.put(make_object("a", 2, namespace="other", job="x"))
    assert names(cache.orphans("job", "x", namespace="ns")) == ["a"]
    assert cache.orphans("job", "x", namespace="third") == []


def test_only_an_indexed_label_can_be_looked_up(cache: Cache[PartialObject]) -> None:
    with pytest.raises(KeyError):
        cache.orphans("color", "red", namespace="ns")


def test_a_changed_owner_or_label_updates_the_indexes(cache: Cache[PartialObject]) -> None:
    cache.put(make_object("a", 1, owner="o-1", job="x"))
    cache.put(make_object("a", 2, owner="o-2", job="y"))
    assert (names(cache.owned_by("o-1")), names(cache.owned_by("o-2"))) == ([], ["a"])
    cache.put(make_object("a", 3, job="y"))
    assert (names(cache.owned_by("o-2")), names(cache.orphans("job", "y", namespace="ns"))) == ([], ["a"])
    cache.put(make_object("a", 4, job="z"))
    assert (names(cache.orphans("job", "y", namespace="ns")), names(cache.orphans("job", "z", namespace="ns"))) == ([], ["a"])
    cache.put(make_object("a", 5, owner="o-1", job="z"))
    assert (names(cache.owned_by("o-1")), names(cache.orphans("job", "z", namespace="ns"))) == (["a"], [])


def test_a_deleted_object_is_removed_from_every_index(cache: Cache[PartialObject]) -> None:
    cache.put(make_object("a", 1, owner="o-1", job="x"))
    cache.put(make_object("b", 2, job="x"))
    cache.remove(make_object("a", 3, owner="o-1", job="x"))
    cache.remove(make_object("b", 4, job="x"))
    assert (cache.get("a", namespace="ns"), cache.owned_by("o-1"), len(cache)) == (None, [], 0)
    assert index_sizes(cache) == {"": 0, "job": 0}


def test_a_change_has_the_old_and_the_new_state(cache: Cache[PartialObject]) -> None:
    one, two, final = make_object("a", 1), make_object("a", 2), make_object("a", 3)
    assert cache.put(one) == CacheChange(None, one)
    assert cache.put(two) == CacheChange(one, two)
    assert cache.remove(final) == CacheChange(final, None)
    assert CacheChange(final, None).object is final


def test_a_known_state_is_not_a_change(cache: Cache[PartialObject]) -> None:
    cache.put(make_object("a", 5))
    assert cache.put(make_object("a", 5)) is None
    assert cache.put(make_object("a", 4)) is None
    assert cache.remove(make_object("b", 6)) is None
    assert cache.get("a", namespace="ns") == make_object("a", 5)


def test_a_stale_deletion_does_not_remove_a_newer_object_of_the_same_name(cache: Cache[PartialObject]) -> None:
    cache.put(make_object("a", 9, uid="second"))
    assert cache.remove(make_object("a", 8, uid="first")) is None
    assert len(cache) == 1


def test_versions_are_compared_as_numbers(cache: Cache[PartialObject]) -> None:
    cache.put(make_object("a", 9))
    assert cache.put(make_object("a", 10)) is not None
    assert parse_resource_version("10") > parse_resource_version("9")
    assert (parse_resource_version(""), parse_resource_version("odd")) == (0, 0)


def test_the_version_rises_with_events_and_bookmarks_and_never_falls(cache: Cache[PartialObject]) -> None:
    versions: list[int] = []
    for change in (cache.put, cache.remove):
        change(make_object("a", 3 + len(versions)))
        versions.append(cache.resource_version)
    for bookmark in (9, 8):
        cache.advance(bookmark)
        versions.append(cache.resource_version)
    assert versions == [3, 4, 9, 9]


def test_a_relist_reports_deletions_first_and_skips_unchanged_objects(cache: Cache[PartialObject]) -> None:
    same, changing, deleted = make_object("same", 1), make_object("changing", 2), make_object("deleted", 3)
    for obj in (same, changing, deleted):
        cache.put(obj)
    replacement = cache.replacement()
    changed, new = make_object("changing", 8), make_object("new", 9)
    for obj in (make_object("same", 1), changed, new):
        replacement.put(obj)
    assert cache.get("new", namespace="ns") is None, "the cache is untouched until the swap"
    assert cache.swap(replacement, resource_version=10) == [
        CacheChange(deleted, None),
        CacheChange(changing, changed),
        CacheChange(None, new),
    ]
    assert cache.get("same", namespace="ns") is same, "the known instance is kept"
    assert (cache.resource_version, len(cache)) == (10, 3)


def test_a_recreated_object_is_one_update_with_both_states(cache: Cache[PartialObject]) -> None:
    first, second = make_object("a", 1, uid="first", owner="o-1"), make_object("a", 5, uid="second", owner="o-2")
    cache.put(first)
    replacement = cache.replacement()
    replacement.put(second)
    assert cache.swap(replacement, resource_version=6) == [CacheChange(first, second)]
    assert (cache.owned_by("o-1"), cache.owned_by("o-2")) == ([], [second])


def test_a_streaming_list_may_change_and_remove_objects(cache: Cache[PartialObject]) -> None:
    cache.put(make_object("known", 1))
    replacement = cache.replacement(initial=True)
    replacement.put(make_object("a", 2))
    replacement.put(make_object("a", 3))
    replacement.put(make_object("b", 4))
    replacement.remove(make_object("b", 5))
    replacement.put(make_object("known", 1))
    assert cache.swap(replacement, resource_version=6) == [CacheChange(None, make_object("a", 3), initial=True)]


def test_replaced_contents_are_released_step_by_step(cache: Cache[PartialObject]) -> None:
    for number in range(3):
        cache.put(make_object(f"old-{number}", number + 1))
    replacement = cache.replacement()
    replacement.put(make_object("new", 9))
    cache.swap(replacement, resource_version=10)
    assert len(list(replacement.release())) == 4
    assert names(list(cache)) == ["new"], "the new contents are unchanged"


def test_only_a_swap_can_lower_the_version(cache: Cache[PartialObject]) -> None:
    cache.advance(100)
    cache.swap(cache.replacement(), resource_version=50)
    assert cache.resource_version == 50


async def test_waiting_for_a_version_ends_at_that_version_or_a_later_one(cache: Cache[PartialObject]) -> None:
    third, fifth, second = cache.wait_for_version(3), cache.wait_for_version(5), cache.wait_for_version(2)
    cache.put(make_object("a", 2))
    assert (second.done(), third.done()) == (True, False)
    cache.advance(4)
    assert (third.done(), fifth.done()) == (True, False)
    cache.swap(cache.replacement(), resource_version=9)
    assert fifth.done()
    assert cache.wait_for_version(9).done()


async def test_a_cancelled_waiter_is_ignored(cache: Cache[PartialObject]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(cache.wait_for_version(3), 0.001)
    waiter = cache.wait_for_version(3)
    cache.advance(3)
    assert waiter.done()
