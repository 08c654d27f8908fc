"""Measures the rate of pod creates, with dlop's client and with a bare aiohttp + orjson client."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from bench_pods import new_pod
from real_cluster import RealCluster

from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import PODS

IN_FLIGHT = 50

Create = Callable[[dict[str, Any]], Awaitable[Any]]


@dataclass(frozen=True)
class Rate:
    """Creates per second, and CPU time of this process per create."""

    per_second: float
    cpu_microseconds: float


async def measure_rate(create: Create, names: Iterator[str], *, count: int) -> Rate:
    """The rate of `count` creates with `IN_FLIGHT` concurrent requests."""
    bodies = [new_pod(next(names)) for _ in range(count)]
    pending = iter(bodies)

    async def work() -> None:
        for body in pending:
            await create(body)

    before, cpu_before = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as workers:
        for _ in range(IN_FLIGHT):
            workers.create_task(work())
    seconds, cpu_seconds = time.perf_counter() - before, time.process_time() - cpu_before
    return Rate(count / seconds, cpu_seconds / count * 1e6)


async def compare_with_bare_client(cluster: RealCluster, *, rounds: int, count: int, log: Callable[[str], None]) -> list[tuple[Rate, Rate]]:
    """The rates of dlop's client and of the bare client on the real API server, one pair per round.

    The clients alternate, and so does which one starts, so that background load of the server affects both.
    """
    names = (f"bench-{number}" for number in itertools.count())
    client = Client(await connect(cluster.kubeconfig_path))
    pairs = []
    async with bare_session(cluster.ca_path) as session:
        ours: Create = functools.partial(client.create, PODS, namespace="default")
        bare = bare_create(session, cluster.url, cluster.token)
        for create in (ours, bare):
            await measure_rate(create, names, count=count)
        for number in range(rounds):
            first, second = (ours, bare) if number % 2 else (bare, ours)
            rates = {first: await measure_rate(first, names, count=count), second: await measure_rate(second, names, count=count)}
            pairs.append((rates[ours], rates[bare]))
            log(f"  round {number + 1} of {rounds}: dlop {rates[ours].per_second:.0f}/s, bare {rates[bare].per_second:.0f}/s")
    await client.close()
    return pairs


def bare_session(ca_path: Path | None) -> aiohttp.ClientSession:
    """A session with minimal features."""
    tls = ssl.create_default_context(cafile=ca_path) if ca_path is not None else True
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=tls)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


def bare_create(session: aiohttp.ClientSession, url: str, token: str) -> Create:
    """The minimal create: encode, send, decode."""
    pods_url = f"{url}/api/v1/namespaces/default/pods"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}

    async def create(body: dict[str, Any]) -> Any:
        async with session.post(pods_url, data=orjson.dumps(body), headers=headers) as response:
            body = orjson.loads(await response.read())
            if response.status != 201:
                raise RuntimeError(f"the server rejected a pod: {json.dumps(body)}")
            return body

    return create
