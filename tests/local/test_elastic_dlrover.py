"""DLRover's master runs as the master of ElasticJobs, unmodified and with real processes. The examples are on platform k8s.

The program of the first example uses DLRover's client. That of the second one uses PyTorch, and is started by `dlrover-run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlop import Phase
from dlop.embedded.kubelet.image_map import read_images
from dlop.jobs.list_watch import WatchScope, list_and_watch
from dlop.jobs.lookup import JobHandle
from dlop.jobs.wait import WaitCondition, wait_for_job
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.frameworks.example_manifests import EXAMPLES
from tests.local.example_needs import HUGE_SECONDS, patience_seconds
from tests.local.local_cluster_env import LocalClusterEnv, local_cluster_env
from tests.thorough import select

# The first test installs DLRover.
pytestmark = pytest.mark.timeout(420)
TIMEOUT_SECONDS = 300.0
RANK, INDEX = "elasticjob.dlrover/rank-index", "elasticjob.dlrover/replica-index"
PLATFORMS = ("pyk8s", "k8s")
LINEAR, PYTORCH = "14-elastic-dlrover/job.yaml", "14-elastic-dlrover/job-pytorch.yaml"
Pods = Mapping[str, Pod]


def cases(platforms: Sequence[str]) -> list[Any]:
    """Examples and platforms. `platforms` are those of the example without large packages."""
    huge = [pytest.mark.frameworks, pytest.mark.timeout(HUGE_SECONDS + TIMEOUT_SECONDS)]
    return [
        *(pytest.param(LINEAR, platform, id=platform) for platform in platforms),
        *(pytest.param(PYTORCH, platform, marks=huge, id=f"dlrover-run-{platform}") for platform in PLATFORMS),
    ]


def example_job(name: str, checkpoints: Path, *, platform: str, command: list[str] | None = None, **env: str) -> JsonObject:
    """The job of an example, whose master only ends when it is deleted or the training has ended."""
    job: JsonObject = yaml.safe_load((EXAMPLES / name).read_text())
    job["metadata"]["annotations"] = {"dlop.dev/elasticjob-platform": platform}
    roles = job["spec"]["replicaSpecs"]
    # The master does not end on SIGTERM.
    master = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "dlrover-master:0.6.1"}]}
    roles["dlrover-master"]["template"]["spec"] = master
    worker = roles["worker"]["template"]["spec"]
    worker["volumes"] = [{"name": "checkpoints", "hostPath": {"path": str(checkpoints)}}]
    values = {"CHECKPOINTS": "/checkpoints", **env}
    worker["containers"][0] |= {"env": [{"name": name, "value": value} for name, value in values.items()]}
    if command is not None:
        worker["containers"][0]["command"] = command
        roles["worker"]["restartCount"] = 1
    return job


async def until_pods(
    env: LocalClusterEnv, job: JobHandle, reached: Callable[[Pods], bool], *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Pods:
    """Wait for a state of the pods of a job, by name."""
    pods: dict[str, Pod] = {}
    async with (
        asyncio.timeout(timeout_seconds),
        aclosing(list_and_watch(env.client, WatchScope(resource=PODS, namespace=job.namespace), Pod)) as changes,
    ):
        async for change_set in changes:
            for pod in change_set.deleted:
                pods.pop(pod.metadata.name, None)
            pods |= {pod.metadata.name: pod for pod in change_set.upserted if _is_owned(pod, job)}
            if reached(pods):
                return dict(pods)
    raise AssertionError("the watch has ended")


def _is_owned(pod: Pod, job: JobHandle) -> bool:
    return pod.metadata.controller is not None and pod.metadata.controller.uid == job.uid


def running_workers(pods: Pods) -> dict[str, str]:
    """UIDs by rank."""
    running = (pod for pod in pods.values() if pod.status.phase == "Running" and RANK in pod.metadata.labels)
    return {pod.metadata.labels[RANK]: pod.metadata.uid for pod in running}


def is_running(pods: Pods, name: str) -> bool:
    return name in pods and pods[name].status.phase == "Running"


async def until_checkpoint(checkpoints: Path) -> None:
    """Wait until the training writes a checkpoint."""

    def times() -> list[int]:
        return [path.stat().st_mtime_ns for path in checkpoints.iterdir() if path.suffix in (".json", ".pt")]

    async with asyncio.timeout(TIMEOUT_SECONDS):
        before = times()
        while times() == before:  # noqa: ASYNC110 - there is no event for a file
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(("example", "platform"), cases(select(PLATFORMS, ["pyk8s"])))
async def test_workers_and_master_are_replaced_and_the_job_succeeds(tmp_path: Path, example: str, platform: str) -> None:
    images = read_images(EXAMPLES / "images.yaml")
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    async with local_cluster_env(tmp_path / "cluster", images=images) as env:
        job = await env.submit(example_job(example, checkpoints, platform=platform, CRASH_STEP="10", STEPS="80"))
        first = await until_pods(
            env, job, lambda pods: running_workers(pods).keys() == {"0", "1"}, timeout_seconds=patience_seconds(example)
        )
        replacement, master = f"{job.name}-edljob-worker-2", f"elasticjob-{job.name}-dlrover-master"
        replaced = await until_pods(env, job, lambda pods: is_running(pods, replacement))
        assert replaced[replacement].metadata.labels[RANK] == "1"
        assert running_workers(replaced)["0"] == running_workers(first)["0"]
        await until_checkpoint(checkpoints)
        await env.client.delete(PODS, f"{master}-0", namespace=job.namespace)
        adopted = await until_pods(env, job, lambda pods: is_running(pods, f"{master}-1"))
        assert adopted[f"{master}-1"].metadata.labels[INDEX] == "1"
        assert running_workers(adopted) == running_workers(replaced)
        finished = await wait_for_job(env.client, job, WaitCondition.SUCCEEDED, timeout_seconds=TIMEOUT_SECONDS)
        record = finished.record()
        assert (record.disruptions, record.restarts) == ({"dlrover-master": 1}, {})
        pods = await until_pods(env, job, lambda pods: not running_workers(pods))
        assert {name for name in pods if "-worker-" in name} <= {f"{job.name}-edljob-worker-{number}" for number in range(3)}


@pytest.mark.parametrize(("example", "platform"), cases(select(PLATFORMS, ["k8s"])))
async def test_a_program_that_always_fails_fails_the_job(tmp_path: Path, example: str, platform: str) -> None:
    command = ["sh", "-c", "exit 3"]
    if example == PYTORCH:
        # Both workers are in the rendezvous when the first program fails.
        command = ["dlrover-run", "--nnodes=2", "--nproc_per_node=1", "--max_restarts=0", "--no-python", "sh", "-c", "sleep 2; exit 3"]
    async with local_cluster_env(tmp_path / "cluster", images=read_images(EXAMPLES / "images.yaml")) as env:
        job = await env.submit(example_job(example, tmp_path, platform=platform, command=command))
        finished = await wait_for_job(env.client, job, WaitCondition.FINISHED, timeout_seconds=patience_seconds(example))
        assert finished.phase() is Phase.FAILED
        failure = finished.record().last_failure
        assert failure is not None
        assert (failure.role, failure.exit_code) == ("dlrover-master", 1)
