"""The timings of the kubelet, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.kubelet import EmbeddedKubelet
from dlop.kube.resources import LEASES
from dlop.kube.timestamps import format_micro_time
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.embedded.kubelet_cases import RUNNING, main, pod, terminated, waiting
from tests.embedded.node_env import NodeEnv, find_mismatch, node_env
from tests.embedded.scripted_runtime import ScriptedRuntime

_EPOCH = 1_800_000_000.0


def _clock() -> float:
    return _EPOCH + asyncio.get_running_loop().time()


async def _run_now(work: Callable[[], None]) -> None:
    """Run synchronously, because threads do not use virtual time."""
    work()


@asynccontextmanager
async def _node_env(runtime: ScriptedRuntime, directory: Path) -> AsyncIterator[NodeEnv]:
    async with EmbeddedCluster(clock=_clock) as cluster:
        node = EmbeddedKubelet(cluster.client(), runtime=runtime, root_dir=directory, clock=_clock, rng=Random(0), run_blocking=_run_now)
        async with node_env(cluster.client(), node, directory, timeout_seconds=1e6) as env:
            yield env


def _container(*argv: str, **fields: Any) -> JsonObject:
    return {"name": "main", "image": "x", "command": list(argv), **fields}


@pytest.fixture
def runtime() -> ScriptedRuntime:
    return ScriptedRuntime()


def test_the_restart_delay_doubles_from_ten_seconds_to_five_minutes(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def scenario() -> None:
        async with _node_env(runtime, tmp_path) as env:
            await env.run_pod("a", pod(_container("for", "1", "exit", "1"), restartPolicy="Always"))
            await env.wait_for_status(
                "a", main(restartCount=2, state=waiting("CrashLoopBackOff", message=lambda text: text.startswith("back-off 20s ")))
            )
            await env.wait_for_status("a", main(restartCount=8, state=RUNNING))

    scenario()
    assert runtime.pauses() == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_run_of_ten_minutes_resets_the_restart_delay(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def scenario() -> None:
        async with _node_env(runtime, tmp_path) as env:
            await env.run_pod("a", pod(_container("for", "601", "exit", "1"), restartPolicy="OnFailure"))
            await env.wait_for_status("a", main(restartCount=4, state=RUNNING))

    scenario()
    assert runtime.pauses() == [0, 0, 0, 0]


def test_a_pod_that_ignores_sigterm_is_killed_after_the_grace_period(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def scenario() -> None:
        async with _node_env(runtime, tmp_path) as env:
            await env.run_pod("a", pod(_container("ignore-term", "for", "1e9", "exit", "0"), terminationGracePeriodSeconds=3600))
            await env.wait_for_status("a", main(state=RUNNING))
            started_at = asyncio.get_running_loop().time()
            await env.delete("a")
            status = await env.wait_deleted("a")
            assert asyncio.get_running_loop().time() - started_at == pytest.approx(3600, abs=1)
            assert not find_mismatch(main(state=terminated(137, "Error")), status)

    scenario()


def test_a_pod_fails_at_its_active_deadline(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def scenario() -> None:
        async with _node_env(runtime, tmp_path) as env:
            await env.run_pod("a", pod(_container("for", "1e9", "exit", "0"), activeDeadlineSeconds=86_400))
            status = await env.wait_finished("a")
            assert not find_mismatch({"reason": "DeadlineExceeded", **main(state=terminated(143, "Error"))}, status)
            assert asyncio.get_running_loop().time() == pytest.approx(86_400, abs=2)

    scenario()


def test_a_liveness_probe_observes_its_delay_period_and_threshold(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    probe = {"exec": {"command": ["for", "0", "exit", "1"]}, "initialDelaySeconds": 30, "periodSeconds": 60, "failureThreshold": 3}

    @virtual_time
    async def scenario() -> None:
        async with _node_env(runtime, tmp_path) as env:
            await env.run_pod("a", pod(_container("for", "1e9", "exit", "0", livenessProbe=probe), restartPolicy="Always"))
            await env.wait_for_status("a", main(restartCount=1, lastState=terminated(143, "Error")))

    scenario()
    started_at = runtime.processes[0].started_at
    assert [round(probe_process.started_at - started_at) for probe_process in runtime.probes] == [30, 90, 150]
    assert runtime.processes[0].ended_at == pytest.approx(started_at + 150, abs=1)


def test_a_container_config_error_is_retried_every_ten_seconds(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    variable = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x"}}}

    @virtual_time
    async def scenario() -> None:
        async with _node_env(runtime, tmp_path) as env:
            await env.run_pod("a", pod(_container("for", "1", "exit", "0", env=[variable])))
            event = await env.wait_for_event("a", {"reason": "Failed", "count": 7})
            assert asyncio.get_running_loop().time() == pytest.approx(60, abs=2)
            assert event["message"] == 'Error: configmap "none" not found'

    scenario()


def test_the_lease_is_renewed_every_ten_seconds(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    @virtual_time
    async def scenario() -> None:
        async with _node_env(runtime, tmp_path) as env:
            await asyncio.sleep(12_345)
            lease = await env.client.get(LEASES, "dlop-local", namespace="kube-node-lease")
            assert lease["spec"]["renewTime"] >= format_micro_time(_clock() - 10.1)

    scenario()
