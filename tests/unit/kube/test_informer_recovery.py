"""Informers after outages of the API server and after compactions: how soon they are back, and with how many requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from dlop.kube.client import Client
from dlop.kube.errors import StatusError
from dlop.kube.informer import Informer
from dlop.kube.objects import Pod, Service
from dlop.kube.resources import PODS, SERVICES
from dlop.kube.server_contact import ServerContact, ServerRetry
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.testing.virtual_time import virtual_time
from tests.fake_api_server import Cut, FakeApiServer, Fault, names, run_ready_callbacks, running_informer


@asynccontextmanager
async def running_informers(client: Client, *, count: int, seed: int) -> AsyncIterator[list[Informer[Pod]]]:
    """Informers that share a client, as those of an operator do."""
    rng = Random(seed)
    informers: list[Informer[Pod]] = [Informer(client, PODS, Pod, rng=rng) for _ in range(count)]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    for informer in informers:
        await informer.wait_synced()
    try:
        yield informers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("down_seconds", [0.1, 7, 300])
@pytest.mark.parametrize("compacted", [False, True])
@virtual_time
async def test_every_informer_is_back_two_seconds_after_a_killed_server(*, count: int, down_seconds: float, compacted: bool) -> None:
    server = FakeApiServer()
    async with running_informers(Client(server), count=count, seed=count) as informers:
        for kill in range(6):
            server.kill()
            await asyncio.sleep(down_seconds)
            server.put(f"pod-{kill}")
            if compacted:
                server.compact()
            server.start()
            await asyncio.sleep(2)
            assert server.open_streams == count
            assert all(len(informer.cache) == kill + 1 for informer in informers)
            assert not any(informer.last_error for informer in informers)
            await asyncio.sleep(8)


@virtual_time
async def test_informers_take_turns_while_the_server_is_down() -> None:
    server = FakeApiServer()
    async with running_informers(Client(server), count=30, seed=1):
        server.kill()
        await asyncio.sleep(60)  # until the first retries of all informers are over
        server.requests.clear()
        await asyncio.sleep(600)
        times = [at for at, _ in server.requests]
        assert 600 < len(times) < 1500, "about one request per second"
        assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 1


@virtual_time
async def test_informers_that_are_woken_do_not_send_their_requests_together() -> None:
    server = FakeApiServer()
    async with running_informers(Client(server), count=30, seed=1):
        server.kill()
        await asyncio.sleep(60)
        server.requests.clear()
        server.start()
        await asyncio.sleep(2)
        assert len({at for at, _ in server.requests}) == 30


@virtual_time
async def test_rejections_by_a_server_that_starts_do_not_delay_informers() -> None:
    server = FakeApiServer()
    async with running_informers(Client(server), count=5, seed=1):
        server.kill()
        await asyncio.sleep(30)
        server.faults.extend([Fault.FORBIDDEN, Fault.ERROR, Fault.STARTING] * 20)
        server.start()
        while server.faults:  # noqa: ASYNC110 - until the server is ready
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        assert server.open_streams == 5


@virtual_time
async def test_a_call_is_repeated_after_a_second_if_a_server_that_starts_asks_for_five() -> None:
    server = FakeApiServer()
    client = Client(server)
    async with running_informers(client, count=1, seed=1):
        for has_been_down, seconds in ((False, 5), (True, 1)):
            if has_been_down:
                server.kill()
                await asyncio.sleep(30)
                server.start()
                await asyncio.sleep(2)
            server.faults.append(Fault.STARTING)
            called_at = asyncio.get_running_loop().time()
            await client.list(PODS)
            assert asyncio.get_running_loop().time() == called_at + seconds


@virtual_time
async def test_an_informer_with_a_long_back_off_is_woken_when_the_server_is_back() -> None:
    server = FakeApiServer()
    client = Client(server)
    async with running_informers(client, count=2, seed=1):
        broken: Informer[Pod] = Informer(client, PODS, Pod, rng=Random(1))
        server.faults.extend([Fault.ERROR] * 8)
        task = asyncio.create_task(broken.run())
        while server.faults:  # noqa: ASYNC110 - until its delay is 30 to 60 seconds
            await asyncio.sleep(1)
        server.kill()
        await asyncio.sleep(5)
        server.start()
        await asyncio.sleep(2)
        assert broken.synced
        task.cancel()
        await asyncio.wait([task])


@virtual_time
async def test_failures_before_an_outage_do_not_delay_a_caller_after_it() -> None:
    contact = ServerContact()
    retry = ServerRetry(contact, rng=Random(1), first_seconds=1.0, cap_seconds=60.0, reset_after_seconds=120.0)
    error = StatusError({"code": 500, "reason": "InternalError"})

    def next_delay_seconds() -> float:
        return retry.delay_seconds(error, started_at=asyncio.get_running_loop().time())

    assert [next_delay_seconds() for _ in range(4)][-1] >= 8
    contact.next_turn_seconds(1.0)  # another caller notices an outage
    await asyncio.sleep(10)
    contact.end_outage()
    await asyncio.sleep(40)  # longer than a server takes to start
    assert next_delay_seconds() <= 2
    assert next_delay_seconds() > 2


class BrokenServices(FakeApiServer):
    """Every request for services fails."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.broken = FakeApiServer()
        self.broken.faults.extend([fault] * 10_000)

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        stream = self.broken.stream if "services" in request.path else super().stream
        async with stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
            yield response


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.ERROR, Fault.FORBIDDEN])
@virtual_time
async def test_an_informer_that_fails_alone_backs_off(fault: Fault) -> None:
    server = BrokenServices(fault)
    client = Client(server)
    async with running_informers(client, count=2, seed=1):
        informer: Informer[Service] = Informer(client, SERVICES, Service, rng=Random(1))
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(3600)
        assert 60 < len(server.broken.requests) < 150
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("streams_lists", [True, False])
@virtual_time
async def test_a_version_that_is_gone_again_and_again_is_relisted_within_a_second(streams_lists: bool) -> None:
    server = FakeApiServer(streams_lists=streams_lists)
    async with running_informer(server) as informer:
        for number in range(20):
            await asyncio.sleep(2)
            server.cut(Cut.GONE)
            server.put(f"pod-{number:02}")
            server.compact()
            await asyncio.sleep(1)
            assert len(informer.cache) == number + 1
            assert informer.last_error == ""
            assert server.open_streams == 1


@virtual_time
async def test_a_version_that_is_gone_after_each_list_does_not_cause_a_hot_loop() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        for _ in range(3000):
            await asyncio.sleep(0.1)
            server.cut(Cut.GONE)
        assert server.kinds.count("stream") < 30
        await asyncio.sleep(120)
        server.put("a")
        await run_ready_callbacks()
        assert names(informer) == ["a"]


@virtual_time
async def test_informers_whose_versions_are_gone_together_do_not_relist_together() -> None:
    server = FakeApiServer()
    async with running_informers(Client(server), count=30, seed=1):
        await asyncio.sleep(10)
        server.requests.clear()
        server.cut(Cut.GONE)
        await asyncio.sleep(1)
        assert len({at for at, kind in server.requests if kind == "stream"}) == 30


class SlowLists(FakeApiServer):
    """Each page of a list takes ten seconds."""

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        await asyncio.sleep(10)
        return await super().send(request, timeout_seconds=timeout_seconds)


@virtual_time
async def test_a_version_that_is_gone_sooner_than_a_list_takes_causes_back_off() -> None:
    server = SlowLists(streams_lists=False)
    async with running_informer(server):
        for _ in range(1000):
            await asyncio.sleep(5)
            server.cut(Cut.GONE)
        assert server.kinds.count("list") < 5000 / 10 / 3, "less than a third of the time"
