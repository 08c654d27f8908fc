"""The commands install, uninstall, deploy and undeploy on the embedded and on the real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.api.crd import build_crd
from dlop.cli.main import main
from dlop.deploy.apply import DEPLOYMENTS
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, ROLE_BINDINGS, ROLES
from dlop.kube.types import JsonObject
from tests.kinds_for_crds import Plain

FRAMEWORK = ("--framework", "tests.kinds_for_crds:Plain", "--kinds", "RingJob")
CRD_NAME = "ringjobs.crds.dlop.dev"
JOB: JsonObject = {
    "apiVersion": "crds.dlop.dev/v1",
    "kind": "RingJob",
    "metadata": {"name": "job"},
    "spec": {"replicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}}},
}


@dataclass(frozen=True)
class Cluster:
    """A client and a kubeconfig of the same cluster."""

    client: Client
    kubeconfig: Path

    async def dlop(self, command: str, *arguments: str) -> int:
        return await asyncio.to_thread(main, [command, "--kubeconfig", str(self.kubeconfig), *FRAMEWORK, *arguments])

    async def has_crd(self) -> bool:
        crds = await self.client.list(CUSTOM_RESOURCE_DEFINITIONS)
        return CRD_NAME in {crd["metadata"]["name"] for crd in crds["items"]}


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[RealCluster]:
    """A separate cluster, because these tests delete CRDs."""
    with RealCluster.started() as cluster:
        yield cluster


@asynccontextmanager
async def connect_cluster(kubeconfig: Path) -> AsyncIterator[Cluster]:
    client = Client(await connect(kubeconfig))
    try:
        yield Cluster(client, kubeconfig)
    finally:
        await client.close()


@pytest.fixture
async def real(own_cluster: RealCluster) -> AsyncIterator[Cluster]:
    async with connect_cluster(own_cluster.kubeconfig_path) as cluster:
        yield cluster


@pytest.fixture(params=["embedded", "real"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    if request.param == "real":
        async with connect_cluster(request.getfixturevalue("own_cluster").kubeconfig_path) as connected:
            yield connected
    else:
        async with EmbeddedCluster() as embedded:
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(json.dumps((await embedded.serve()).kubeconfig()))
            async with connect_cluster(kubeconfig) as connected:
                yield connected


async def test_crds_are_installed_reported_and_removed(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert await cluster.dlop("install") == 0
    assert await cluster.has_crd()
    assert await cluster.dlop("install") == 0
    assert await cluster.dlop("uninstall") == 0
    assert not await cluster.has_crd()
    assert await cluster.dlop("uninstall") == 0
    assert capsys.readouterr().err.splitlines() == [
        f"CustomResourceDefinition {CRD_NAME} {result}" for result in ("created", "unchanged", "deleted", "not found")
    ]


async def test_uninstall_deletes_jobs_only_with_yes(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert await cluster.dlop("install") == 0
    await cluster.client.create(Plain.job_type.resource, JOB, namespace="default")
    assert await cluster.dlop("uninstall") == 1
    assert f"this would delete jobs and their pods: 1 {CRD_NAME}. Nothing was deleted" in capsys.readouterr().err
    assert await cluster.has_crd()
    assert await cluster.dlop("uninstall", "--yes") == 0
    assert not await cluster.has_crd()


async def test_a_crd_of_another_operator_is_skipped_unless_taken_over(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = build_crd(Plain)
    foreign["metadata"]["labels"] = {"app.kubernetes.io/name": "another-operator"}
    await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, foreign)
    for command in ("install", "uninstall"):
        assert await cluster.dlop(command) == 0
        assert capsys.readouterr().err == f"CustomResourceDefinition {CRD_NAME} skipped: it was not installed by dlop\n"
    assert await cluster.dlop("install", "--take-over") == 0
    assert capsys.readouterr().err == f"CustomResourceDefinition {CRD_NAME} configured\n"
    assert await cluster.dlop("uninstall") == 0
    assert not await cluster.has_crd()


async def test_a_crd_that_stores_an_unsupported_version_cannot_be_taken_over(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = build_crd(Plain)
    foreign["metadata"]["labels"] = {"app.kubernetes.io/name": "another-operator"}
    foreign["spec"]["versions"][0]["name"] = "v2beta1"
    await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, foreign)
    try:
        assert await cluster.dlop("install", "--take-over") == 0
        expected = f"CustomResourceDefinition {CRD_NAME} skipped: it stores jobs of version v2beta1, which dlop does not support\n"
        assert capsys.readouterr().err == expected
        stored = await cluster.client.get(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME)
        assert [version["name"] for version in stored["spec"]["versions"]] == ["v2beta1"]
    finally:
        await cluster.client.delete(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME)


async def test_a_terminating_crd_is_waited_for_and_recreated(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    terminating = build_crd(Plain)
    terminating["metadata"] = {"name": CRD_NAME, "finalizers": ["dlop.dev/held"]}
    await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, terminating)
    await cluster.client.delete(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME)
    installing = asyncio.create_task(cluster.dlop("install"))
    await asyncio.wait({installing}, timeout=1)
    assert not installing.done()
    stored = await cluster.client.get(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME)
    others = [finalizer for finalizer in stored["metadata"]["finalizers"] if finalizer != "dlop.dev/held"]
    await cluster.client.patch(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME, {"metadata": {"finalizers": others}})
    assert await installing == 0
    assert capsys.readouterr().err == f"CustomResourceDefinition {CRD_NAME} recreated\n"
    assert (await cluster.client.get(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME))["metadata"]["uid"] != stored["metadata"]["uid"]
    assert await cluster.dlop("uninstall") == 0


async def test_a_missing_kubeconfig_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, ["install", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith(f"dlop install: kubeconfig {tmp_path / 'none'} does not exist")


async def test_the_operator_is_deployed_updated_and_undeployed(real: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert await real.dlop("deploy", "--image", "dlop:1") == 0
    assert await real.dlop("deploy", "--image", "dlop:2") == 0
    stored = await real.client.get(DEPLOYMENTS, "dlop", namespace="dlop-system")
    assert stored["spec"]["template"]["spec"]["containers"][0]["image"] == "dlop:2"
    second = capsys.readouterr().err.splitlines()[-9:]
    assert [line for line in second if line.endswith(" configured")] == ["Deployment dlop in dlop-system configured"]
    assert await real.dlop("undeploy") == 0
    assert (await real.client.list(DEPLOYMENTS, namespace="dlop-system"))["items"] == []
    assert await real.has_crd()


async def test_optional_permissions_are_granted_on_request_and_removed_with_the_operator(real: Cluster) -> None:
    def optional(roles: JsonObject) -> list[str]:
        return sorted(role["metadata"]["name"] for role in roles["items"] if role["metadata"]["name"] in ("dlop-mpi", "dlop-gang"))

    assert await real.dlop("deploy") == 0
    assert optional(await real.client.list(CLUSTER_ROLES)) == []
    assert await real.dlop("deploy", "--with", "gang") == 0
    assert optional(await real.client.list(CLUSTER_ROLES)) == ["dlop-gang"]
    assert await real.dlop("undeploy") == 0
    assert optional(await real.client.list(CLUSTER_ROLES)) == []


async def test_permissions_that_are_limited_to_a_namespace_are_removed_with_the_operator(real: Cluster) -> None:
    async def granted() -> set[str]:
        names = set()
        for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
            names |= {f"{resource.kind} {item['metadata']['name']}" for item in (await real.client.list(resource))["items"]}
        return {name for name in names if "dlop-gang" in name}

    assert await real.dlop("deploy", "--with", "gang:default") == 0
    assert await granted() == {
        "ClusterRole dlop-gang",
        "RoleBinding dlop-gang",
        "ClusterRole dlop-gang-read",
        "ClusterRoleBinding dlop-gang-read",
    }
    assert await real.dlop("undeploy") == 0
    assert await granted() == set()


async def test_an_operator_for_listed_namespaces_has_no_cluster_roles(real: Cluster) -> None:
    for name in ("team-a", "team-b"):
        await real.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    assert await real.dlop("deploy", "--namespace", "team-a", "--watch-namespace", "team-a", "--watch-namespace", "team-b") == 0
    roles = (await real.client.list(ROLES))["items"]
    own = {(role["metadata"]["namespace"], role["metadata"]["name"]) for role in roles if role["metadata"]["name"].startswith("dlop")}
    assert own == {("team-a", "dlop"), ("team-b", "dlop"), ("team-a", "dlop-leader-election")}
    cluster_roles = (await real.client.list(CLUSTER_ROLES))["items"]
    assert not [role for role in cluster_roles if role["metadata"]["name"].startswith("dlop")]
    # An existing namespace keeps its pod security labels.
    assert "pod-security.kubernetes.io/enforce" not in (await real.client.get(NAMESPACES, "team-a"))["metadata"]["labels"]
    assert await real.dlop("undeploy", "--namespace", "team-a", "--watch-namespace", "team-a", "--watch-namespace", "team-b") == 0
