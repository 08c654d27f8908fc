"""The examples of KubeDL's kinds and of job features reach their end on both API servers, with scripted pods."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml
from real_cluster import RealCluster

from dlop.api.crd import build_cron_crd
from dlop.frameworks.registry import load_registry
from dlop.jobs.render import is_cron, job_of_cron
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import EXAMPLES
from tests.frameworks.sandbox import Clock, open_sandbox, run_embedded, run_real

REGISTRY = load_registry()
PATHS = sorted([*EXAMPLES.glob("15-kubedl/*.yaml"), *EXAMPLES.glob("16-job-features/*.yaml")])
BY_PATH = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def read_job(path: Path) -> JsonObject:
    """The job of a file, or the one that its Cron creates, as the job of a sandbox."""
    manifests = list(yaml.safe_load_all(path.read_text()))
    jobs = [job_of_cron(manifest) if is_cron(manifest) else manifest for manifest in manifests]
    (job,) = (job for job in jobs if REGISTRY.find(job["apiVersion"], job["kind"]))
    return {**job, "metadata": {**job["metadata"], "name": "demo", "namespace": None}}


async def run_to_the_end(transport: Transport, clock: Clock, path: Path) -> None:
    manifest = read_job(path)
    kind = REGISTRY.get(manifest["apiVersion"], manifest["kind"])
    async with open_sandbox(transport, kind, clock=clock, further_crds=(build_cron_crd(),)) as sandbox:
        sandbox.script.when("*-tensorboard-0").run()
        sandbox.script.when("*").run().after(1).succeed()
        sandbox.start()
        await sandbox.submit(manifest)
        await sandbox.until_condition("Succeeded")
        assert await sandbox.condition("Blocked") is None


@BY_PATH
@virtual_time
async def test_the_example_succeeds_on_the_embedded_server(path: Path) -> None:
    await run_embedded(run_to_the_end, path)


async def test_the_examples_succeed_on_the_real_server(real_cluster: RealCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for path in PATHS:
            group.create_task(run_real(run_to_the_end, real_cluster, path), name=path.stem)
