"""A real `torchrun` under an elastic policy: workers come and go while it runs, and it goes on with those that are there."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from dlop.embedded.kubelet.image_map import Image, read_images
from dlop.jobs.actions import scale
from dlop.jobs.log_stream import follow_logs
from dlop.jobs.logs import LogChoice
from dlop.jobs.lookup import JobHandle
from dlop.jobs.wait import Goal, wait_for
from dlop.kube.types import JsonObject
from tests.frameworks.manifests import EXAMPLES
from tests.local.example_needs import HUGE_SECONDS
from tests.local.local_world import LaptopWorld, laptop_world

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(3 * HUGE_SECONDS)]
PATIENCE_SECONDS = HUGE_SECONDS

# Processes forget everything when they are started again; worker 0 stays, and its file remembers that there were three.
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
    print(f"{size:.0f} together", flush=True)
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
                # How long those who are enough wait for one more.
                "rdzvConf": [{"key": "last_call_timeout", "value": "3"}],
            },
            "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": template}},
        },
    }


def image(program: Path) -> Image:
    """The example's packages, with another program."""
    (found,) = (each for each in read_images(EXAMPLES / "images.yaml") if each.matches("pytorch-by-axis:1"))
    return replace(found, name="elastic:*", files={"/program.py": program})


async def test_workers_come_and_go_and_the_rest_goes_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    async with laptop_world(tmp_path / "cluster", images=[image(program)], visible=[tmp_path]) as world:
        found = await world.submit(job())
        await hears(world, found, "2 together")
        await scaled(world, found, 3)
        await hears(world, found, "3 together")
        await scaled(world, found, 2)
        # Some of the ways in which processes of PyTorch find together again lead to a time-out of a minute first.
        await wait_for(world.client, found, Goal.SUCCEEDED, timeout_seconds=PATIENCE_SECONDS)


async def scaled(world: LaptopWorld, job: JobHandle, workers: int) -> None:
    body = await world.client.get(job.resource, job.name, namespace=job.namespace)
    assert await scale(world.client, JobHandle.read(job.kind, msgspec.json.encode(body)), {"worker": workers})


async def hears(world: LaptopWorld, job: JobHandle, sentence: str) -> None:
    """Wait until a worker says it."""
    async with asyncio.timeout(PATIENCE_SECONDS), follow_logs(world.client, job, LogChoice()) as lines, aclosing(lines):
        async for line in lines:
            if line.text == sentence:
                return
    raise AssertionError(f"nobody has said: {sentence}")
