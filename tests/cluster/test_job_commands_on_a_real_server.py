"""The commands for jobs on the real API server."""

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

from dlop.api.crd import build_crds
from dlop.cli.main import main
from dlop.deploy.apply import apply
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject
from tests.sim.crew_job import FRAMEWORK, KINDS, CrewJob, crew, mpba_mxjob, mxjob


@dataclass(frozen=True)
class JobCommands:
    client: Client
    kubeconfig: Path
    namespace: str
    folder: Path
    capture: pytest.CaptureFixture[str]

    async def dlop(self, command: str, *arguments: str, code: int = 0) -> tuple[str, str]:
        self.capture.readouterr()
        connection = ("--kubeconfig", str(self.kubeconfig), "-n", self.namespace)
        assert await asyncio.to_thread(main, [command, *connection, *FRAMEWORK, *arguments]) == code
        output = self.capture.readouterr()
        return output.out, output.err

    def line_of(self, text: str) -> int:
        lines = (self.folder / "jobs.yaml").read_text().splitlines()
        return [line.strip() for line in lines].index(text) + 1

    def file(self, *manifests: JsonObject) -> str:
        path = self.folder / "jobs.yaml"
        path.write_text(yaml.safe_dump_all(manifests, sort_keys=False))
        return str(path)


@pytest.fixture
async def commands(real_cluster: RealCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[JobCommands]:
    client = Client(await connect(real_cluster.kubeconfig_path))
    namespace = f"jobs-{uuid.uuid4().hex[:8]}"
    try:
        await apply(client, build_crds(KINDS), report=lambda _: None)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        yield JobCommands(client, real_cluster.kubeconfig_path, namespace, tmp_path, capsys)
        await client.delete(NAMESPACES, namespace)
    finally:
        await client.close()


async def test_jobs_of_every_spec_format_are_submitted_listed_changed_and_deleted(commands: JobCommands) -> None:
    settings: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    _, errors = await commands.dlop("submit", commands.file(settings, crew("crew"), mxjob("mx"), mpba_mxjob("mx")))
    assert [line.partition(" in ")[0] for line in errors.splitlines()] == ["ConfigMap settings", "CrewJob crew", "MXJob mx", "MXJob mx"]

    for name in ("crew", "mxjobs.fioravanzo.org/mx", "mxjobs.mpba.fbk.eu/mx"):
        assert (await commands.dlop("scale", name, "worker=5"))[1].endswith("scaled to worker 5\n")
    views = json.loads((await commands.dlop("get", "-o", "json"))[0])
    assert {(view["reference"], view["roles"][-1]["desired"]) for view in views} == {
        ("crewjobs.crew.dlop.dev/crew", 5),
        ("mxjobs.fioravanzo.org/mx", 5),
        ("mxjobs.mpba.fbk.eu/mx", 5),
    }

    for name in ("crew", "mxjobs.fioravanzo.org/mx"):
        assert (await commands.dlop("suspend", name))[1].endswith(" suspended\n")
        assert (await commands.dlop("suspend", name))[1].endswith(" is already suspended\n")
        assert (await commands.dlop("resume", name))[1].endswith(" resumed\n")
    assert "has no field for it" in (await commands.dlop("suspend", "mxjobs.mpba.fbk.eu/mx", code=1))[1]
    assert "no operator has reconciled the job yet" in (await commands.dlop("describe", "crew"))[0]

    deleted = await commands.dlop("delete", "crew", "mxjobs.fioravanzo.org/mx", "mxjobs.mpba.fbk.eu/mx", "--wait", "--timeout", "30s")
    assert deleted[1].count("deleted") == 3
    assert (await commands.dlop("get")) == ("", f"no jobs found in the namespace {commands.namespace}\n")


async def test_errors_of_the_real_server_are_reported_with_line_numbers(commands: JobCommands) -> None:
    invalid = crew("crew")
    invalid["spec"]["replicaSpecs"]["Worker"]["replica"] = 3
    file = commands.file(invalid)
    line = commands.line_of("replica: 3")
    _, errors = await commands.dlop("submit", file, code=2)
    assert f"jobs.yaml:{line}: spec.replicaSpecs.Worker.replica: unknown field" in errors
    settings: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "UPPER"}}
    assert "jobs.yaml:4: metadata.name: " in (await commands.dlop("submit", commands.file(settings), code=2))[1]
    await commands.dlop("submit", commands.file(crew("crew")))
    assert "CrewJob crew already exists in the namespace" in (await commands.dlop("submit", commands.file(crew("crew")), code=1))[1]


async def test_wait_returns_when_the_status_changes(commands: JobCommands) -> None:
    await commands.dlop("submit", commands.file(crew("crew")))
    waiting = asyncio.create_task(commands.dlop("wait", "crew", "--timeout", "60s"))
    status = {"dlop": {"phase": "Succeeded", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:30Z"}}
    resource = CrewJob.job_type.resource
    await commands.client.patch(resource, "crew", {"status": status}, namespace=commands.namespace, subresource="status")
    assert (await waiting)[1] == "CrewJob crew: Succeeded after 1m30s.\n"


async def test_a_conflicting_change_is_retried(commands: JobCommands) -> None:
    await commands.dlop("submit", commands.file(mpba_mxjob("mx")))
    roles = ("worker=4", "server=3")
    await asyncio.gather(
        *(
            asyncio.to_thread(main, ["scale", "--kubeconfig", str(commands.kubeconfig), "-n", commands.namespace, "mx", role])
            for role in roles
        )
    )
    (view,) = json.loads((await commands.dlop("get", "-o", "json"))[0])
    assert {role["name"]: role["desired"] for role in view["roles"]} == {"SCHEDULER": 1, "SERVER": 3, "WORKER": 4}
