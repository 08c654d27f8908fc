"""Expectations: by name and uid, without counters; uncertain calls are resolved by a lookup."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.kube.errors import TransportError
from dlop.kube.expectations import Child, Expectations, ResolvedExpectation
from dlop.kube.resources import PODS, SERVICES
from dlop.testing.virtual_time import virtual_time

POD = Child(PODS, "ns", "job-worker-0")


class Server:
    """Answers lookups with resource versions by name, after a number of failures."""

    def __init__(self, versions: dict[str, str] | None = None, *, failures: int = 0) -> None:
        self.versions = versions or {}
        self.failures = failures
        self.lookups: list[tuple[float, str]] = []
        self.resolved: list[ResolvedExpectation] = []

    async def lookup(self, child: Child) -> str | None:
        self.lookups.append((asyncio.get_running_loop().time(), child.name))
        await asyncio.sleep(0.1)
        if self.failures:
            self.failures -= 1
            raise TransportError("unreachable")
        return self.versions.get(child.name)

    @asynccontextmanager
    async def expectations(self) -> AsyncIterator[Expectations]:
        expectations = Expectations(lookup=self.lookup, on_resolved=self.resolved.append, rng=Random(0), resolve_after_seconds=2)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(expectations.run())
            yield expectations
            running.cancel()


@virtual_time
async def test_a_create_is_expected_until_it_is_seen() -> None:
    async with Server().expectations() as expectations:
        expectations.expect("owner", POD)
        assert expectations.expects("owner", POD)
        assert not expectations.satisfied("owner")
        expectations.observe("owner", POD)
        assert expectations.satisfied("owner")


@virtual_time
async def test_observing_one_child_twice_does_not_satisfy_the_expectation_of_another() -> None:
    other = POD._replace(name="job-worker-1")
    async with Server().expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.expect("owner", other)
        expectations.observe("owner", POD)
        expectations.observe("owner", POD)
        assert expectations.expects("owner", other)
        assert not expectations.satisfied("owner")


@virtual_time
async def test_a_pod_and_a_service_of_the_same_name_are_expected_separately() -> None:
    async with Server().expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.observe("owner", POD._replace(resource=SERVICES))
        assert expectations.expects("owner", POD)


@virtual_time
async def test_the_delete_of_a_pod_is_not_satisfied_by_the_delete_of_its_successor() -> None:
    old, new = POD._replace(uid="uid-1"), POD._replace(uid="uid-2")
    async with Server().expectations() as expectations:
        expectations.expect("owner", old)
        expectations.observe("owner", new)
        assert expectations.expects("owner", old)
        expectations.observe("owner", old)
        assert expectations.satisfied("owner")


@virtual_time
async def test_a_new_owner_of_the_same_name_has_no_expectations() -> None:
    async with Server().expectations() as expectations:
        expectations.expect("uid-of-the-old-job", POD)
        assert expectations.satisfied("uid-of-the-new-job")
        expectations.forget("uid-of-the-old-job")
        assert len(expectations) == 0


@pytest.mark.parametrize("version", ["17", None], ids=["created", "not-created"])
def test_an_uncertain_call_is_resolved_by_a_lookup_after_a_delay(version: str | None) -> None:
    @virtual_time
    async def check() -> None:
        server = Server({POD.name: version} if version else {})
        async with server.expectations() as expectations:
            expectations.expect("owner", POD)
            expectations.mark_uncertain("owner", POD)
            await asyncio.sleep(1.9)
            assert expectations.expects("owner", POD)
            await asyncio.sleep(0.3)
            assert expectations.satisfied("owner")
        assert server.resolved == [ResolvedExpectation("owner", POD, version)]

    check()


@virtual_time
async def test_no_lookup_is_made_when_the_cache_shows_the_child_first() -> None:
    server = Server()
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.mark_uncertain("owner", POD)
        await asyncio.sleep(1)
        expectations.observe("owner", POD)
        await asyncio.sleep(100)
    assert (server.lookups, server.resolved) == ([], [])


@virtual_time
async def test_a_failed_lookup_is_retried_until_the_server_answers() -> None:
    server = Server({POD.name: "5"}, failures=20)
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.mark_uncertain("owner", POD)
        await asyncio.sleep(180)
        assert expectations.expects("owner", POD)
        await asyncio.sleep(240)
        assert expectations.satisfied("owner")
    assert server.resolved == [ResolvedExpectation("owner", POD, "5")]


@virtual_time
async def test_lookups_that_fail_back_off() -> None:
    server = Server(failures=1000)
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.mark_uncertain("owner", POD)
        await asyncio.sleep(600)
    times = [time for time, _ in server.lookups]
    assert times[1] - times[0] < 5
    assert all(10 < later - earlier < 21 for earlier, later in itertools.pairwise(times[-10:]))


@virtual_time
async def test_a_relist_ends_the_back_off_because_the_server_responds_again() -> None:
    server = Server(failures=6)
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.mark_uncertain("owner", POD)
        await asyncio.sleep(60)
        assert (server.failures, expectations.satisfied("owner")) == (0, False)
        expectations.mark_creates_uncertain(PODS)
        await asyncio.sleep(2.2)
        assert expectations.satisfied("owner")


@virtual_time
async def test_a_create_is_looked_up_once_however_many_relists_do_not_show_it() -> None:
    server = Server()
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.mark_uncertain("owner", POD)
        for _ in range(100):
            expectations.mark_creates_uncertain(PODS)
        await asyncio.sleep(100)
    assert server.lookups == [(2.0, POD.name)]
    assert server.resolved == [ResolvedExpectation("owner", POD, None)]


@virtual_time
async def test_relists_do_not_add_tasks() -> None:
    server = Server(failures=10_000)
    async with server.expectations() as expectations:
        for index in range(500):
            expectations.expect("owner", POD._replace(name=f"job-worker-{index}"))
        await asyncio.sleep(0)
        tasks = len(asyncio.all_tasks())
        for _ in range(5):
            expectations.mark_creates_uncertain(PODS)
            await asyncio.sleep(1)
            assert len(asyncio.all_tasks()) == tasks


@virtual_time
async def test_a_lookup_that_hangs_does_not_delay_other_lookups() -> None:
    server = Server()
    answer = server.lookup

    async def lookup(child: Child) -> str | None:
        if child is POD:
            await asyncio.sleep(1000)
        return await answer(child)

    server.lookup = lookup  # type: ignore[method-assign]
    other = POD._replace(name="job-worker-1")
    async with server.expectations() as expectations:
        for child in (POD, other):
            expectations.expect("owner", child)
            expectations.mark_uncertain("owner", child)
        await asyncio.sleep(3)
        assert not expectations.expects("owner", other)


@virtual_time
async def test_an_uncertain_call_does_not_affect_a_later_call_for_the_same_name() -> None:
    server = Server()
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.mark_uncertain("owner", POD)
        await asyncio.sleep(1)
        expectations.observe("owner", POD)
        expectations.expect("owner", POD)
        await asyncio.sleep(10)
        assert expectations.expects("owner", POD)
    assert server.lookups == []


@virtual_time
async def test_an_uncertain_call_of_a_forgotten_owner_is_dropped() -> None:
    server = Server()
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.mark_uncertain("owner", POD)
        expectations.forget("owner")
        await asyncio.sleep(10)
    assert (server.lookups, server.resolved) == ([], [])


@given(steps=st.lists(st.tuples(st.sampled_from(["expect", "observe", "forget"]), st.sampled_from("ab"), st.integers(0, 3)), max_size=50))
@virtual_time
async def test_an_owner_expects_exactly_the_children_that_were_not_observed(steps: list[tuple[str, str, int]]) -> None:
    model: dict[str, set[Child]] = {"a": set(), "b": set()}
    async with Server().expectations() as expectations:
        for step, owner, number in steps:
            child = POD._replace(name=str(number // 2), uid="u" * (number % 2))
            match step:
                case "expect":
                    expectations.expect(owner, child)
                    model[owner].add(child)
                case "observe":
                    expectations.observe(owner, child)
                    model[owner].discard(child)
                case _:
                    expectations.forget(owner)
                    model[owner].clear()
            assert all(expectations.satisfied(owner) is not bool(children) for owner, children in model.items())
            assert expectations.expects(owner, child) is (child in model[owner])
        assert len(expectations) == sum(bool(children) for children in model.values())
