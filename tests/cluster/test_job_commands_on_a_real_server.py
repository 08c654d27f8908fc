"""The commands about jobs, on the real API server."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from real_cluster import RealCluster

from dlop.api.crd import definitions
from dlop.cli.main import main
from dlop.deploy.apply import apply
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject
from tests.sim.job_world import FRAMEWORK, KINDS, CrewJob, crew, listed, mxjob


@dataclass(frozen=True)
class Place:
    client: Client
    kubeconfig: Path
    namespace: str
    folder: Path
    capture: pytest.CaptureFixture[str]

    async def dlop(self, command: str, *words: str, code: int = 0) -> tuple[str, str]:
        self.capture.readouterr()
        place = ("--kubeconfig", str(self.kubeconfig), "-n", self.namespace)
        assert await asyncio.to_thread(main, [command, *place, *FRAMEWORK, *words]) == code
        printed = self.capture.readouterr()
        return printed.out, printed.err

    def line_of(self, text: str) -> int:
        lines = (self.folder / "jobs.yaml").read_text().splitlines()
        return [line.strip() for line in lines].index(text) + 1

    def file(self, *manifests: JsonObject) -> str:
        path = self.folder / "jobs.yaml"
        path.write_text(yaml.safe_dump_all(manifests, sort_keys=False))
        return str(path)


@pytest.fixture
async def place(real_cluster: RealCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Place]:
    client = Client(await connect(real_cluster.kubeconfig_path))
    namespace = f"jobs-{uuid.uuid4().hex[:8]}"
    try:
        await apply(client, definitions(KINDS), say=lambda _: None)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        yield Place(client, real_cluster.kubeconfig_path, namespace, tmp_path, capsys)
        await client.delete(NAMESPACES, namespace)
    finally:
        await client.close()


async def test_jobs_of_every_dialect_are_submitted_shown_changed_and_deleted(place: Place) -> None:
    settings: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    _, said = await place.dlop("submit", place.file(settings, crew("crew"), mxjob("mx"), listed("mx")))
    assert [line.partition(" in ")[0] for line in said.splitlines()] == ["ConfigMap settings", "CrewJob crew", "MXJob mx", "MXJob mx"]

    for name in ("crew", "mxjobs.fioravanzo.org/mx", "mxjobs.mpba.fbk.eu/mx"):
        assert (await place.dlop("scale", name, "worker=5"))[1].endswith("scaled to worker 5\n")
    views = json.loads((await place.dlop("get", "-o", "json"))[0])
    assert {(view["reference"], view["roles"][-1]["wanted"]) for view in views} == {
        ("crewjobs.crew.dlop.dev/crew", 5),
        ("mxjobs.fioravanzo.org/mx", 5),
        ("mxjobs.mpba.fbk.eu/mx", 5),
    }

    for name in ("crew", "mxjobs.fioravanzo.org/mx"):
        assert (await place.dlop("suspend", name))[1].endswith(" suspended\n")
        assert (await place.dlop("suspend", name))[1].endswith(" is suspended already\n")
        assert (await place.dlop("resume", name))[1].endswith(" resumed\n")
    assert "has no room for it" in (await place.dlop("suspend", "mxjobs.mpba.fbk.eu/mx", code=1))[1]
    assert "no operator has looked at it yet" in (await place.dlop("describe", "crew"))[0]

    deleted = await place.dlop("delete", "crew", "mxjobs.fioravanzo.org/mx", "mxjobs.mpba.fbk.eu/mx", "--wait", "--timeout", "30s")
    assert deleted[1].count("deleted") == 3
    assert (await place.dlop("get")) == ("", f"there are no jobs in the namespace {place.namespace}\n")


async def test_what_the_real_server_refuses_is_told_by_line(place: Place) -> None:
    wrong = crew("crew")
    wrong["spec"]["replicaSpecs"]["Worker"]["replica"] = 3
    file = place.file(wrong)
    line = place.line_of("replica: 3")
    _, said = await place.dlop("submit", file, code=2)
    assert f"jobs.yaml:{line}: spec.replicaSpecs.Worker.replica: the kind has no such field" in said
    settings: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "UPPER"}}
    assert "jobs.yaml:4: metadata.name: " in (await place.dlop("submit", place.file(settings), code=2))[1]
    await place.dlop("submit", place.file(crew("crew")))
    assert "there is a CrewJob crew in the namespace" in (await place.dlop("submit", place.file(crew("crew")), code=1))[1]


async def test_waiting_ends_with_the_change_of_the_status(place: Place) -> None:
    await place.dlop("submit", place.file(crew("crew")))
    waiting = asyncio.create_task(place.dlop("wait", "crew", "--timeout", "60s"))
    status = {"dlop": {"phase": "Succeeded", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:30Z"}}
    resource = CrewJob.job_type.resource
    await place.client.patch(resource, "crew", {"status": status}, namespace=place.namespace, subresource="status")
    assert (await waiting)[1] == "CrewJob crew: Succeeded after 1m30s.\n"


async def test_a_change_that_meets_another_one_is_made_anew(place: Place) -> None:
    await place.dlop("submit", place.file(listed("mx")))
    roles = ("worker=4", "server=3")
    await asyncio.gather(
        *(asyncio.to_thread(main, ["scale", "--kubeconfig", str(place.kubeconfig), "-n", place.namespace, "mx", role]) for role in roles)
    )
    (view,) = json.loads((await place.dlop("get", "-o", "json"))[0])
    assert {role["name"]: role["wanted"] for role in view["roles"]} == {"SCHEDULER": 1, "SERVER": 3, "WORKER": 4}
