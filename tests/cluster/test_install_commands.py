"""The commands that change a cluster, on the embedded and on the real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.api.crd import definition
from dlop.cli.main import main
from dlop.deploy.apply import DEPLOYMENTS
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import CLUSTER_ROLES, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, ROLES
from dlop.kube.types import JsonObject
from tests.kinds_for_crds import Plain

FRAMEWORK = ("--framework", "tests.kinds_for_crds:Plain", "--kinds", "RingJob")
DEFINITION = "ringjobs.crds.dlop.dev"
JOB: JsonObject = {
    "apiVersion": "crds.dlop.dev/v1",
    "kind": "RingJob",
    "metadata": {"name": "job"},
    "spec": {"replicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}}},
}


@dataclass(frozen=True)
class Place:
    """A cluster, and how a command reaches it."""

    client: Client
    kubeconfig: Path

    async def dlop(self, command: str, *words: str) -> int:
        return await asyncio.to_thread(main, [command, "--kubeconfig", str(self.kubeconfig), *FRAMEWORK, *words])

    async def has_definition(self) -> bool:
        found = await self.client.list(CUSTOM_RESOURCE_DEFINITIONS)
        return DEFINITION in {each["metadata"]["name"] for each in found["items"]}


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[RealCluster]:
    """Definitions are deleted here, so nobody else may need them."""
    with RealCluster.started() as cluster:
        yield cluster


@asynccontextmanager
async def reached(kubeconfig: Path) -> AsyncIterator[Place]:
    client = Client(await connect(kubeconfig))
    try:
        yield Place(client, kubeconfig)
    finally:
        await client.close()


@pytest.fixture
async def real(own_cluster: RealCluster) -> AsyncIterator[Place]:
    async with reached(own_cluster.kubeconfig_path) as place:
        yield place


@pytest.fixture(params=["embedded", "real"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "real":
        async with reached(request.getfixturevalue("own_cluster").kubeconfig_path) as found:
            yield found
    else:
        async with EmbeddedCluster() as cluster:
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(json.dumps((await cluster.serve()).kubeconfig()))
            async with reached(kubeconfig) as found:
                yield found


async def test_definitions_are_installed_told_of_and_removed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert await place.dlop("install") == 0
    assert await place.has_definition()
    assert await place.dlop("install") == 0
    assert await place.dlop("uninstall") == 0
    assert not await place.has_definition()
    assert await place.dlop("uninstall") == 0
    assert capsys.readouterr().err.splitlines() == [
        f"CustomResourceDefinition {DEFINITION} {what}" for what in ("created", "unchanged", "deleted", "was not there")
    ]


async def test_jobs_are_not_deleted_unless_that_is_what_is_meant(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert await place.dlop("install") == 0
    await place.client.create(Plain.job_type.resource, JOB, namespace="default")
    assert await place.dlop("uninstall") == 1
    assert f"this would delete jobs with all their pods: 1 {DEFINITION}. Nothing was deleted" in capsys.readouterr().err
    assert await place.has_definition()
    assert await place.dlop("uninstall", "--yes") == 0
    assert not await place.has_definition()


async def test_a_definition_of_somebody_else_is_left_alone(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = definition(Plain)
    foreign["metadata"]["labels"] = {"app.kubernetes.io/name": "another-operator"}
    await place.client.create(CUSTOM_RESOURCE_DEFINITIONS, foreign)
    for command in ("install", "uninstall"):
        assert await place.dlop(command) == 0
        assert capsys.readouterr().err == f"CustomResourceDefinition {DEFINITION} is somebody else's, and was left as it is\n"
    assert await place.dlop("install", "--take-over") == 0
    assert capsys.readouterr().err == f"CustomResourceDefinition {DEFINITION} changed\n"
    assert await place.dlop("uninstall") == 0
    assert not await place.has_definition()


async def test_a_definition_with_jobs_of_another_version_cannot_be_taken_over(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = definition(Plain)
    foreign["metadata"]["labels"] = {"app.kubernetes.io/name": "another-operator"}
    foreign["spec"]["versions"][0]["name"] = "v2beta1"
    await place.client.create(CUSTOM_RESOURCE_DEFINITIONS, foreign)
    try:
        assert await place.dlop("install", "--take-over") == 0
        told = f"CustomResourceDefinition {DEFINITION} is for jobs of version v2beta1, which nobody here knows, and was left as it is\n"
        assert capsys.readouterr().err == told
        found = await place.client.get(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
        assert [version["name"] for version in found["spec"]["versions"]] == ["v2beta1"]
    finally:
        await place.client.delete(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)


async def test_a_definition_that_is_on_its_way_out_is_waited_for_and_made_anew(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    leaving = definition(Plain)
    leaving["metadata"] = {"name": DEFINITION, "finalizers": ["dlop.dev/held"]}
    await place.client.create(CUSTOM_RESOURCE_DEFINITIONS, leaving)
    await place.client.delete(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
    installing = asyncio.create_task(place.dlop("install"))
    await asyncio.wait({installing}, timeout=1)
    assert not installing.done()
    found = await place.client.get(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
    others = [finalizer for finalizer in found["metadata"]["finalizers"] if finalizer != "dlop.dev/held"]
    await place.client.patch(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION, {"metadata": {"finalizers": others}})
    assert await installing == 0
    assert capsys.readouterr().err == f"CustomResourceDefinition {DEFINITION} created anew\n"
    assert (await place.client.get(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION))["metadata"]["uid"] != found["metadata"]["uid"]
    assert await place.dlop("uninstall") == 0


async def test_a_cluster_that_is_not_there_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, ["install", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith(f"dlop install: kubeconfig {tmp_path / 'none'} does not exist")


async def test_the_operator_is_deployed_changed_and_taken_away(real: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert await real.dlop("deploy", "--image", "dlop:1") == 0
    assert await real.dlop("deploy", "--image", "dlop:2") == 0
    found = await real.client.get(DEPLOYMENTS, "dlop", namespace="dlop-system")
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "dlop:2"
    second = capsys.readouterr().err.splitlines()[-9:]
    assert [line for line in second if line.endswith(" changed")] == ["Deployment dlop in dlop-system changed"]
    assert await real.dlop("undeploy") == 0
    assert (await real.client.list(DEPLOYMENTS, namespace="dlop-system"))["items"] == []
    assert await real.has_definition()


async def test_rights_are_given_when_asked_for_and_go_with_the_operator(real: Place) -> None:
    def optional(roles: JsonObject) -> list[str]:
        return sorted(role["metadata"]["name"] for role in roles["items"] if role["metadata"]["name"] in ("dlop-mpi", "dlop-gang"))

    assert await real.dlop("deploy") == 0
    assert optional(await real.client.list(CLUSTER_ROLES)) == []
    assert await real.dlop("deploy", "--with", "gang") == 0
    assert optional(await real.client.list(CLUSTER_ROLES)) == ["dlop-gang"]
    assert await real.dlop("undeploy") == 0
    assert optional(await real.client.list(CLUSTER_ROLES)) == []


async def test_an_operator_for_named_namespaces_has_no_rights_anywhere_else(real: Place) -> None:
    for name in ("team-a", "team-b"):
        await real.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    assert await real.dlop("deploy", "--namespace", "team-a", "--watch-namespace", "team-a", "--watch-namespace", "team-b") == 0
    roles = (await real.client.list(ROLES))["items"]
    own = {(role["metadata"]["namespace"], role["metadata"]["name"]) for role in roles if role["metadata"]["name"].startswith("dlop")}
    assert own == {("team-a", "dlop"), ("team-b", "dlop"), ("team-a", "dlop-leader-election")}
    cluster_roles = (await real.client.list(CLUSTER_ROLES))["items"]
    assert not [role for role in cluster_roles if role["metadata"]["name"].startswith("dlop")]
    # A namespace that was there keeps its own rules for pods.
    assert "pod-security.kubernetes.io/enforce" not in (await real.client.get(NAMESPACES, "team-a"))["metadata"]["labels"]
    assert await real.dlop("undeploy", "--namespace", "team-a", "--watch-namespace", "team-a", "--watch-namespace", "team-b") == 0
