"""An unmodified kubectl drives a job on a cluster of `dlop local`, from another process, with the kubeconfig that it prints."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kubernetes_build import require_assets

from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.types import JsonObject
from tests.conformance.kubectl import Kubectl
from tests.conformance.support import Api, Server
from tests.local.local_jobs import job, written
from tests.local.local_program import PATIENCE_SECONDS, left_behind, running


@dataclass(frozen=True)
class Terminal:
    """The second terminal."""

    kubectl: Kubectl
    folder: Path

    @asynccontextmanager
    async def listening(self, *words: str) -> AsyncIterator[asyncio.StreamReader]:
        """What a command goes on to print."""
        async with self.kubectl.running(*words) as process:
            assert process.stdout is not None
            yield process.stdout


@asynccontextmanager
async def standing_cluster(folder: Path, *words: str) -> AsyncIterator[Terminal]:
    """`dlop local` without a job, and a second terminal."""
    program = require_assets(("kubectl",))["kubectl"]
    async with running(*words, folder=folder) as dlop:
        kubeconfig = await dlop.kubeconfig()
        assert kubeconfig.stat().st_mode & 0o777 == 0o600
        client = Client(await connect(kubeconfig))
        try:
            server = Server("laptop", client, compact=_nothing, kubeconfig=kubeconfig)
            yield Terminal(Kubectl(program, Api(server, "default"), folder), folder)
        finally:
            await client.close()
        ended = await dlop.ends(signal.SIGINT)
        assert (ended.code, ended.err) == (130, "")
    assert left_behind(folder) == []


async def _nothing() -> None:
    """There is no history to forget."""


async def lines_until(stream: asyncio.StreamReader, *words: str) -> str:
    """What comes up to and with a line that has all these words."""
    said = ""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            line = (await stream.readline()).decode()
            assert line, f"it has ended without {words}: {said}"
            said += line
            if all(word in line for word in words):
                return said


async def test_kubectl_drives_a_job_from_apply_to_delete(tmp_path: Path) -> None:
    # The job goes on until a file appears that is put there through `exec`.
    script = "echo begun; until test -e /tmp/go; do sleep 0.05; done; echo done"
    file = written(tmp_path, job("driven", scheduler=script, worker="trap exit TERM; sleep 1000 & wait"))
    async with standing_cluster(tmp_path) as terminal:
        kubectl = terminal.kubectl
        watching = ("get", "--watch")
        async with terminal.listening(*watching, "pods") as pods, terminal.listening(*watching, "mxjobs.fioravanzo.org") as jobs:
            assert "mxjob.fioravanzo.org/driven created" in (await kubectl("apply", "-f", file)).out
            await lines_until(pods, "driven-scheduler", "Running")
            await lines_until(jobs, "driven", "Running")
            names = (await kubectl("get", "pods", "-o", "name")).out.split()
            scheduler = next(name for name in names if "scheduler" in name)
            async with terminal.listening("logs", "--follow", scheduler) as log:
                await lines_until(log, "begun")
                said = await kubectl("exec", scheduler, "--", "sh", "-c", "touch /tmp/go; hostname; exit 0")
                assert said.out.strip() == scheduler.removeprefix("pod/")
                assert "done" in await lines_until(log, "done")
                assert await asyncio.wait_for(log.read(), PATIENCE_SECONDS) == b""
            await lines_until(pods, "driven-scheduler", "Completed")
            await lines_until(jobs, "driven", "Succeeded")
        described = (await kubectl("describe", "mxjobs.fioravanzo.org", "driven")).out
        assert "CreatedPods" in described
        of_pod = (await kubectl("describe", scheduler)).out
        assert "Successfully assigned default/driven-scheduler" in of_pod
        assert "Exit Code:    0" in of_pod
        assert "Scheduled" in (await kubectl("get", "events")).out
        assert 'mxjob.fioravanzo.org "driven" deleted' in (await kubectl("delete", "-f", file)).out
        await kubectl("wait", "--for=delete", *names, "--timeout=30s")
        assert (await kubectl("get", "pods")).out == ""


async def test_kubectl_sees_a_deleted_pod_come_back(tmp_path: Path) -> None:
    file = written(tmp_path, job("stubborn", scheduler="echo here; sleep 1000"))
    async with standing_cluster(tmp_path) as terminal:
        kubectl = terminal.kubectl
        async with terminal.listening("get", "pods", "--watch") as pods:
            await kubectl("apply", "-f", file)
            await lines_until(pods, "stubborn-scheduler", "Running")
            (name,) = (await kubectl("get", "pods", "-o", "name")).out.split()
            before = (await kubectl("get", name, "-o", "jsonpath={.metadata.uid}")).out
            await kubectl("delete", name, "--grace-period=1")
            await lines_until(pods, "stubborn-scheduler", "Pending")
            await lines_until(pods, "stubborn-scheduler", "Running")
        after = (await kubectl("get", name, "-o", "jsonpath={.metadata.uid}")).out
        assert after not in ("", before)


async def test_a_wrong_job_is_refused_by_name_of_its_field(tmp_path: Path) -> None:
    wrong = job("wrong")
    wrong["spec"]["replicaSpecs"][0]["replicas"] = -1
    async with standing_cluster(tmp_path) as terminal:
        assert "spec.replicaSpecs[0].replicas" in await terminal.kubectl.fails("apply", "-f", written(tmp_path, wrong))


async def test_what_is_no_job_runs_on_a_cluster_that_stays(tmp_path: Path) -> None:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", "echo hello; sleep 1000"]}
    pod: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, "spec": {"containers": [container]}}
    async with standing_cluster(tmp_path, written(tmp_path, pod)) as terminal:
        async with terminal.listening("get", "pods", "--watch") as pods:
            await lines_until(pods, "alone", "Running")
        assert (await terminal.kubectl("logs", "alone")).out == "hello\n"
