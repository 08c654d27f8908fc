"""The node when the server, the cluster or the node itself is in trouble."""

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

from dlop.embedded.apiserver.faults import Match
from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.kubelet import Node, Serving
from dlop.embedded.kubelet.runtime.detect import choose
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.embedded.kubelet.server.api import HOST
from dlop.kube.client import PatchType
from dlop.kube.resources import NODES, PODS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import RUNNING, condition, ended, main, pod, sh
from tests.embedded.node_world import HURRIED, PATIENCE_SECONDS, difference, embedded_world, world_of

_TRAP = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done"
_BUSY: JsonObject = {"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500, "message": "not now"}
_STATUS_WRITES = Match(verb="patch", plural="pods", subresource="status")


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        yield cluster


def _node(cluster: EmbeddedCluster, folder: Path, **options: object) -> Node:
    return Node(cluster.client(), runtime=PlainRuntime(dice=Random(3)), folder=folder, pace=HURRIED, **options)  # type: ignore[arg-type]


async def test_the_last_word_gets_through_whatever_the_server_says(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with world_of(cluster.client(), _node(cluster, tmp_path), tmp_path) as world:
        cluster.faults.fail_before(_BUSY, match=_STATUS_WRITES, times=3)
        cluster.faults.fail_after(None, match=_STATUS_WRITES, times=2)
        await world.run_pod("a", pod(sh("exit 3")))
        status = await world.sees_the_end("a")
        assert not difference({"phase": "Failed", **main(state=ended(3, "Error"))}, status)


async def test_a_pod_that_is_replaced_by_another_of_its_name_does_not_speak_for_it(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with world_of(cluster.client(), _node(cluster, tmp_path), tmp_path) as world:
        await world.run_pod("a", pod(sh(_TRAP)))
        await world.sees("a", main(state=RUNNING))
        await world.delete("a", grace_seconds=0)
        await world.sees_it_gone("a")
        second = await world.run_pod("a", pod(sh("exit 7")))
        at = await world.sees_pod("a", {"metadata": {"uid": second["metadata"]["uid"]}, "status": {"phase": "Failed"}})
        assert not difference(main(state=ended(7, "Error")), world.sight("a").versions[at]["status"])


async def test_a_pod_that_did_not_fit_is_looked_at_again_when_something_is_freed(tmp_path: Path) -> None:
    async with embedded_world(PlainRuntime(dice=Random(4)), tmp_path, extended={"nvidia.com/gpu": 1}) as world:
        greedy = {"limits": {"nvidia.com/gpu": "1"}}
        await world.run_pod("first", pod(sh(_TRAP, resources=greedy)))
        await world.sees("first", main(state=RUNNING))
        await world.run_pod("second", pod(sh("exit 0", resources=greedy)))
        refused = condition("PodScheduled", "False", message=re.compile(r"1 No preemption victims found for incoming pod\.$"))
        at = await world.sees("second", {"conditions": [refused]})
        await world.delete("first")
        await world.sees("second", {"phase": "Succeeded", "conditions": [condition("PodScheduled", "True")]}, since=at)


async def test_pods_of_the_nodes_last_life_are_told_to_have_failed(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with world_of(cluster.client(), _node(cluster, tmp_path / "first"), tmp_path) as world:
        await world.run_pod("a", pod(sh("sleep 60"), restartPolicy="Always"))
        await world.run_pod("b", pod(sh("exit 0")))
        await world.sees("a", main(state=RUNNING))
        await world.sees_the_end("b")
    async with world_of(cluster.client(), _node(cluster, tmp_path / "second"), tmp_path) as world:
        lost = await world.sees_the_end("a")
        assert not difference(
            {"conditions": [condition("DisruptionTarget", "True")], **main(state=ended(137, "ContainerStatusUnknown"))}, lost
        )
        assert (await world.sees_the_end("b"))["phase"] == "Succeeded"


async def test_nothing_of_a_pod_is_left_when_the_node_leaves(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    mark = f"sleep 987{os.getpid()}"
    async with world_of(cluster.client(), _node(cluster, tmp_path), tmp_path) as world:
        await world.run_pod("a", pod(sh(f"{mark} & {mark}")))
        await world.sees("a", main(state=RUNNING))
        await _until(lambda: len(_processes(mark)) >= 2)
    await _until(lambda: not _processes(mark))


async def test_a_node_that_lost_its_watch_catches_up(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with world_of(cluster.client(), _node(cluster, tmp_path), tmp_path) as world:
        await world.run_pod("a", pod(sh(_TRAP)))
        await world.sees("a", main(state=RUNNING))
        cluster.faults.drop_watches()
        cluster.faults.compact()
        await world.delete("a")
        await world.sees_it_gone("a")


async def test_conditions_of_others_survive_the_nodes_writes(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with world_of(cluster.client(), _node(cluster, tmp_path), tmp_path) as world:
        await world.run_pod("a", pod(sh("sleep 60"), readinessGates=[{"conditionType": "example.org/open"}]))
        await world.sees("a", {"conditions": [condition("Ready", "False", reason="ReadinessGatesNotReady")]})
        opened = {"status": {"conditions": [{"type": "example.org/open", "status": "True"}]}}
        await world.client.patch(PODS, "a", opened, namespace="default", subresource="status", patch_type=PatchType.STRATEGIC)
        await world.sees("a", {"conditions": [condition("Ready", "True"), condition("example.org/open", "True")]})


async def test_the_node_tells_its_size(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with _node(cluster, tmp_path, cpus=2.5, memory_bytes=2**30, extended={"nvidia.com/gpu": 4}):
        node = await cluster.client().get(NODES, "dlop-local")
        wanted = {"cpu": "2500m", "memory": "1Gi", "ephemeral-storage": re.compile(r"^[1-9]\d*[KMGT]?i?$"), "nvidia.com/gpu": "4"}
        assert not difference({"capacity": wanted, "allocatable": wanted}, node["status"])


async def test_kubectl_reads_the_log_of_a_pod_and_runs_a_command_in_it(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    kubectl = require_assets(("kubectl",))["kubectl"]
    node = Node(cluster.client(), runtime=(await choose()).runtime, folder=tmp_path / "node", pace=HURRIED, serving=Serving(token="secret"))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps((await cluster.serve()).kubeconfig()))
    async with world_of(cluster.client(), node, tmp_path) as world:
        assert node.kubelet is not None
        cluster.trust_node(HOST, node.kubelet.port, authority_pem=node.kubelet.authority_pem, token="secret")
        variable = {"name": "WHO", "value": "world"}
        await world.run_pod("a", pod(sh(f"echo hello $WHO; {_TRAP}", env=[variable])))
        await world.sees("a", main(state=RUNNING))
        await _until(lambda: world.output("a") != "")
        assert await _output(kubectl, kubeconfig, "logs", "a") == "hello world\n"
        assert await _output(kubectl, kubeconfig, "exec", "a", "--", "sh", "-c", "echo again $WHO; hostname") == "again world\na\n"


def _processes(mark: str) -> list[int]:
    """The processes of this machine that were started with these words."""
    wanted = mark.replace(" ", "\0").encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(wanted):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110 - what happens outside of this program tells nobody
            await asyncio.sleep(0.02)


async def _output(program: Path, kubeconfig: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        program, "--kubeconfig", kubeconfig, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, problem = await process.communicate()
    assert process.returncode == 0, problem.decode()
    return output.decode()
