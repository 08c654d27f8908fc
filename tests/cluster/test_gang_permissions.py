"""Gang scheduling on the real API server, with the operator as a process and with the optional permissions for gangs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.api.gang import KUBE_BATCH, VOLCANO
from dlop.deploy.apply import apply
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.script import Script
from tests.cluster.deployed_operator import deploy_operator
from tests.cluster.permission_jobs import JOBS, TIMEOUT_SECONDS, has_condition, job, run_operator, wait_for_job
from tests.frameworks.pod_groups import COSCHEDULER, PodGroups, pod_group_crd


@pytest.mark.parametrize(
    ("scheduler", "spec", "one_namespace"),
    [
        pytest.param(VOLCANO, {"minMember": 3, "queue": "default"}, False, id="volcano"),
        pytest.param(VOLCANO, {"minMember": 3, "queue": "default"}, True, id="volcano in one namespace"),
        pytest.param(KUBE_BATCH, {"minMember": 3}, False, id="kube-batch"),
        pytest.param(COSCHEDULER, {"minMember": 3}, True, id="kube-coscheduler in one namespace"),
    ],
)
async def test_a_pod_group_is_created_updated_and_deleted_with_the_gang_permissions(
    real_cluster: RealCluster, tmp_path: Path, scheduler: str, spec: JsonObject, *, one_namespace: bool
) -> None:
    log, script = tmp_path / "operator.log", Script()
    script.when("first-*").run().after(3).succeed()
    async with deploy_operator(real_cluster, tmp_path, one_namespace=one_namespace, permission_sets=("gang",)) as deployed:
        own, admin = deployed.options.namespace, deployed.admin
        await apply(admin, [pod_group_crd(scheduler)], report=lambda _: None)
        flags = ("--gang-scheduler-name", scheduler, *(("--namespaces", own) if one_namespace else ()))
        async with ScriptedKubelet(admin, script, namespace=own), run_operator(deployed, tmp_path / "operator.kubeconfig", log, *flags):
            await admin.create(JOBS, job("first"), namespace=own)
            groups = PodGroups(admin, scheduler, namespace=own)
            assert (await wait_for_pod_group(groups))["spec"] == spec
            if scheduler == VOLCANO:
                assert "first" not in {pod["metadata"]["name"].split("-")[0] for pod in (await admin.list(PODS, namespace=own))["items"]}
                await groups.set_phase("Inqueue", "first")
            await wait_for_job(admin, "first", own, has_condition("Running"))
            await groups.edit({"spec": {"minMember": 1}}, "first")
            await wait_for_job(admin, "first", own, lambda job: job is None)
            assert await groups.get("first") is None
        assert forbidden_resources(log) == ({"priorityclasses"} if one_namespace else set())


async def wait_for_pod_group(groups: PodGroups) -> JsonObject:
    """Polls, because a new CRD is not served for a moment."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            group = await groups.get("first")
            if group is not None:
                return group
            await asyncio.sleep(0.1)


def forbidden_resources(log: Path) -> set[str]:
    """Resources whose requests were forbidden, except CRDs, which an operator for one namespace is not allowed to watch."""
    lines = [line for line in log.read_text().splitlines() if "forbidden" in line.lower()]
    return {"priorityclasses" if "priorityclasses" in line else line for line in lines if "not allowed to watch CRDs" not in line}
