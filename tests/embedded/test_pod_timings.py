"""The kubelet's own numbers, to the second: in virtual time, where an hour of waiting costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.kubelet import Node
from dlop.kube.resources import LEASES
from dlop.kube.timestamps import to_the_microsecond
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.embedded.kubelet_cases import RUNNING, ended, main, pod, waiting
from tests.embedded.node_world import NodeWorld, difference, world_of
from tests.embedded.scripted_runtime import ScriptedRuntime

_EPOCH = 1_800_000_000.0


def _clock() -> float:
    return _EPOCH + asyncio.get_running_loop().time()


async def _at_once(work: Callable[[], None]) -> None:
    """Threads know nothing of virtual time."""
    work()


@asynccontextmanager
async def _world(runtime: ScriptedRuntime, folder: Path) -> AsyncIterator[NodeWorld]:
    async with EmbeddedCluster(clock=_clock) as cluster:
        node = Node(cluster.client(), runtime=runtime, folder=folder, clock=_clock, rng=Random(0), aside=_at_once)
        async with world_of(cluster.client(), node, folder, patience_seconds=1e6) as world:
            yield world


def _runs(*argv: str, **fields: Any) -> JsonObject:
    return {"name": "main", "image": "x", "command": list(argv), **fields}


@pytest.fixture
def runtime() -> ScriptedRuntime:
    return ScriptedRuntime()


def test_restarts_wait_ten_seconds_and_twice_as_long_each_time_up_to_five_minutes(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def story() -> None:
        async with _world(runtime, tmp_path) as world:
            await world.run_pod("a", pod(_runs("for", "1", "exit", "1"), restartPolicy="Always"))
            await world.sees(
                "a", main(restartCount=2, state=waiting("CrashLoopBackOff", message=lambda text: text.startswith("back-off 20s ")))
            )
            await world.sees("a", main(restartCount=8, state=RUNNING))

    story()
    assert runtime.pauses() == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_container_that_ran_for_ten_minutes_is_forgiven(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def story() -> None:
        async with _world(runtime, tmp_path) as world:
            await world.run_pod("a", pod(_runs("for", "601", "exit", "1"), restartPolicy="OnFailure"))
            await world.sees("a", main(restartCount=4, state=RUNNING))

    story()
    assert runtime.pauses() == [0, 0, 0, 0]


def test_a_deaf_pod_has_its_whole_grace_period_and_no_more(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def story() -> None:
        async with _world(runtime, tmp_path) as world:
            await world.run_pod("a", pod(_runs("deaf", "for", "1e9", "exit", "0"), terminationGracePeriodSeconds=3600))
            await world.sees("a", main(state=RUNNING))
            began = asyncio.get_running_loop().time()
            await world.delete("a")
            status = await world.sees_it_gone("a")
            assert asyncio.get_running_loop().time() - began == pytest.approx(3600, abs=1)
            assert not difference(main(state=ended(137, "Error")), status)

    story()


def test_a_pod_has_its_deadline_to_the_second(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def story() -> None:
        async with _world(runtime, tmp_path) as world:
            await world.run_pod("a", pod(_runs("for", "1e9", "exit", "0"), activeDeadlineSeconds=86_400))
            status = await world.sees_the_end("a")
            assert not difference({"reason": "DeadlineExceeded", **main(state=ended(143, "Error"))}, status)
            assert asyncio.get_running_loop().time() == pytest.approx(86_400, abs=2)

    story()


def test_a_liveness_probe_keeps_to_its_delay_period_and_threshold(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    probe = {"exec": {"command": ["for", "0", "exit", "1"]}, "initialDelaySeconds": 30, "periodSeconds": 60, "failureThreshold": 3}

    @virtual_time
    async def story() -> None:
        async with _world(runtime, tmp_path) as world:
            await world.run_pod("a", pod(_runs("for", "1e9", "exit", "0", livenessProbe=probe), restartPolicy="Always"))
            await world.sees("a", main(restartCount=1, lastState=ended(143, "Error")))

    story()
    began = runtime.processes[0].started_at
    assert [round(each.started_at - began) for each in runtime.probes] == [30, 90, 150]
    assert runtime.processes[0].ended_at == pytest.approx(began + 150, abs=1)


def test_a_container_without_its_config_map_is_looked_at_every_ten_seconds(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    variable = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x"}}}

    @virtual_time
    async def story() -> None:
        async with _world(runtime, tmp_path) as world:
            await world.run_pod("a", pod(_runs("for", "1", "exit", "0", env=[variable])))
            heard = await world.hears("a", {"reason": "Failed", "count": 7})
            assert asyncio.get_running_loop().time() == pytest.approx(60, abs=2)
            assert heard["message"] == 'Error: configmap "none" not found'

    story()


def test_the_nodes_lease_is_never_older_than_ten_seconds(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def story() -> None:
        async with _world(runtime, tmp_path) as world:
            await asyncio.sleep(12_345)
            lease = await world.client.get(LEASES, "dlop-local", namespace="kube-node-lease")
            assert lease["spec"]["renewTime"] >= to_the_microsecond(_clock() - 10.1)

    story()
