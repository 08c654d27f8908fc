"""The kubelet during failures of the API server, the cluster or the node itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest
from kubernetes_build import require_assets

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.kubelet import EmbeddedKubelet, KubeletServerConfig
from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.embedded.kubelet.server.api import HOST
from dlop.kube.client import PatchType
from dlop.kube.resources import NODES, PODS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import RUNNING, condition, main, pod, sh, terminated
from tests.embedded.node_env import FAST_TIMINGS, TIMEOUT_SECONDS, embedded_node_env, find_mismatch, node_env

_TRAP = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done"
_SERVER_ERROR: JsonObject = {"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500, "message": "not now"}
_STATUS_WRITES = RequestMatch(verb="patch", plural="pods", subresource="status")


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        yield cluster


def _kubelet(cluster: EmbeddedCluster, directory: Path, **options: object) -> EmbeddedKubelet:
    return EmbeddedKubelet(cluster.client(), runtime=PlainRuntime(rng=Random(3)), root_dir=directory, timings=FAST_TIMINGS, **options)  # type: ignore[arg-type]


async def test_the_final_status_is_written_despite_server_errors(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with node_env(cluster.client(), _kubelet(cluster, tmp_path), tmp_path) as env:
        cluster.faults.fail_before(_SERVER_ERROR, match=_STATUS_WRITES, times=3)
        cluster.faults.fail_after(None, match=_STATUS_WRITES, times=2)
        await env.run_pod("a", pod(sh("exit 3")))
        status = await env.wait_finished("a")
        assert not find_mismatch({"phase": "Failed", **main(state=terminated(3, "Error"))}, status)


async def test_a_replaced_pod_does_not_write_the_status_of_its_successor(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with node_env(cluster.client(), _kubelet(cluster, tmp_path), tmp_path) as env:
        await env.run_pod("a", pod(sh(_TRAP)))
        await env.wait_for_status("a", main(state=RUNNING))
        await env.delete("a", grace_seconds=0)
        await env.wait_deleted("a")
        second = await env.run_pod("a", pod(sh("exit 7")))
        version = await env.wait_for_pod("a", {"metadata": {"uid": second["metadata"]["uid"]}, "status": {"phase": "Failed"}})
        assert not find_mismatch(main(state=terminated(7, "Error")), env.history("a").versions[version]["status"])


async def test_an_unschedulable_pod_is_scheduled_when_resources_are_freed(tmp_path: Path) -> None:
    async with embedded_node_env(PlainRuntime(rng=Random(4)), tmp_path, extended_resources={"nvidia.com/gpu": 1}) as env:
        gpu = {"limits": {"nvidia.com/gpu": "1"}}
        await env.run_pod("first", pod(sh(_TRAP, resources=gpu)))
        await env.wait_for_status("first", main(state=RUNNING))
        await env.run_pod("second", pod(sh("exit 0", resources=gpu)))
        unschedulable = condition("PodScheduled", "False", message=re.compile(r"1 No preemption victims found for incoming pod\.$"))
        version = await env.wait_for_status("second", {"conditions": [unschedulable]})
        await env.delete("first")
        await env.wait_for_status("second", {"phase": "Succeeded", "conditions": [condition("PodScheduled", "True")]}, since=version)


async def test_pods_of_a_previous_node_process_fail(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with node_env(cluster.client(), _kubelet(cluster, tmp_path / "first"), tmp_path) as env:
        await env.run_pod("a", pod(sh("sleep 60"), restartPolicy="Always"))
        await env.run_pod("b", pod(sh("exit 0")))
        await env.wait_for_status("a", main(state=RUNNING))
        await env.wait_finished("b")
    async with node_env(cluster.client(), _kubelet(cluster, tmp_path / "second"), tmp_path) as env:
        status = await env.wait_finished("a")
        assert not find_mismatch(
            {"conditions": [condition("DisruptionTarget", "True")], **main(state=terminated(137, "ContainerStatusUnknown"))}, status
        )
        assert (await env.wait_finished("b"))["phase"] == "Succeeded"


async def test_no_process_of_a_pod_is_left_when_the_node_stops(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    command_line = f"sleep 987{os.getpid()}"
    async with node_env(cluster.client(), _kubelet(cluster, tmp_path), tmp_path) as env:
        await env.run_pod("a", pod(sh(f"{command_line} & {command_line}")))
        await env.wait_for_status("a", main(state=RUNNING))
        await _wait_until(lambda: len(_processes(command_line)) >= 2)
    await _wait_until(lambda: not _processes(command_line))


async def test_a_lost_watch_is_recovered(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with node_env(cluster.client(), _kubelet(cluster, tmp_path), tmp_path) as env:
        await env.run_pod("a", pod(sh(_TRAP)))
        await env.wait_for_status("a", main(state=RUNNING))
        cluster.faults.drop_watches()
        cluster.faults.compact()
        await env.delete("a")
        await env.wait_deleted("a")


async def test_conditions_of_other_owners_are_kept(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with node_env(cluster.client(), _kubelet(cluster, tmp_path), tmp_path) as env:
        await env.run_pod("a", pod(sh("sleep 60"), readinessGates=[{"conditionType": "example.org/open"}]))
        await env.wait_for_status("a", {"conditions": [condition("Ready", "False", reason="ReadinessGatesNotReady")]})
        open_gate = {"status": {"conditions": [{"type": "example.org/open", "status": "True"}]}}
        await env.client.patch(PODS, "a", open_gate, namespace="default", subresource="status", patch_type=PatchType.STRATEGIC)
        await env.wait_for_status("a", {"conditions": [condition("Ready", "True"), condition("example.org/open", "True")]})


async def test_the_node_reports_its_capacity(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with _kubelet(cluster, tmp_path, cpus=2.5, memory_bytes=2**30, extended_resources={"nvidia.com/gpu": 4}):
        node = await cluster.client().get(NODES, "dlop-local")
        expected = {"cpu": "2500m", "memory": "1Gi", "ephemeral-storage": re.compile(r"^[1-9]\d*[KMGT]?i?$"), "nvidia.com/gpu": "4"}
        assert not find_mismatch({"capacity": expected, "allocatable": expected}, node["status"])


async def test_kubectl_reads_the_log_of_a_pod_and_runs_a_command(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    kubectl = require_assets(("kubectl",))["kubectl"]
    node = EmbeddedKubelet(
        cluster.client(),
        runtime=(await detect_runtime()).runtime,
        root_dir=tmp_path / "node",
        timings=FAST_TIMINGS,
        server_config=KubeletServerConfig(token="secret"),
    )
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps((await cluster.serve()).kubeconfig()))
    async with node_env(cluster.client(), node, tmp_path) as env:
        assert node.server is not None
        cluster.trust_kubelet(HOST, node.server.port, ca_pem=node.server.ca_pem, token="secret")
        variable = {"name": "WHO", "value": "world"}
        await env.run_pod("a", pod(sh(f"echo hello $WHO; {_TRAP}", env=[variable])))
        await env.wait_for_status("a", main(state=RUNNING))
        await _wait_until(lambda: env.output("a") != "")
        assert await _output(kubectl, kubeconfig, "logs", "a") == "hello world\n"
        assert await _output(kubectl, kubeconfig, "exec", "a", "--", "sh", "-c", "echo again $WHO; hostname") == "again world\na\n"


def _processes(command_line: str) -> list[int]:
    """PIDs of the processes of this machine whose command line starts with this."""
    expected = command_line.replace(" ", "\0").encode()
    pids = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if (directory / "cmdline").read_bytes().startswith(expected):
                pids.append(int(directory.name))
        except OSError:
            continue
    return pids


async def _wait_until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not is_true():  # noqa: ASYNC110 - there is no notification for other processes
            await asyncio.sleep(0.02)


async def _output(program: Path, kubeconfig: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        program, "--kubeconfig", kubeconfig, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, error_output = await process.communicate()
    assert process.returncode == 0, error_output.decode()
    return output.decode()
