"""Service account tokens in running pods are renewed before they expire, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.embedded.apiserver.transports.inprocess import InProcessTransport
from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.api_access import ApiAccess, ApiAddress
from dlop.embedded.kubelet.kubelet import EmbeddedKubelet
from dlop.kube.resources import SERVICE_ACCOUNTS
from dlop.kube.transport import Request
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import LoopClock, virtual_time
from tests.embedded.kubelet_cases import RUNNING, main
from tests.embedded.node_env import NodeEnv, node_env
from tests.embedded.scripted_runtime import ScriptedRuntime

HOUR = 3600.0
ADDRESS = ApiAddress("10.0.0.1", 443, "a certificate")
UNAVAILABLE: JsonObject = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "unavailable"}


@dataclass
class TokenEnv:
    """A node that runs one pod with tokens: in the directory of its service account, and in a projected volume."""

    cluster: EmbeddedCluster
    node: NodeEnv
    clock: SuspendableClock

    def tokens(self) -> dict[str, str]:
        """The tokens that the pod sees, by directory."""
        return {path.parent.name: path.read_text() for path in self.node.directory.rglob("token")}

    async def is_valid(self, token: str) -> bool:
        response = await InProcessTransport(self.cluster.server, token=token).send(Request("GET", "/api"), timeout_seconds=1)
        return response.status == 200

    async def valid(self) -> dict[str, bool]:
        return {name: await self.is_valid(token) for name, token in self.tokens().items()}


@dataclass
class SuspendableClock:
    """A wall clock that can advance without the event loop, as after the machine was suspended."""

    suspended_seconds: float = 0.0
    loop_clock: LoopClock = field(default_factory=LoopClock)

    def __call__(self) -> float:
        return self.loop_clock() + self.suspended_seconds


@asynccontextmanager
async def token_env(directory: Path, *, expiration_seconds: int | None = None) -> AsyncIterator[TokenEnv]:
    clock = SuspendableClock()
    projection = {"path": "token"} | ({} if expiration_seconds is None else {"expirationSeconds": expiration_seconds})

    async def open_api_access(_: object) -> ApiAccess:
        return ApiAccess(from_pods=ADDRESS, from_host=ADDRESS)

    async with EmbeddedCluster(clock=clock) as cluster:
        kubelet = EmbeddedKubelet(
            cluster.client(),
            runtime=ScriptedRuntime(),
            root_dir=directory,
            clock=clock,
            rng=Random(0),
            run_blocking=_run_now,
            open_api_access=open_api_access,
        )
        async with node_env(cluster.client(), kubelet, directory, timeout_seconds=1e6) as node:
            await node.create(SERVICE_ACCOUNTS, {"metadata": {"name": "bot"}})
            container = {"name": "main", "image": "x", "command": ["for", "1e9", "exit", "0"]}
            volumes = [{"name": "projected", "projected": {"sources": [{"serviceAccountToken": projection}]}}]
            await node.run_pod("a", {"serviceAccountName": "bot", "containers": [container], "volumes": volumes})
            await node.wait_for_status("a", main(state=RUNNING))
            env = TokenEnv(cluster, node, clock)
            assert await env.valid() == {"account": True, "projected": True}
            yield env


async def _run_now(work: object) -> None:
    assert callable(work)
    work()


def test_the_tokens_of_a_running_pod_are_valid_at_any_time_and_each_only_for_an_hour(tmp_path: Path) -> None:
    @virtual_time
    async def scenario() -> None:
        async with token_env(tmp_path) as env:
            first = env.tokens()
            for _ in range(3 * 12):
                await asyncio.sleep(300)
                assert await env.valid() == {"account": True, "projected": True}
            assert [await env.is_valid(token) for token in first.values()] == [False, False]

    scenario()


@pytest.mark.parametrize(("expiration_seconds", "renewed_after_seconds"), [(None, 0.8 * HOUR), (600, 480), (7 * 24 * 3600, 24 * HOUR)])
def test_a_token_is_renewed_after_80_percent_of_its_lifetime_and_at_the_latest_after_a_day(
    tmp_path: Path, expiration_seconds: int | None, renewed_after_seconds: float
) -> None:
    @virtual_time
    async def scenario() -> None:
        async with token_env(tmp_path, expiration_seconds=expiration_seconds) as env:
            first = env.tokens()["projected"]
            await asyncio.sleep(renewed_after_seconds - 5)
            assert env.tokens()["projected"] == first
            await asyncio.sleep(10)
            assert env.tokens()["projected"] != first

    scenario()


def test_a_renewal_that_fails_is_retried_while_the_token_is_still_valid(tmp_path: Path) -> None:
    @virtual_time
    async def scenario() -> None:
        async with token_env(tmp_path) as env:
            first = env.tokens()
            await asyncio.sleep(0.8 * HOUR - 60)
            env.cluster.faults.fail_before(UNAVAILABLE, match=RequestMatch(plural="serviceaccounts", verb="create"), times=1_000_000)
            await asyncio.sleep(120)
            assert env.tokens() == first
            env.cluster.faults.clear()
            await asyncio.sleep(0.2 * HOUR)
            assert await env.valid() == {"account": True, "projected": True}
            assert [await env.is_valid(token) for token in first.values()] == [False, False]

    scenario()


def test_a_token_that_expired_while_the_machine_was_suspended_is_renewed_within_a_minute(tmp_path: Path) -> None:
    @virtual_time
    async def scenario() -> None:
        async with token_env(tmp_path) as env:
            env.clock.suspended_seconds = 8 * HOUR
            assert await env.valid() == {"account": False, "projected": False}
            await asyncio.sleep(61)
            assert await env.valid() == {"account": True, "projected": True}

    scenario()
