"""The page of the README for those who come from Kubeflow's operator: its steps, line by line, on a cluster as that operator leaves it."""

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

from dlop.api.crd import definition
from dlop.deploy.apply import DEPLOYMENTS
from dlop.deploy.deployment import DeployOptions
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.client import Client
from dlop.kube.errors import ServerError
from dlop.kube.http.transport import connect
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import Kubelet
from dlop.testing.script import Script
from tests.cluster.test_rights import service_account_kubeconfig
from tests.frameworks import old_cluster
from tests.frameworks.golden_differences import ALLOWED
from tests.frameworks.golden_kubelet import Ended
from tests.frameworks.kubeflow_jobs import job, true_conditions
from tests.frameworks.old_operator import ALL_KINDS, LeftJob, belongings, leave, moments

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "README.md").read_text().partition("\n## Coming from Kubeflow's operator\n")[2].partition("\n## ")[0]
THERE, BACK = (re.findall(r"^(?:kubectl|dlop) .*$", block, re.MULTILINE) for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
"""The lines that lead from one operator to the other, and those that lead back."""
TEAM = "team"
PATIENCE_SECONDS = 120.0
TOLD = {
    "own labels": "labels and annotations that begin with `dlop.dev/`",
    "own annotations": "labels and annotations that begin with `dlop.dev/`",
    "own record": "`status.dlop`",
    "no init container": "PyTorch workers get no `init-pytorch`",
    "addresses before readiness": "publish addresses that are not ready",
    "selector to the end": "keep the `selector` of the workers to the end",
    "launcher waits": "the launcher starts when all workers run",
    "reason said once": "`MPIJobMPIJobFailed`",
}
"""The words of the page on each difference from the recordings."""


def test_the_page_tells_every_difference_from_the_recordings() -> None:
    assert TOLD.keys() == {allowed.name for allowed in ALLOWED}
    assert [words for words in TOLD.values() if words not in PAGE] == []


class Terminal:
    """Where a person types the lines of the page, with the cluster of `KUBECONFIG`."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self._folder = folder
        kubectl = require_assets(("kubectl",))["kubectl"]
        path = os.pathsep.join((str(kubectl.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environment = {**os.environ, "PATH": path, "HOME": str(folder), "KUBECONFIG": str(cluster.kubeconfig_path)}

    async def type(self, line: str) -> str:
        """What the line prints."""
        words = ["bash", "-c", line.replace("IMAGE", "dlop:1").replace("OLD_MANIFESTS", str(self._folder))]
        said = await asyncio.to_thread(
            subprocess.run, words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=self._environment, cwd=ROOT
        )
        assert said.returncode == 0, f"{line}\n{said.stderr}"
        return said.stdout


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[RealCluster]:
    """Definitions are replaced here, so nobody else may need them."""
    with RealCluster.started(controllers=True) as cluster:
        yield cluster


@asynccontextmanager
async def deployed_operator(cluster: RealCluster, client: Client, folder: Path) -> AsyncIterator[None]:
    """The container of the Deployment as a process of this machine, with the rights of its service account and no others."""
    deployment = await client.get(DEPLOYMENTS, "dlop", namespace="dlop-system")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    kubeconfig = await service_account_kubeconfig(cluster, client, DeployOptions(), folder)
    words = [*container["args"], "--kubeconfig", str(kubeconfig), "--leader-election", "true", "--lease-namespace", "dlop-system"]
    environment = {**os.environ, "KUBECONFIG": "", **{each["name"]: each["value"] for each in container.get("env", ())}}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dlop", *words, "--bind-address", "off"), cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
    )
    log = asyncio.create_task(_read(process.stderr))
    try:
        yield
        process.terminate()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0, await log
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        assert "forbidden" not in await log


async def _read(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await stream.read()).decode()


@asynccontextmanager
async def team(client: Client) -> AsyncIterator[Kubelet]:
    """The namespace of the jobs, with a kubelet that does only what it is told."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    script = Script()
    script.when("*").until_told()
    async with Kubelet(client, script, namespace=TEAM, stop_seconds=0.1) as kubelet:
        yield kubelet


async def until(client: Client, left: LeftJob, what: str) -> JsonObject:
    """Wait until this is in the status of a job."""
    status: JsonObject = {}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while what not in (*true_conditions(status), *status):
            await asyncio.sleep(0.1)
            status = (await client.get(left.resource, left.name, namespace=TEAM)).get("status", {})
    return status


async def demand_that_nothing_was_touched(client: Client, jobs: list[LeftJob], before: dict[str, JsonObject]) -> None:
    """Every job has dlop's record, and besides what it had; everything that it owns is as it was."""
    for left in jobs:
        status = await until(client, left, "dlop")
        assert {name: value for name, value in status.items() if name != "dlop"} == left.status
    assert await belongings(client, TEAM) == before


@pytest.mark.timeout(300)
async def test_the_steps_of_the_page_bring_running_jobs_from_one_operator_to_the_other(own_cluster: RealCluster, tmp_path: Path) -> None:
    client, terminal = Client(await connect(own_cluster.kubeconfig_path)), Terminal(own_cluster, tmp_path)
    try:
        await old_cluster.install_definitions(client, ALL_KINDS)
        async with team(client) as kubelet:
            jobs = [await leave(client, kubelet, shape, name=f"old-{number}", namespace=TEAM) for number, shape in enumerate(moments())]
            await old_cluster.install_operator(client, ALL_KINDS)
            before = await belongings(client, TEAM)
            with pytest.raises(ServerError, match="failed calling webhook"):
                await client.create(PyTorchJob.job_type.resource, job(PyTorchJob, name="new"), namespace=TEAM)
            said = [await terminal.type(step) for step in THERE]
            assert [left.name for left in jobs if f" {left.name} " not in said[-1]] == []
            async with deployed_operator(own_cluster, client, tmp_path):
                await demand_that_nothing_was_touched(client, jobs, before)
                await client.create(PyTorchJob.job_type.resource, job(PyTorchJob, name="new"), namespace=TEAM)
                await until_there(client, pods={"new-master-0", "new-worker-0"})
                await run_to_the_end(client, kubelet, jobs[1:])
            await go_back(client, terminal, tmp_path, running=jobs[0], before=before)
            await go_there_with_kubectl_alone(client, terminal)
    finally:
        await client.close()


async def go_back(client: Client, terminal: Terminal, folder: Path, *, running: LeftJob, before: dict[str, JsonObject]) -> None:
    """A job that still runs is what it was, and nothing of dlop is left that could do anything to it."""
    old_cluster.write_manifests(folder, ALL_KINDS)
    for step in BACK:
        await terminal.type(step)
    assert (await client.get(running.resource, running.name, namespace=TEAM))["status"] == running.status
    now = await belongings(client, TEAM)
    assert {key: body for key, body in before.items() if f"/{running.name}-" in key}.items() <= now.items()
    assert (await client.list(DEPLOYMENTS, namespace="dlop-system"))["items"] == []
    assert (await client.get(DEPLOYMENTS, old_cluster.NAME, namespace=old_cluster.NAMESPACE))["spec"]["replicas"] == 1


async def go_there_with_kubectl_alone(client: Client, terminal: Terminal) -> None:
    (line,) = re.findall(r"`(kubectl apply [^`]+ manifests/kubeflow)`", PAGE)
    await terminal.type(line)
    found, wanted = await client.get(CUSTOM_RESOURCE_DEFINITIONS, PyTorchJob.job_type.resource.qualified_name), definition(PyTorchJob)
    status, wanted_status = (each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] for each in (found, wanted))
    assert status == wanted_status
    assert await client.get(DEPLOYMENTS, "dlop", namespace="dlop-system")


async def run_to_the_end(client: Client, kubelet: Kubelet, jobs: list[LeftJob]) -> None:
    for left in jobs:
        for pod in left.pods:
            await kubelet.perform(f"{TEAM}/{pod}", Ended(0))
        await until(client, left, "Succeeded")
    now = {body["metadata"]["name"]: body["metadata"]["uid"] for body in (await client.list(PODS, namespace=TEAM))["items"]}
    assert [name for left in jobs for name, uid in left.pods.items() if now.get(name, uid) != uid] == []


async def until_there(client: Client, *, pods: set[str]) -> None:
    missing = pods
    async with asyncio.timeout(PATIENCE_SECONDS):
        while missing:
            missing = pods - {body["metadata"]["name"] for body in (await client.list(PODS, namespace=TEAM))["items"]}
            await asyncio.sleep(0.1)
