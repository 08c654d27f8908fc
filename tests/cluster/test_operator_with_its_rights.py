"""The operator on the real API server, as a process of its own with the rights of the deployed service account and no more.

It leads, makes pods and services, replaces a lost pod, writes the status, tells events and deletes the job in the end; the
server refuses it nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import EVENTS, LEASES, SERVICES
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEventType
from dlop.testing.kubelet import Kubelet
from dlop.testing.script import Script
from tests.cluster.test_rights import Place, deployed
from tests.kinds_for_crds import Plain

ROOT = Path(__file__).resolve().parents[2]
JOBS = Plain.job_type.resource
PATIENCE_SECONDS = 60.0


def job(name: str) -> JsonObject:
    container = {"name": "main", "image": "trainer:1"}
    # The namespace admits only pods that ask for nothing special.
    safe = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    template = {"spec": {"containers": [{**container, "securityContext": safe}]}}
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
async def operator_process(place: Place, kubeconfig: Path, log: Path, *flags: str) -> AsyncIterator[None]:
    words = ["--kubeconfig", str(kubeconfig), "--frameworks", "tests.kinds_for_crds:Plain", "--kinds", "RingJob"]
    words += [
        "--leader-election",
        "true",
        "--lease-namespace",
        place.chosen.namespace,
        "--bind-address",
        "off",
        "--log-format",
        "json",
        *flags,
    ]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dlop", "run", *words, cwd=ROOT, stdout=file, stderr=file, env={**os.environ, "KUBECONFIG": ""}
        )
        try:
            yield
            process.terminate()
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def until(client: Client, name: str, namespace: str, reached: Callable[[JsonObject | None], bool]) -> JsonObject | None:
    """Wait until the job is as it should be; None stands for a job that is gone."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await _get(client, name, namespace)
            if reached(found):
                return found
            version = None if found is None else found["metadata"]["resourceVersion"]
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


def has(condition: str) -> Callable[[JsonObject | None], bool]:
    def reached(found: JsonObject | None) -> bool:
        conditions = (found or {}).get("status", {}).get("conditions", ())
        return any(each["type"] == condition and each["status"] == "True" for each in conditions)

    return reached


@pytest.mark.parametrize("one_namespace", [False, True], ids=["cluster-wide", "one namespace"])
async def test_a_job_is_run_to_its_end_with_the_rights_of_the_manifests(
    real_cluster: RealCluster, tmp_path: Path, *, one_namespace: bool
) -> None:
    log = tmp_path / "operator.log"
    script = Script()
    script.when("first-worker-1", times=1).run().after(1).evict()
    script.when("first-worker-*").run().until_told().succeed()
    async with deployed(real_cluster, tmp_path, one_namespace=one_namespace) as place:
        own, admin = place.chosen.namespace, place.admin
        flags = ("--namespaces", own) if one_namespace else ()
        async with (
            Kubelet(admin, script, namespace=own) as kubelet,
            operator_process(place, tmp_path / "operator.kubeconfig", log, *flags),
        ):
            await admin.create(JOBS, job("first"), namespace=own)
            running = await until(admin, "first", own, lambda found: has("Running")(found) and _disruptions(found) == 1)
            assert running is not None
            assert {each["metadata"]["name"] for each in (await admin.list(SERVICES, namespace=own))["items"]} >= {"first-worker-0"}
            assert (await admin.get(LEASES, "dlop", namespace=own))["spec"]["holderIdentity"]
            for index in range(3):
                kubelet.tell(f"{own}/first-worker-{index}")
            await until(admin, "first", own, has("Succeeded"))
            await until(admin, "first", own, lambda found: found is None)
        told = [event for event in (await admin.list(EVENTS, namespace=own))["items"] if event["regarding"]["kind"] == JOBS.kind]
        assert told
        assert _refusals(log) == []


def _disruptions(found: JsonObject | None) -> int:
    record = (found or {}).get("status", {}).get("dlop", {})
    return sum(record.get("disruptions", {}).values())


def _refusals(log: Path) -> list[str]:
    """What the server has refused; that definitions are not to be watched is what an operator of one namespace expects."""
    lines = [line for line in log.read_text().splitlines() if "forbidden" in line.lower()]
    return [line for line in lines if "custom resource definitions may not be watched" not in line]
