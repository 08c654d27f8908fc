"""The operator as a process on the real API server, with exactly the permissions of the deployed service account.

It acquires the lease, creates pods and services, replaces an evicted pod, writes the status, creates events and deletes the job
after its TTL. The server forbids no request.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.kube.resources import EVENTS, LEASES, SERVICES
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.script import Script
from tests.cluster.deployed_operator import deploy_operator
from tests.cluster.permission_jobs import JOBS, has_condition, job, run_operator, wait_for_job


@pytest.mark.parametrize("one_namespace", [False, True], ids=["cluster-wide", "one namespace"])
async def test_a_job_runs_to_completion_with_the_permissions_of_the_manifests(
    real_cluster: RealCluster, tmp_path: Path, *, one_namespace: bool
) -> None:
    log = tmp_path / "operator.log"
    script = Script()
    script.when("first-worker-1", times=1).run().after(1).evict()
    script.when("first-worker-*").run().until_released().succeed()
    async with deploy_operator(real_cluster, tmp_path, one_namespace=one_namespace) as deployed:
        own, admin = deployed.options.namespace, deployed.admin
        flags = ("--namespaces", own) if one_namespace else ()
        async with (
            ScriptedKubelet(admin, script, namespace=own) as kubelet,
            run_operator(deployed, tmp_path / "operator.kubeconfig", log, *flags),
        ):
            await admin.create(JOBS, job("first"), namespace=own)
            running = await wait_for_job(admin, "first", own, lambda job: has_condition("Running")(job) and _disruptions(job) == 1)
            assert running is not None
            assert {service["metadata"]["name"] for service in (await admin.list(SERVICES, namespace=own))["items"]} >= {"first-worker-0"}
            assert (await admin.get(LEASES, "dlop", namespace=own))["spec"]["holderIdentity"]
            for index in range(3):
                kubelet.release(f"{own}/first-worker-{index}")
            await wait_for_job(admin, "first", own, has_condition("Succeeded"))
            await wait_for_job(admin, "first", own, lambda job: job is None)
        events = [event for event in (await admin.list(EVENTS, namespace=own))["items"] if event["regarding"]["kind"] == JOBS.kind]
        assert events
        assert _forbidden_lines(log) == []


def _disruptions(job: JsonObject | None) -> int:
    record = (job or {}).get("status", {}).get("dlop", {})
    return sum(record.get("disruptions", {}).values())


def _forbidden_lines(log: Path) -> list[str]:
    """Log lines about forbidden requests. An operator for one namespace is not allowed to watch CRDs."""
    lines = [line for line in log.read_text().splitlines() if "forbidden" in line.lower()]
    return [line for line in lines if "not allowed to watch CRDs" not in line]
