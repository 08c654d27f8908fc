"""Expectations: names and uids, never counters; doubts are resolved by a look at the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.kube.errors import TransportError
from dlop.kube.expectations import Child, Expectations, Resolved
from dlop.kube.resources import PODS, SERVICES
from dlop.testing.virtual_time import virtual_time

POD = Child(PODS, "ns", "job-worker-0")


class Server:
    """What a look at the server shows: versions by name, after a number of failed attempts."""

    def __init__(self, versions: dict[str, str] | None = None, *, failures: int = 0) -> None:
        self.versions = versions or {}
        self.failures = failures
        self.looks: list[tuple[float, str]] = []
        self.resolved: list[Resolved] = []

    async def look(self, child: Child) -> str | None:
        self.looks.append((asyncio.get_running_loop().time(), child.name))
        await asyncio.sleep(0.1)
        if self.failures:
            self.failures -= 1
            raise TransportError("unreachable")
        return self.versions.get(child.name)

    @asynccontextmanager
    async def expectations(self) -> AsyncIterator[Expectations]:
        expectations = Expectations(look=self.look, on_resolved=self.resolved.append, resolve_after_seconds=2)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(expectations.run())
            yield expectations
            running.cancel()


@virtual_time
async def test_a_create_is_expected_until_it_is_seen() -> None:
    async with Server().expectations() as expectations:
        expectations.expect("owner", POD)
        assert expectations.expects("owner", POD)
        assert not expectations.are_met("owner")
        expectations.settle("owner", POD)
        assert expectations.are_met("owner")


@virtual_time
async def test_seeing_the_same_child_twice_does_not_stand_for_another_one() -> None:
    other = POD._replace(name="job-worker-1")
    async with Server().expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.expect("owner", other)
        expectations.settle("owner", POD)
        expectations.settle("owner", POD)
        assert expectations.expects("owner", other)
        assert not expectations.are_met("owner")


@virtual_time
async def test_a_pod_and_a_service_of_one_name_are_two_things() -> None:
    async with Server().expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.settle("owner", POD._replace(resource=SERVICES))
        assert expectations.expects("owner", POD)


@virtual_time
async def test_the_deletion_of_one_pod_is_not_met_by_that_of_its_successor() -> None:
    old, new = POD._replace(uid="uid-1"), POD._replace(uid="uid-2")
    async with Server().expectations() as expectations:
        expectations.expect("owner", old)
        expectations.settle("owner", new)
        assert expectations.expects("owner", old)
        expectations.settle("owner", old)
        assert expectations.are_met("owner")


@virtual_time
async def test_a_new_owner_of_the_same_name_inherits_nothing() -> None:
    async with Server().expectations() as expectations:
        expectations.expect("uid-of-the-old-job", POD)
        assert expectations.are_met("uid-of-the-new-job")
        expectations.forget("uid-of-the-old-job")
        assert len(expectations) == 0


@pytest.mark.parametrize("version", ["17", None], ids=["it-happened", "it-did-not"])
def test_a_doubt_is_resolved_by_looking_after_a_short_while(version: str | None) -> None:
    @virtual_time
    async def check() -> None:
        server = Server({POD.name: version} if version else {})
        async with server.expectations() as expectations:
            expectations.expect("owner", POD)
            expectations.doubt("owner", POD)
            await asyncio.sleep(1.9)
            assert expectations.expects("owner", POD)
            await asyncio.sleep(0.3)
            assert expectations.are_met("owner")
        assert server.resolved == [Resolved("owner", POD, version)]

    check()


@virtual_time
async def test_what_the_cache_shows_first_needs_no_look() -> None:
    server = Server()
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.doubt("owner", POD)
        await asyncio.sleep(1)
        expectations.settle("owner", POD)
        await asyncio.sleep(100)
    assert (server.looks, server.resolved) == ([], [])


@virtual_time
async def test_a_server_that_cannot_be_reached_is_asked_again_until_it_answers() -> None:
    server = Server({POD.name: "5"}, failures=20)
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.doubt("owner", POD)
        await asyncio.sleep(40)
        assert expectations.expects("owner", POD)
        await asyncio.sleep(10)
        assert expectations.are_met("owner")
    assert server.resolved == [Resolved("owner", POD, "5")]


@virtual_time
async def test_one_look_that_hangs_does_not_hold_up_the_others() -> None:
    server = Server()
    answered = server.look

    async def look(child: Child) -> str | None:
        if child is POD:
            await asyncio.sleep(1000)
        return await answered(child)

    server.look = look  # type: ignore[method-assign]
    other = POD._replace(name="job-worker-1")
    async with server.expectations() as expectations:
        for child in (POD, other):
            expectations.expect("owner", child)
            expectations.doubt("owner", child)
        await asyncio.sleep(3)
        assert not expectations.expects("owner", other)


@virtual_time
async def test_an_old_doubt_says_nothing_about_a_later_call_for_the_same_name() -> None:
    server = Server()
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.doubt("owner", POD)
        await asyncio.sleep(1)
        expectations.settle("owner", POD)
        expectations.expect("owner", POD)
        await asyncio.sleep(10)
        assert expectations.expects("owner", POD)
    assert server.looks == []


@virtual_time
async def test_a_doubt_about_an_owner_that_is_gone_is_dropped() -> None:
    server = Server()
    async with server.expectations() as expectations:
        expectations.expect("owner", POD)
        expectations.doubt("owner", POD)
        expectations.forget("owner")
        await asyncio.sleep(10)
    assert (server.looks, server.resolved) == ([], [])


@given(steps=st.lists(st.tuples(st.sampled_from(["expect", "settle", "forget"]), st.sampled_from("ab"), st.integers(0, 3)), max_size=50))
@virtual_time
async def test_an_owner_expects_exactly_what_was_expected_and_not_settled(steps: list[tuple[str, str, int]]) -> None:
    model: dict[str, set[Child]] = {"a": set(), "b": set()}
    async with Server().expectations() as expectations:
        for step, owner, number in steps:
            child = POD._replace(name=str(number // 2), uid="u" * (number % 2))
            match step:
                case "expect":
                    expectations.expect(owner, child)
                    model[owner].add(child)
                case "settle":
                    expectations.settle(owner, child)
                    model[owner].discard(child)
                case _:
                    expectations.forget(owner)
                    model[owner].clear()
            assert all(expectations.are_met(owner) is not bool(children) for owner, children in model.items())
            assert expectations.expects(owner, child) is (child in model[owner])
        assert len(expectations) == sum(bool(children) for children in model.values())
