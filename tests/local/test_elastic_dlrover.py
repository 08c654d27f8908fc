"""DLRover's master runs as the master of ElasticJobs, unmodified and with real processes. The example is on platform k8s."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path

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
from tests.local.local_cluster_env import LocalClusterEnv, local_cluster_env
from tests.thorough import select

# The first test installs DLRover.
pytestmark = pytest.mark.timeout(420)
TIMEOUT_SECONDS = 300.0
RANK, INDEX = "elasticjob.dlrover/rank-index", "elasticjob.dlrover/replica-index"
PLATFORMS = ("pyk8s", "k8s")
MASTER = "elasticjob-linear-dlrover-master-"
Pods = Mapping[str, Pod]


def linear_job(checkpoints: Path, *, platform: str, command: list[str] | None = None, **env: str) -> JsonObject:
    """The job of the example, whose master only ends when it is deleted or the training has ended."""
    job: JsonObject = yaml.safe_load((EXAMPLES / "14-elastic-dlrover" / "job.yaml").read_text())
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


async def until_pods(env: LocalClusterEnv, job: JobHandle, reached: Callable[[Pods], bool]) -> Pods:
    """Wait for a state of the pods of a job, by name."""
    pods: dict[str, Pod] = {}
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
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


@pytest.mark.parametrize("platform", select(PLATFORMS, ["pyk8s"]))
async def test_workers_and_master_are_replaced_and_the_job_succeeds(tmp_path: Path, platform: str) -> None:
    images = read_images(EXAMPLES / "images.yaml")
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    async with local_cluster_env(tmp_path / "cluster", images=images) as env:
        job = await env.submit(linear_job(checkpoints, platform=platform, CRASH_STEP="10", STEPS="80"))
        first = await until_pods(env, job, lambda pods: running_workers(pods).keys() == {"0", "1"})
        replaced = await until_pods(env, job, lambda pods: is_running(pods, "linear-edljob-worker-2"))
        assert replaced["linear-edljob-worker-2"].metadata.labels[RANK] == "1"
        assert running_workers(replaced)["0"] == running_workers(first)["0"]
        await env.client.delete(PODS, f"{MASTER}0", namespace=job.namespace)
        adopted = await until_pods(env, job, lambda pods: is_running(pods, f"{MASTER}1"))
        assert adopted[f"{MASTER}1"].metadata.labels[INDEX] == "1"
        assert running_workers(adopted) == running_workers(replaced)
        finished = await wait_for_job(env.client, job, WaitCondition.SUCCEEDED, timeout_seconds=TIMEOUT_SECONDS)
        record = finished.record()
        assert (record.disruptions, record.restarts) == ({"dlrover-master": 1}, {})
        pods = await until_pods(env, job, lambda pods: not running_workers(pods))
        assert {name for name in pods if "-worker-" in name} <= {f"linear-edljob-worker-{number}" for number in range(3)}


@pytest.mark.parametrize("platform", select(PLATFORMS, ["k8s"]))
async def test_a_program_that_always_fails_fails_the_job(tmp_path: Path, platform: str) -> None:
    async with local_cluster_env(tmp_path / "cluster", images=read_images(EXAMPLES / "images.yaml")) as env:
        job = await env.submit(linear_job(tmp_path, platform=platform, command=["sh", "-c", "exit 3"]))
        finished = await wait_for_job(env.client, job, WaitCondition.FINISHED, timeout_seconds=TIMEOUT_SECONDS)
        assert finished.phase() is Phase.FAILED
        failure = finished.record().last_failure
        assert failure is not None
        assert (failure.role, failure.exit_code) == ("dlrover-master", 1)
