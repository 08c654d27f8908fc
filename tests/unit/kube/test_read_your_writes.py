"""Read-your-writes gate: an owner is not ready before the caches show its last writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.kube.cache import Cache
from dlop.kube.errors import TransportError
from dlop.kube.objects import PartialObject
from dlop.kube.read_your_writes import ReadYourWrites
from dlop.kube.resources import CONFIG_MAPS, PODS, SERVICES, Resource
from dlop.testing.virtual_time import virtual_time


class Fixture:
    """A gate over two caches, and a server at a given resource version."""

    def __init__(self, *, refresh_failures: int = 0) -> None:
        self.caches: dict[Resource, Cache[PartialObject]] = {PODS: Cache(), SERVICES: Cache()}
        self.gate = ReadYourWrites(self.caches, refresh=self.refresh, refresh_after_seconds=10)
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


async def run_ready_callbacks() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@virtual_time
async def test_an_owner_without_writes_is_ready() -> None:
    assert Fixture().ready("owner")


@virtual_time
async def test_an_owner_is_woken_once_when_the_cache_shows_its_last_write() -> None:
    fixture = Fixture()
    fixture.gate.record_write("owner", PODS, "7")
    fixture.gate.record_write("owner", PODS, "12")
    fixture.gate.record_write("owner", PODS, "9")
    assert not fixture.ready("owner")
    fixture.caches[PODS].advance(11)
    await run_ready_callbacks()
    assert fixture.woken == []
    fixture.caches[PODS].advance(12)
    fixture.caches[PODS].advance(13)
    await run_ready_callbacks()
    assert fixture.woken == ["owner"]
    assert fixture.ready("owner")
    assert len(fixture.gate) == 0


@virtual_time
async def test_versions_are_compared_as_numbers() -> None:
    fixture = Fixture()
    fixture.caches[PODS].advance(99)
    fixture.gate.record_write("owner", PODS, "100")
    assert not fixture.ready("owner")


@virtual_time
async def test_all_caches_must_catch_up() -> None:
    fixture = Fixture()
    fixture.gate.record_write("owner", PODS, "5")
    fixture.gate.record_write("owner", SERVICES, "6")
    assert not fixture.ready("owner")
    fixture.caches[PODS].advance(50)
    await run_ready_callbacks()
    assert fixture.woken == []
    fixture.caches[SERVICES].advance(6)
    await run_ready_callbacks()
    assert fixture.woken == ["owner"]


@virtual_time
async def test_a_write_that_the_cache_already_shows_does_not_wait() -> None:
    fixture = Fixture()
    fixture.caches[PODS].advance(5)
    fixture.gate.record_write("owner", PODS, "5")
    assert fixture.ready("owner")


@virtual_time
async def test_writes_that_no_cache_can_show_are_ignored() -> None:
    fixture = Fixture()
    fixture.gate.record_write("owner", CONFIG_MAPS, "5")
    fixture.gate.record_write("owner", PODS, "not-a-number")
    fixture.gate.record_write("owner", PODS, "")
    assert fixture.ready("owner")


@virtual_time
async def test_only_the_last_caller_is_woken() -> None:
    fixture = Fixture()
    fixture.gate.record_write("owner", PODS, "5")
    calls: list[int] = []
    for number in range(3):
        assert not fixture.gate.ready("owner", wake=lambda number=number: calls.append(number))  # type: ignore[misc]
    fixture.caches[PODS].advance(5)
    await run_ready_callbacks()
    assert calls == [2]


@virtual_time
async def test_one_owner_does_not_wait_for_the_writes_of_another() -> None:
    fixture = Fixture()
    fixture.gate.record_write("slow", PODS, "5")
    assert fixture.ready("other")


@virtual_time
async def test_a_forgotten_owner_is_not_woken() -> None:
    fixture = Fixture()
    fixture.gate.record_write("owner", PODS, "5")
    assert not fixture.ready("owner")
    fixture.gate.forget("owner")
    fixture.caches[PODS].advance(5)
    await run_ready_callbacks()
    assert fixture.woken == []
    assert len(fixture.gate) == 0


@virtual_time
async def test_a_cache_that_catches_up_in_time_is_never_refreshed() -> None:
    fixture = Fixture()
    async with fixture.running():
        for version in range(1, 200):
            fixture.gate.record_write("owner", PODS, str(version))
            assert not fixture.ready("owner")
            await asyncio.sleep(1)
            fixture.caches[PODS].advance(version)
            await asyncio.sleep(1)
            assert fixture.ready("owner")
    assert fixture.refreshes == []


@virtual_time
async def test_a_cache_that_does_not_catch_up_is_refreshed_after_a_delay() -> None:
    fixture = Fixture()
    async with fixture.running():
        fixture.gate.record_write("owner", PODS, "5")
        assert not fixture.ready("owner")
        fixture.server_version = 8
        await asyncio.sleep(11)
        assert fixture.woken == ["owner"]
    assert fixture.refreshes == [(10, PODS)]
    assert fixture.ready("owner")


@virtual_time
async def test_one_refresh_serves_every_owner() -> None:
    fixture = Fixture()
    async with fixture.running():
        for number in range(50):
            fixture.gate.record_write(f"owner-{number}", PODS, str(number + 1))
            assert not fixture.ready(f"owner-{number}")
        fixture.server_version = 50
        await asyncio.sleep(60)
    assert sorted(fixture.woken) == sorted(f"owner-{number}" for number in range(50))
    assert len(fixture.refreshes) == 1


@virtual_time
async def test_a_restored_backup_does_not_block_an_owner_forever() -> None:
    fixture = Fixture()
    async with fixture.running():
        fixture.caches[PODS].advance(1000)
        fixture.gate.record_write("owner", PODS, "1001")
        assert not fixture.ready("owner")
        fixture.server_version = 20  # restored from a backup
        await asyncio.sleep(11)
        assert fixture.woken == ["owner"]
    assert fixture.ready("owner")


@virtual_time
async def test_a_write_during_the_refresh_is_not_confirmed_by_it() -> None:
    fixture = Fixture()
    async with fixture.running():
        fixture.gate.record_write("owner", PODS, "5")
        assert not fixture.ready("owner")
        fixture.server_version = 5
        await asyncio.sleep(10.2)
        fixture.gate.record_write("owner", PODS, "6")
        await asyncio.sleep(1)
        assert fixture.woken == []
        assert not fixture.ready("owner")
        fixture.caches[PODS].advance(6)
        await run_ready_callbacks()
        assert fixture.woken == ["owner"]


class PartlyBroken(Fixture):
    """A refresh of pods never succeeds: it fails or hangs."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self.hangs = hangs

    async def refresh(self, resource: Resource) -> None:
        if resource == PODS:
            await asyncio.sleep(1_000_000 if self.hangs else 0)
            raise TransportError("unreachable")
        await super().refresh(resource)


@pytest.mark.parametrize("hangs", [True, False])
@virtual_time
async def test_a_cache_that_cannot_be_refreshed_does_not_block_the_others(hangs: bool) -> None:
    fixture = PartlyBroken(hangs=hangs)
    fixture.gate.record_write("pods", PODS, "7")
    fixture.gate.record_write("services", SERVICES, "7")
    async with fixture.running():
        assert not fixture.ready("pods")
        assert not fixture.ready("services")
        fixture.server_version = 7
        await asyncio.sleep(75)
        assert fixture.woken == ["services"]


@virtual_time
async def test_a_cache_that_is_removed_blocks_no_owner() -> None:
    fixture = Fixture()
    fixture.gate.record_write("owner", PODS, "7")
    fixture.gate.record_write("owner", SERVICES, "7")
    assert not fixture.ready("owner")
    del fixture.caches[PODS]
    fixture.caches[SERVICES].advance(7)
    assert fixture.ready("owner")


@virtual_time
async def test_a_failed_refresh_is_retried_and_wakes_no_owner() -> None:
    fixture = Fixture(refresh_failures=3)
    async with fixture.running():
        fixture.gate.record_write("owner", PODS, "5")
        assert not fixture.ready("owner")
        fixture.server_version = 5
        await asyncio.sleep(40)
        assert fixture.woken == []
        await asyncio.sleep(10)
        assert fixture.woken == ["owner"]
    assert len(fixture.refreshes) == 4


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("ab"), st.sampled_from([PODS, SERVICES]), st.integers(1, 30)),
        st.tuples(st.just("advance"), st.just(""), st.sampled_from([PODS, SERVICES]), st.integers(1, 30)),
        st.tuples(st.just("ready"), st.sampled_from("ab"), st.just(PODS), st.just(0)),
        st.tuples(st.just("forget"), st.sampled_from("ab"), st.just(PODS), st.just(0)),
    ),
    max_size=40,
)


@given(steps=STEPS)
@virtual_time
async def test_an_owner_is_ready_exactly_when_all_caches_show_its_writes(steps: list[tuple[str, str, Resource, int]]) -> None:
    fixture = Fixture()
    written: dict[str, dict[Resource, int]] = {"a": {}, "b": {}}
    waiting: set[str] = set()

    def is_shown(owner: str) -> bool:
        return all(fixture.caches[resource].resource_version >= version for resource, version in written[owner].items())

    for step, owner, resource, version in steps:
        match step:
            case "write":
                fixture.gate.record_write(owner, resource, str(version))
                written[owner][resource] = max(version, written[owner].get(resource, 0))
            case "advance":
                fixture.caches[resource].advance(version)
                await run_ready_callbacks()
            case "ready":
                shown = is_shown(owner)
                assert fixture.ready(owner) is shown
                waiting = waiting - {owner} if shown else waiting | {owner}
            case _:
                fixture.gate.forget(owner)
                written[owner].clear()
                waiting.discard(owner)
        expected = {owner for owner in waiting if is_shown(owner)}
        assert set(fixture.woken) == expected
        assert len(fixture.woken) == len(expected)
        fixture.woken.clear()
        waiting -= expected
