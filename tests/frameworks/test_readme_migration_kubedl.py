"""The migration guide `manifests/kubedl/README.md`: its commands run, line by line, on a cluster with KubeDL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.deploy.apply import DEPLOYMENTS, apply
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob
from dlop.frameworks.registry import load_registry
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.types import JsonObject
from tests.frameworks import kubedl_inherited_jobs
from tests.frameworks.golden_pod_steps import FinishPod
from tests.frameworks.kubedl_inherited_jobs import create_inherited_job
from tests.frameworks.kubedl_manifests import KINDS, kubedl_job
from tests.frameworks.kubedl_objects import states
from tests.frameworks.takeover_jobs import InheritedJob, owned_objects
from tests.frameworks.test_readme_migration import TEAM, Shell, check_untouched, deployed_operator, team, until, until_pods_exist

PAGE = (Path(__file__).resolve().parents[2] / "manifests" / "kubedl" / "README.md").read_text()
MIGRATE, ROLL_BACK = (
    re.findall(r"^(?:kubectl|dlop) .*$", block, re.MULTILINE) for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
)
"""The commands of the migration, and those of the rollback."""
OPTIONAL = r"pytorchjobs\.kubeflow\.org"
"""Only PyTorchJobs of Kubeflow need the permission set `hpa`, which the page does not name."""


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[RealCluster]:
    """A cluster of its own, because the CRDs are replaced."""
    with RealCluster.started(controllers=True) as cluster:
        yield cluster


def test_the_page_names_all_kinds() -> None:
    assert [kind.job_type.kind for kind in KINDS if kind.job_type.kind not in PAGE.partition("```")[0]] == []
    groups = {kind.job_type.kind for kind in load_registry() if kind.job_type.group == "training.kubedl.io"}
    assert groups == {kind.job_type.kind for kind in KINDS}


@pytest.mark.timeout(300)
async def test_the_commands_of_the_page_migrate_running_jobs_and_roll_back(own_cluster: RealCluster, tmp_path: Path) -> None:
    old_manifests = tmp_path / "old.yaml"
    client, shell = Client(await connect(own_cluster.kubeconfig_path)), Shell(own_cluster, tmp_path, old_manifests=old_manifests)
    try:
        await apply(client, kubedl_inherited_jobs.kubedl_crds(), report=lambda _: None)
        async with team(client) as kubelet:
            chosen = states("running", "partly finished")
            jobs = [
                await create_inherited_job(client, kubelet, state, name=f"old-{number}", namespace=TEAM)
                for number, state in enumerate(chosen)
            ]
            await kubedl_inherited_jobs.install_kubedl(client)
            before = await owned_objects(client, TEAM)
            outputs = [await shell.run(line) for line in MIGRATE]
            assert [each.name for each in jobs if f" {each.name} " not in outputs[-1]] == []
            async with deployed_operator(own_cluster, client, tmp_path, optional=OPTIONAL):
                await check_untouched(client, jobs, before)
                await client.create(PyTorchJob.job_type.resource, kubedl_job(PyTorchJob, name="new"), namespace=TEAM)
                await until_pods_exist(client, pods={"new-master-0"})
                for inherited, state in list(zip(jobs, chosen, strict=True))[1:]:
                    for pod in state.last_pods(inherited.name):
                        await kubelet.perform(f"{TEAM}/{pod}", FinishPod(0))
                    await until(client, inherited, "Succeeded")
            kubedl_inherited_jobs.write_manifests(old_manifests)
            await roll_back(client, shell, running=jobs[0], before=before)
    finally:
        await client.close()


async def roll_back(client: Client, shell: Shell, *, running: InheritedJob, before: dict[str, JsonObject]) -> None:
    """Check that a running job has its old status and objects, and that no operator of dlop is left."""
    for line in ROLL_BACK:
        await shell.run(line)
    assert (await client.get(running.resource, running.name, namespace=TEAM))["status"] == running.status
    now = await owned_objects(client, TEAM)
    assert {key: body for key, body in before.items() if f"/{running.name}-" in key}.items() <= now.items()
    assert (await client.list(DEPLOYMENTS, namespace="dlop-system"))["items"] == []
    deployment = await client.get(DEPLOYMENTS, kubedl_inherited_jobs.NAME, namespace=kubedl_inherited_jobs.NAMESPACE)
    assert deployment["spec"]["replicas"] == 1
