"""A real `torchrun` with an elastic policy continues when workers are added and removed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from dlop.embedded.kubelet.image_map import Image, read_images
from dlop.embedded.kubelet.runtime.base import Mount
from dlop.jobs.actions import scale
from dlop.jobs.log_stream import follow_logs
from dlop.jobs.logs import LogSelector
from dlop.jobs.lookup import JobHandle
from dlop.jobs.wait import WaitCondition, wait_for_job
from dlop.kube.types import JsonObject
from tests.frameworks.example_manifests import EXAMPLES
from tests.local.example_needs import HUGE_SECONDS
from tests.local.local_cluster_env import LocalClusterEnv, local_cluster_env

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(3 * HUGE_SECONDS)]
TIMEOUT_SECONDS = HUGE_SECONDS

# Processes lose their state on a restart. The pod of worker 0 is kept, and its file records that there were three workers.
PROGRAM = """
import os, pathlib, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
three = pathlib.Path(os.environ["MEMORY"], "three")
while True:
    counts = torch.tensor([1.0, float(three.exists())])
    dist.all_reduce(counts)
    size, were_three = counts.tolist()
    if size == 3:
        three.touch()
    print(f"{size:.0f} workers", flush=True)
    if size == 2 and were_three:
        break
    time.sleep(0.2)
dist.destroy_process_group()
"""


def job() -> JsonObject:
    container = {
        "name": "pytorch",
        "image": "elastic:1",
        "command": ["torchrun", "/program.py"],
        "env": [{"name": "MEMORY", "value": "/memory"}],
        "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
    }
    template = {"spec": {"containers": [container], "volumes": [{"name": "memory", "emptyDir": {}}], "terminationGracePeriodSeconds": 10}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "elastic"},
        "spec": {
            "nprocPerNode": "1",
            "elasticPolicy": {
                "minReplicas": 2,
                "maxReplicas": 3,
                "maxRestarts": 10,
                "rdzvBackend": "c10d",
                # Seconds to wait for further workers once the minimum is reached.
                "rdzvConf": [{"key": "last_call_timeout", "value": "3"}],
            },
            "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": template}},
        },
    }


def image(program: Path) -> Image:
    """The packages of the example with another program."""
    (example,) = (image for image in read_images(EXAMPLES / "images.yaml") if image.matches("pytorch-by-axis:1"))
    return replace(example, name="elastic:*", files={"/program.py": program})


async def test_the_job_continues_when_workers_are_added_and_removed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    async with local_cluster_env(tmp_path / "cluster", images=[image(program)], mounts=[Mount.at_same_path(tmp_path)]) as env:
        elastic = await env.submit(job())
        await wait_for_output(env, elastic, "2 workers")
        await set_workers(env, elastic, 3)
        await wait_for_output(env, elastic, "3 workers")
        await set_workers(env, elastic, 2)
        # A new rendezvous of PyTorch may run into a timeout of one minute first.
        await wait_for_job(env.client, elastic, WaitCondition.SUCCEEDED, timeout_seconds=TIMEOUT_SECONDS)


async def set_workers(env: LocalClusterEnv, job: JobHandle, workers: int) -> None:
    body = await env.client.get(job.resource, job.name, namespace=job.namespace)
    assert await scale(env.client, JobHandle.decode(job.kind, msgspec.json.encode(body)), {"worker": workers})


async def wait_for_output(env: LocalClusterEnv, job: JobHandle, text: str) -> None:
    """Wait until a worker prints a line."""
    async with asyncio.timeout(TIMEOUT_SECONDS), follow_logs(env.client, job, LogSelector()) as lines, aclosing(lines):
        async for line in lines:
            if line.text == text:
                return
    raise AssertionError(f"no worker has printed: {text}")
