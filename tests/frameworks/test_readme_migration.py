"""The migration guide `manifests/kubeflow/README.md`: its commands run, line by line, on a cluster with Kubeflow's operator."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kubernetes_build import require_assets
from real_cluster import RealCluster

from dlop.api.crd import build_crd
from dlop.deploy.apply import DEPLOYMENTS
from dlop.deploy.deployment import DeployOptions
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.client import Client
from dlop.kube.errors import ServerError
from dlop.kube.http.transport import connect
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.script import Script
from tests.cluster.deployed_operator import service_account_kubeconfig
from tests.frameworks import kubeflow_installation
from tests.frameworks.golden_allowed_differences import ALLOWED_DIFFERENCES
from tests.frameworks.golden_pod_steps import FinishPod
from tests.frameworks.kubeflow_jobs import job, true_conditions
from tests.frameworks.takeover_jobs import ALL_KINDS, InheritedJob, create_inherited_job, owned_objects, running_states

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "manifests" / "kubeflow" / "README.md").read_text()
MIGRATE, ROLL_BACK = (
    re.findall(r"^(?:kubectl|dlop) .*$", block, re.MULTILINE) for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
)
"""The commands of the migration, and those of the rollback."""
TEAM = "team"
TIMEOUT_SECONDS = 120.0
OPTIONAL = r"marsjobs\.training\.kubedl\.io"
README_TEXTS = {
    "own labels": "labels and annotations with the prefix `dlop.dev/`",
    "own annotations": "labels and annotations with the prefix `dlop.dev/`",
    "own record": "`status.dlop`",
    "no init container": "PyTorch workers have no `init-pytorch`",
    "not-ready addresses": "publish addresses that are not ready",
    "selector kept": "keep the `selector` of the workers until the end",
    "pinned image": "the image `kubectl-delivery` has a fixed tag",
    "launcher waits": "the launcher starts when all workers run",
    "kind once in reason": "`MPIJobMPIJobFailed`",
}
"""Text of the README on each allowed difference."""


def test_the_readme_lists_every_allowed_difference() -> None:
    assert README_TEXTS.keys() == {allowed.name for allowed in ALLOWED_DIFFERENCES}
    assert [text for text in README_TEXTS.values() if text not in PAGE] == []


class Shell:
    """Runs commands of the README with `KUBECONFIG` set to the cluster, and with the manifests of the old operator at a path."""

    def __init__(self, cluster: RealCluster, folder: Path, *, old_manifests: Path | None = None) -> None:
        self._old_manifests = old_manifests or folder
        kubectl = require_assets(("kubectl",))["kubectl"]
        path = os.pathsep.join((str(kubectl.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environment = {**os.environ, "PATH": path, "HOME": str(folder), "KUBECONFIG": str(cluster.kubeconfig_path)}

    async def run(self, line: str) -> str:
        """Returns the standard output."""
        words = ["bash", "-c", line.replace("IMAGE", "dlop:1").replace("OLD_MANIFESTS", str(self._old_manifests))]
        completed = await asyncio.to_thread(
            subprocess.run, words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=self._environment, cwd=ROOT
        )
        assert completed.returncode == 0, f"{line}\n{completed.stderr}"
        return completed.stdout


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[RealCluster]:
    """A cluster of its own, because the CRDs are replaced."""
    with RealCluster.started(controllers=True) as cluster:
        yield cluster


@asynccontextmanager
async def deployed_operator(cluster: RealCluster, client: Client, folder: Path, *, optional: str = OPTIONAL) -> AsyncIterator[None]:
    """Runs the container of the Deployment as a local process with the permissions of its service account.

    Its log must not be about missing permissions, except for those of kinds that match `optional`, which only some jobs need.
    """
    deployment = await client.get(DEPLOYMENTS, "dlop", namespace="dlop-system")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    kubeconfig = await service_account_kubeconfig(cluster, client, DeployOptions(), folder)
    words = [*container["args"], "--kubeconfig", str(kubeconfig), "--leader-election", "true", "--lease-namespace", "dlop-system"]
    environment = {**os.environ, "KUBECONFIG": "", **{each["name"]: each["value"] for each in container["env"]}}
    addresses = ["--health-probe-bind-address", "off", "--metrics-bind-address", "off"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dlop", *words, *addresses), cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
    )
    log = asyncio.create_task(_read(process.stderr))
    try:
        yield
        process.terminate()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await process.wait() == 0, await log
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        assert [line for line in (await log).splitlines() if "forbidden" in line and not _is_optional(line, optional)] == []


def _is_optional(line: str, kinds: str) -> bool:
    return "jobs that need them are blocked" in line and re.search(kinds, line) is not None


async def _read(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await stream.read()).decode()


@asynccontextmanager
async def team(client: Client) -> AsyncIterator[ScriptedKubelet]:
    """The namespace of the jobs, with a kubelet that acts on request only."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    script = Script()
    script.when("*").until_released()
    async with ScriptedKubelet(client, script, namespace=TEAM, stop_seconds=0.1) as kubelet:
        yield kubelet


async def until(client: Client, job: InheritedJob, name: str) -> JsonObject:
    """Wait until the job has a true condition or a status field with this name."""
    status: JsonObject = {}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while name not in (*true_conditions(status), *status):
            await asyncio.sleep(0.1)
            status = (await client.get(job.resource, job.name, namespace=TEAM)).get("status", {})
    return status


async def check_untouched(client: Client, jobs: list[InheritedJob], before: dict[str, JsonObject]) -> None:
    """Check that each job got dlop's record and keeps the rest of its status, and that its objects are unchanged."""
    for inherited in jobs:
        status = await until(client, inherited, "dlop")
        assert {name: value for name, value in status.items() if name != "dlop"} == inherited.status
    assert await owned_objects(client, TEAM) == before


@pytest.mark.timeout(300)
async def test_the_commands_of_the_readme_migrate_running_jobs_and_roll_back(own_cluster: RealCluster, tmp_path: Path) -> None:
    client, shell = Client(await connect(own_cluster.kubeconfig_path)), Shell(own_cluster, tmp_path)
    try:
        await kubeflow_installation.install_crds(client, ALL_KINDS)
        async with team(client) as kubelet:
            jobs = [
                await create_inherited_job(client, kubelet, state, name=f"old-{number}", namespace=TEAM)
                for number, state in enumerate(running_states())
            ]
            await kubeflow_installation.install_operator(client, ALL_KINDS)
            before = await owned_objects(client, TEAM)
            with pytest.raises(ServerError, match="failed calling webhook"):
                await client.create(PyTorchJob.job_type.resource, job(PyTorchJob, name="new"), namespace=TEAM)
            outputs = [await shell.run(line) for line in MIGRATE]
            assert [each.name for each in jobs if f" {each.name} " not in outputs[-1]] == []
            async with deployed_operator(own_cluster, client, tmp_path):
                await check_untouched(client, jobs, before)
                await client.create(PyTorchJob.job_type.resource, job(PyTorchJob, name="new"), namespace=TEAM)
                await until_pods_exist(client, pods={"new-master-0", "new-worker-0"})
                await finish_jobs(client, kubelet, jobs[1:])
            await roll_back(client, shell, tmp_path, running=jobs[0], before=before)
            await migrate_with_kubectl(client, shell)
    finally:
        await client.close()


async def roll_back(client: Client, shell: Shell, folder: Path, *, running: InheritedJob, before: dict[str, JsonObject]) -> None:
    """Check that a running job has its old status and objects, and that no operator of dlop is left."""
    kubeflow_installation.write_manifests(folder, ALL_KINDS)
    for line in ROLL_BACK:
        await shell.run(line)
    assert (await client.get(running.resource, running.name, namespace=TEAM))["status"] == running.status
    now = await owned_objects(client, TEAM)
    assert {key: body for key, body in before.items() if f"/{running.name}-" in key}.items() <= now.items()
    assert (await client.list(DEPLOYMENTS, namespace="dlop-system"))["items"] == []
    assert (await client.get(DEPLOYMENTS, kubeflow_installation.NAME, namespace=kubeflow_installation.NAMESPACE))["spec"]["replicas"] == 1


async def migrate_with_kubectl(client: Client, shell: Shell) -> None:
    (line,) = re.findall(r"`(kubectl apply [^`]+ manifests/kubeflow)`", PAGE)
    await shell.run(line)
    installed, expected = await client.get(CUSTOM_RESOURCE_DEFINITIONS, PyTorchJob.job_type.resource.qualified_name), build_crd(PyTorchJob)
    statuses = [crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] for crd in (installed, expected)]
    assert statuses[0] == statuses[1]
    assert await client.get(DEPLOYMENTS, "dlop", namespace="dlop-system")


async def finish_jobs(client: Client, kubelet: ScriptedKubelet, jobs: list[InheritedJob]) -> None:
    for inherited in jobs:
        for pod in inherited.pods:
            await kubelet.perform(f"{TEAM}/{pod}", FinishPod(0))
        await until(client, inherited, "Succeeded")
    now = {body["metadata"]["name"]: body["metadata"]["uid"] for body in (await client.list(PODS, namespace=TEAM))["items"]}
    assert [name for inherited in jobs for name, uid in inherited.pods.items() if now.get(name, uid) != uid] == []


async def until_pods_exist(client: Client, *, pods: set[str]) -> None:
    missing = pods
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while missing:
            missing = pods - {body["metadata"]["name"] for body in (await client.list(PODS, namespace=TEAM))["items"]}
            await asyncio.sleep(0.1)
