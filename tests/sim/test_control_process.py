"""The operator as a process of its own: flags, probes, metrics, log lines, SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from dlop.api.crd import definitions
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, PODS
from dlop.kube.types import JsonObject
from tests.frameworks.kubeflow_manifests import manifest
from tests.sim.control_world import DEFINITION, NAMESPACE, RINGS, ring

ROOT = Path(__file__).parents[2]


class Running:
    """The process, and what it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[JsonObject] = []

    async def said(self, text: str) -> JsonObject:
        """Wait for a line with this message."""
        assert self.process.stderr is not None
        while True:
            found = next((line for line in self.lines if text in line["msg"]), None)
            if found is not None:
                return found
            line = await self.process.stderr.readline()
            if not line:
                raise AssertionError(f"the process ended without saying {text!r}: {self.lines}")
            self.lines.append(json.loads(line))


@asynccontextmanager
async def running(*arguments: str, kubeconfig: Path) -> AsyncIterator[Running]:
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "DLOP_LOG_FORMAT": "json", "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", "dlop", "run", "--bind-address", "127.0.0.1:0", *arguments)
    process = await asyncio.create_subprocess_exec(*command, env=environ, stderr=asyncio.subprocess.PIPE)
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until_pods(cluster: EmbeddedCluster, count: int) -> None:
    client = cluster.client()
    async with client.watch(PODS, namespace=NAMESPACE, send_initial_events=True) as events:
        seen: set[str] = set()
        async for event in events:
            seen.add(event.decode()["metadata"].get("name", ""))
            if len(seen - {""}) >= count:
                return


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as made:
        front = await made.serve()
        (tmp_path / "config").write_text(yaml.safe_dump(front.kubeconfig()))
        await made.client().create(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
        yield made


async def test_a_process_runs_jobs_answers_probes_and_gives_the_lease_back(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    flags = ("--framework", "tests.sim.control_world:RingJob", "--leader-election")
    client = cluster.client()
    async with running(*flags, kubeconfig=tmp_path / "config") as operator:
        served = await operator.said("probes and metrics are served")
        await operator.said("became leader")
        await client.create(RINGS, ring(), namespace=NAMESPACE)
        await until_pods(cluster, 3)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{served['port']}") as session:
            for path, expected in (("/healthz", "ok"), ("/readyz", "ok: leads"), ("/metrics", "controller_runtime_reconcile_total")):
                async with session.get(path) as answer:
                    assert answer.status == 200
                    assert expected in await answer.text()
        operator.process.send_signal(signal.SIGTERM)
        assert await operator.process.wait() == 0
        lease = await client.get(LEASES, "dlop", namespace="default")
        assert not lease["spec"].get("holderIdentity")


async def test_a_process_without_a_cluster_says_what_is_wrong(tmp_path: Path) -> None:
    async with running(kubeconfig=tmp_path / "nowhere") as operator:
        line = await operator.said("the operator cannot start")
        assert "nowhere" in line["error"]
        assert await operator.process.wait() == 1


async def test_a_process_that_is_called_wrongly_ends_with_code_2(tmp_path: Path) -> None:
    async with running("--workers", "none", kubeconfig=tmp_path / "config") as operator:
        _, errors = await operator.process.communicate()
        assert operator.process.returncode == 2
        assert b"--workers is 'none'" in errors


@pytest.mark.usefixtures("cluster")
async def test_a_port_that_is_taken_is_told_in_a_sentence(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    async with taken, running("--bind-address", f"127.0.0.1:{port}", kubeconfig=tmp_path / "config") as operator:
        line = await operator.said("the operator cannot start")
        assert f"127.0.0.1:{port}" in line["error"]
        assert await operator.process.wait() == 1


OLD_ARGUMENTS = (
    *("--enable-scheme=tfjob", "-leader-elect", "--leader-election-id=old-lease", "--controller-threads=1", "--kube-api-qps=200"),
    *("--webhook-server-port=9443", "--zap-encoder=json", "--bind-address=off"),
    *("--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"),
)


async def test_the_arguments_of_kubeflow_s_operator_run_its_jobs_and_both_of_its_ports_are_served(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    client = cluster.client()
    for definition in definitions([TFJob]):
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    async with running(*OLD_ARGUMENTS, kubeconfig=tmp_path / "config") as operator:
        assert (await operator.said("a name of Kubeflow's operator is understood"))["name"] == "--enable-scheme"
        await operator.said("became leader")
        ports = {tuple(line["pages"]): line["port"] for line in operator.lines if line["msg"] == "probes and metrics are served"}
        metrics, probes = ports[("/metrics",)], ports[("/healthz", "/readyz")]
        await client.create(TFJob.job_type.resource, manifest(TFJob, {"Worker": 1}), namespace=NAMESPACE)
        await until_page(metrics, 'training_operator_jobs_created_total{framework="tensorflow",job_namespace="default"} 1.0')
        await until_page(probes, "ok: leads", path="/readyz")
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{metrics}/healthz") as answer:
            assert answer.status == 404
        assert (await client.get(LEASES, "old-lease", namespace="default"))["spec"]["holderIdentity"]


async def until_page(port: int, text: str, *, path: str = "/metrics") -> None:
    """Wait until a page of the operator has this in it. Prometheus asks again and again too."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                if text in await answer.text():
                    return
            await asyncio.sleep(0.1)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("template", "sentence"),
    [(None, "cannot be read"), ("- name: {{.Nobody}}", "{{.Nobody}} is not understood"), ("name: wait", "write a list of containers")],
)
async def test_a_template_of_init_containers_is_tried_out_before_any_job_is(template: str | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "initContainer.yaml"
    if template is not None:
        file.write_text(template)
    async with running("--pytorch-init-container-template-file", str(file), kubeconfig=tmp_path / "config") as operator:
        line = await operator.said("the operator cannot start")
        assert line["error"].startswith(f"--pytorch-init-container-template-file: {file}")
        assert sentence in line["error"]
        assert await operator.process.wait() == 1
