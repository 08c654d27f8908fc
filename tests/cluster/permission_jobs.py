"""A job and an operator process for tests with the permissions of the manifests."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEventType
from tests.cluster.deployed_operator import DeployedOperator
from tests.kinds_for_crds import Plain

ROOT = Path(__file__).resolve().parents[2]
JOBS = Plain.job_type.resource
TIMEOUT_SECONDS = 60.0


def job(name: str) -> JsonObject:
    container = {"name": "main", "image": "trainer:1"}
    # The namespace enforces the restricted pod security standard.
    security_context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    template = {"spec": {"containers": [{**container, "securityContext": security_context}]}}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name},
        "spec": {
            "runPolicy": {"ttlSecondsAfterFinished": 3},
            "replicaSpecs": {"Worker": {"replicas": 3, "restartPolicy": "Never", "template": template}},
        },
    }


@asynccontextmanager
async def run_operator(deployed: DeployedOperator, kubeconfig: Path, log: Path, *flags: str) -> AsyncIterator[None]:
    """Run the operator for `RingJob` with leader election. It must exit with code 0 on SIGTERM."""
    arguments = ["--kubeconfig", str(kubeconfig), "--frameworks", "tests.kinds_for_crds:Plain", "--kinds", "RingJob"]
    arguments += [
        "--leader-election",
        "true",
        "--lease-namespace",
        deployed.options.namespace,
        "--bind-address",
        "off",
        "--log-format",
        "json",
        *flags,
    ]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dlop", "run", *arguments, cwd=ROOT, stdout=file, stderr=file, env={**os.environ, "KUBECONFIG": ""}
        )
        try:
            yield
            process.terminate()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def wait_for_job(client: Client, name: str, namespace: str, reached: Callable[[JsonObject | None], bool]) -> JsonObject | None:
    """Wait until `reached` returns true for the job; it gets None for a deleted job."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            job = await _get(client, name, namespace)
            if reached(job):
                return job
            version = None if job is None else job["metadata"]["resourceVersion"]
            async with client.watch(
                JOBS, namespace=namespace, resource_version=version, field_selector=f"metadata.name={name}", bookmarks=False
            ) as events:
                async for event in events:
                    if reached(None if event.type is WatchEventType.DELETED else event.decode()):
                        return event.decode()


async def _get(client: Client, name: str, namespace: str) -> JsonObject | None:
    try:
        return await client.get(JOBS, name, namespace=namespace)
    except NotFoundError:
        return None


def has_condition(condition: str) -> Callable[[JsonObject | None], bool]:
    def reached(job: JsonObject | None) -> bool:
        conditions = (job or {}).get("status", {}).get("conditions", ())
        return any(item["type"] == condition and item["status"] == "True" for item in conditions)

    return reached
