"""The cache: found by name, owner and label; one swap on relist; a version that only the server's restore takes back."""

from __future__ import annotations

import asyncio

import pytest

from dlop.kube.cache import Cache, CacheChange, version_number
from dlop.kube.objects import ObjectMeta, OwnerReference, PartialObject


def thing(name: str, version: int, *, uid: str = "", owner: str = "", namespace: str = "ns", **labels: str) -> PartialObject:
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


def names(found: list[PartialObject]) -> list[str]:
    return [each.metadata.name for each in found]


@pytest.fixture
def cache() -> Cache[PartialObject]:
    return Cache(labels=["job"])


def test_objects_are_found_by_name_by_owner_and_by_label(cache: Cache[PartialObject]) -> None:
    one, two = thing("a", 1, owner="o-1", job="x"), thing("b", 2, owner="o-1")
    cache.put(one)
    cache.put(two)
    assert cache.get("a", namespace="ns") is one
    assert cache.owned_by("o-1") == [one, two]
    assert cache.labelled("job", "x", namespace="ns") == [one]
    assert (len(cache), list(cache), list(cache.keys())) == (2, [one, two], [("ns", "a"), ("ns", "b")])


def test_a_label_is_looked_up_in_one_namespace(cache: Cache[PartialObject]) -> None:
    cache.put(thing("a", 1, job="x"))
    cache.put(thing("a", 2, namespace="other", job="x"))
    assert names(cache.labelled("job", "x", namespace="ns")) == ["a"]
    assert cache.labelled("job", "x", namespace="third") == []


def test_only_a_declared_label_can_be_asked_for(cache: Cache[PartialObject]) -> None:
    with pytest.raises(KeyError):
        cache.labelled("colour", "red", namespace="ns")


def test_an_object_that_changes_hands_moves_in_every_index(cache: Cache[PartialObject]) -> None:
    cache.put(thing("a", 1, owner="o-1", job="x"))
    cache.put(thing("a", 2, owner="o-2", job="y"))
    assert (names(cache.owned_by("o-1")), names(cache.owned_by("o-2"))) == ([], ["a"])
    assert (names(cache.labelled("job", "x", namespace="ns")), names(cache.labelled("job", "y", namespace="ns"))) == ([], ["a"])


def test_a_deleted_object_is_gone_from_every_index_and_leaves_nothing_behind(cache: Cache[PartialObject]) -> None:
    cache.put(thing("a", 1, owner="o-1", job="x"))
    cache.remove(thing("a", 2, owner="o-1", job="x"))
    assert (cache.get("a", namespace="ns"), cache.owned_by("o-1"), len(cache)) == (None, [], 0)
    assert cache.index_sizes() == {"": 0, "job": 0}


def test_a_change_shows_what_was_and_what_is(cache: Cache[PartialObject]) -> None:
    one, two, final = thing("a", 1), thing("a", 2), thing("a", 3)
    assert cache.put(one) == CacheChange(None, one)
    assert cache.put(two) == CacheChange(one, two)
    assert cache.remove(final) == CacheChange(final, None)
    assert CacheChange(final, None).object is final


def test_what_is_known_already_is_no_change(cache: Cache[PartialObject]) -> None:
    cache.put(thing("a", 5))
    assert cache.put(thing("a", 5)) is None
    assert cache.put(thing("a", 4)) is None
    assert cache.remove(thing("b", 6)) is None
    assert cache.get("a", namespace="ns") == thing("a", 5)


def test_an_old_deletion_does_not_take_away_a_newer_object_of_that_name(cache: Cache[PartialObject]) -> None:
    cache.put(thing("a", 9, uid="second"))
    assert cache.remove(thing("a", 8, uid="first")) is None
    assert len(cache) == 1


def test_versions_are_compared_as_numbers(cache: Cache[PartialObject]) -> None:
    cache.put(thing("a", 9))
    assert cache.put(thing("a", 10)) is not None
    assert (version_number("10") > version_number("9"), version_number(""), version_number("odd")) == (True, 0, 0)


def test_the_version_rises_with_every_event_and_bookmark_and_never_falls(cache: Cache[PartialObject]) -> None:
    seen: list[int] = []
    for change in (cache.put, cache.remove):
        change(thing("a", 3 + len(seen)))
        seen.append(cache.resource_version)
    for bookmark in (9, 8):
        cache.advance(bookmark)
        seen.append(cache.resource_version)
    assert seen == [3, 4, 9, 9]


def test_a_relist_tells_deletions_first_and_says_nothing_of_what_is_unchanged(cache: Cache[PartialObject]) -> None:
    same, changing, going = thing("same", 1), thing("changing", 2), thing("going", 3)
    for each in (same, changing, going):
        cache.put(each)
    replacement = cache.replacement()
    changed, new = thing("changing", 8), thing("new", 9)
    for each in (thing("same", 1), changed, new):
        replacement.put(each)
    assert cache.get("new", namespace="ns") is None, "the cache is untouched until the swap"
    assert cache.swap(replacement, resource_version=10) == [
        CacheChange(going, None, unseen=True),
        CacheChange(changing, changed),
        CacheChange(None, new),
    ]
    assert cache.get("same", namespace="ns") is same, "the known copy is kept"
    assert (cache.resource_version, len(cache)) == (10, 3)


def test_another_object_of_the_same_name_is_one_update_that_shows_both(cache: Cache[PartialObject]) -> None:
    first, second = thing("a", 1, uid="first", owner="o-1"), thing("a", 5, uid="second", owner="o-2")
    cache.put(first)
    replacement = cache.replacement()
    replacement.put(second)
    assert cache.swap(replacement, resource_version=6) == [CacheChange(first, second)]
    assert (cache.owned_by("o-1"), cache.owned_by("o-2")) == ([], [second])


def test_a_list_may_take_back_what_it_has_said(cache: Cache[PartialObject]) -> None:
    cache.put(thing("known", 1))
    replacement = cache.replacement(initial=True)
    replacement.put(thing("a", 2))
    replacement.put(thing("a", 3))
    replacement.put(thing("b", 4))
    replacement.remove(thing("b", 5))
    replacement.put(thing("known", 1))
    assert cache.swap(replacement, resource_version=6) == [CacheChange(None, thing("a", 3), initial=True)]


def test_what_a_relist_has_replaced_is_let_go_bit_by_bit(cache: Cache[PartialObject]) -> None:
    for number in range(3):
        cache.put(thing(f"old-{number}", number + 1))
    replacement = cache.replacement()
    replacement.put(thing("new", 9))
    cache.swap(replacement, resource_version=10)
    assert len(list(replacement.let_go())) == 4
    assert names(list(cache)) == ["new"], "the cache itself is not touched"


def test_a_swap_alone_may_take_the_version_back(cache: Cache[PartialObject]) -> None:
    cache.advance(100)
    cache.swap(cache.replacement(), resource_version=50)
    assert cache.resource_version == 50


async def test_waiting_for_a_version_ends_when_it_or_a_later_one_is_shown(cache: Cache[PartialObject]) -> None:
    third, fifth, second = cache.reached(3), cache.reached(5), cache.reached(2)
    cache.put(thing("a", 2))
    assert (second.done(), third.done()) == (True, False)
    cache.advance(4)
    assert (third.done(), fifth.done()) == (True, False)
    cache.swap(cache.replacement(), resource_version=9)
    assert fifth.done()
    assert cache.reached(9).done()


async def test_a_waiter_that_gave_up_is_no_trouble(cache: Cache[PartialObject]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(cache.reached(3), 0.001)
    patient = cache.reached(3)
    cache.advance(3)
    assert patient.done()
