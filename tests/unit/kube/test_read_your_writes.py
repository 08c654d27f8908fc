"""Read your writes: a key is not looked at before the caches show what was last written for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given
from hypothesis import strategies as st

from dlop.kube.cache import Cache
from dlop.kube.errors import TransportError
from dlop.kube.objects import PartialObject
from dlop.kube.read_your_writes import ReadYourWrites
from dlop.kube.resources import CONFIG_MAPS, PODS, SERVICES, Resource
from dlop.testing.virtual_time import virtual_time


class World:
    """Two caches, the gate over them, and a server whose store is at some version."""

    def __init__(self, *, refresh_failures: int = 0) -> None:
        self.caches: dict[Resource, Cache[PartialObject]] = {PODS: Cache(), SERVICES: Cache()}
        self.gate = ReadYourWrites(self.caches, refresh=self.refresh, patience_seconds=10)
        self.server_version = 0
        self.refreshes: list[tuple[float, Resource]] = []
        self.refresh_failures = refresh_failures
        self.woken: list[str] = []

    async def refresh(self, resource: Resource) -> None:
        self.refreshes.append((asyncio.get_running_loop().time(), resource))
        await asyncio.sleep(0.5)
        if self.refresh_failures:
            self.refresh_failures -= 1
            raise TransportError("unreachable")
        cache = self.caches[resource]
        cache.swap(cache.replacement(), resource_version=self.server_version)

    def ready(self, owner: str) -> bool:
        return self.gate.ready(owner, wake=lambda: self.woken.append(owner))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.gate.run())
            yield
            running.cancel()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@virtual_time
async def test_an_owner_without_writes_is_ready() -> None:
    assert World().ready("owner")


@virtual_time
async def test_an_owner_is_not_ready_before_the_cache_shows_its_last_write_and_is_woken_once_when_it_does() -> None:
    world = World()
    world.gate.wrote("owner", PODS, "7")
    world.gate.wrote("owner", PODS, "12")
    world.gate.wrote("owner", PODS, "9")
    assert not world.ready("owner")
    world.caches[PODS].advance(11)
    await settle()
    assert world.woken == []
    world.caches[PODS].advance(12)
    world.caches[PODS].advance(13)
    await settle()
    assert world.woken == ["owner"]
    assert world.ready("owner")
    assert len(world.gate) == 0


@virtual_time
async def test_versions_are_compared_as_numbers() -> None:
    world = World()
    world.caches[PODS].advance(99)
    world.gate.wrote("owner", PODS, "100")
    assert not world.ready("owner")


@virtual_time
async def test_every_cache_must_have_caught_up() -> None:
    world = World()
    world.gate.wrote("owner", PODS, "5")
    world.gate.wrote("owner", SERVICES, "6")
    assert not world.ready("owner")
    world.caches[PODS].advance(50)
    await settle()
    assert world.woken == []
    world.caches[SERVICES].advance(6)
    await settle()
    assert world.woken == ["owner"]


@virtual_time
async def test_what_the_cache_shows_already_needs_no_waiting() -> None:
    world = World()
    world.caches[PODS].advance(5)
    world.gate.wrote("owner", PODS, "5")
    assert world.ready("owner")


@virtual_time
async def test_writes_that_no_cache_will_ever_show_do_not_matter() -> None:
    world = World()
    world.gate.wrote("owner", CONFIG_MAPS, "5")
    world.gate.wrote("owner", PODS, "not-a-number")
    world.gate.wrote("owner", PODS, "")
    assert world.ready("owner")


@virtual_time
async def test_asking_again_while_waiting_wakes_only_the_last_to_ask() -> None:
    world = World()
    world.gate.wrote("owner", PODS, "5")
    calls: list[int] = []
    for number in range(3):
        assert not world.gate.ready("owner", wake=lambda number=number: calls.append(number))  # type: ignore[misc]
    world.caches[PODS].advance(5)
    await settle()
    assert calls == [2]


@virtual_time
async def test_one_owner_does_not_wait_for_the_writes_of_another() -> None:
    world = World()
    world.gate.wrote("slow", PODS, "5")
    assert world.ready("other")


@virtual_time
async def test_an_owner_that_is_gone_is_not_woken() -> None:
    world = World()
    world.gate.wrote("owner", PODS, "5")
    assert not world.ready("owner")
    world.gate.forget("owner")
    world.caches[PODS].advance(5)
    await settle()
    assert world.woken == []
    assert len(world.gate) == 0


@virtual_time
async def test_a_cache_that_keeps_up_is_never_refreshed() -> None:
    world = World()
    async with world.running():
        for version in range(1, 200):
            world.gate.wrote("owner", PODS, str(version))
            assert not world.ready("owner")
            await asyncio.sleep(1)
            world.caches[PODS].advance(version)
            await asyncio.sleep(1)
            assert world.ready("owner")
    assert world.refreshes == []


@virtual_time
async def test_a_cache_that_does_not_catch_up_is_refreshed_after_some_patience() -> None:
    world = World()
    async with world.running():
        world.gate.wrote("owner", PODS, "5")
        assert not world.ready("owner")
        world.server_version = 8
        await asyncio.sleep(11)
        assert world.woken == ["owner"]
    assert world.refreshes == [(10, PODS)]
    assert world.ready("owner")


@virtual_time
async def test_one_refresh_serves_every_owner() -> None:
    world = World()
    async with world.running():
        for number in range(50):
            world.gate.wrote(f"owner-{number}", PODS, str(number + 1))
            assert not world.ready(f"owner-{number}")
        world.server_version = 50
        await asyncio.sleep(60)
    assert sorted(world.woken) == sorted(f"owner-{number}" for number in range(50))
    assert len(world.refreshes) == 1


@virtual_time
async def test_a_store_that_was_set_back_does_not_hold_an_owner_for_ever() -> None:
    world = World()
    async with world.running():
        world.caches[PODS].advance(1000)
        world.gate.wrote("owner", PODS, "1001")
        assert not world.ready("owner")
        world.server_version = 20  # restored from a backup
        await asyncio.sleep(11)
        assert world.woken == ["owner"]
    assert world.ready("owner")


@virtual_time
async def test_a_write_during_the_refresh_is_not_taken_for_seen() -> None:
    world = World()
    async with world.running():
        world.gate.wrote("owner", PODS, "5")
        assert not world.ready("owner")
        world.server_version = 5
        await asyncio.sleep(10.2)
        world.gate.wrote("owner", PODS, "6")
        await asyncio.sleep(1)
        assert world.woken == []
        assert not world.ready("owner")
        world.caches[PODS].advance(6)
        await settle()
        assert world.woken == ["owner"]


@virtual_time
async def test_a_refresh_that_fails_is_tried_again_and_nobody_is_woken_before_it_succeeds() -> None:
    world = World(refresh_failures=3)
    async with world.running():
        world.gate.wrote("owner", PODS, "5")
        assert not world.ready("owner")
        world.server_version = 5
        await asyncio.sleep(40)
        assert world.woken == []
        await asyncio.sleep(10)
        assert world.woken == ["owner"]
    assert len(world.refreshes) == 4


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wrote"), st.sampled_from("ab"), st.sampled_from([PODS, SERVICES]), st.integers(1, 30)),
        st.tuples(st.just("advance"), st.just(""), st.sampled_from([PODS, SERVICES]), st.integers(1, 30)),
        st.tuples(st.just("ask"), st.sampled_from("ab"), st.just(PODS), st.just(0)),
        st.tuples(st.just("forget"), st.sampled_from("ab"), st.just(PODS), st.just(0)),
    ),
    max_size=40,
)


@given(steps=STEPS)
@virtual_time
async def test_the_gate_opens_exactly_when_every_cache_shows_every_write(steps: list[tuple[str, str, Resource, int]]) -> None:
    world = World()
    written: dict[str, dict[Resource, int]] = {"a": {}, "b": {}}
    waiting: set[str] = set()

    def is_shown(owner: str) -> bool:
        return all(world.caches[resource].resource_version >= version for resource, version in written[owner].items())

    for step, owner, resource, version in steps:
        match step:
            case "wrote":
                world.gate.wrote(owner, resource, str(version))
                written[owner][resource] = max(version, written[owner].get(resource, 0))
            case "advance":
                world.caches[resource].advance(version)
                await settle()
            case "ask":
                shown = is_shown(owner)
                assert world.ready(owner) is shown
                waiting = waiting - {owner} if shown else waiting | {owner}
            case _:
                world.gate.forget(owner)
                written[owner].clear()
                waiting.discard(owner)
        expected = {owner for owner in waiting if is_shown(owner)}
        assert set(world.woken) == expected
        assert len(world.woken) == len(expected)
        world.woken.clear()
        waiting -= expected
