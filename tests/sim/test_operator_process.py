"""The operator as a process: flags, probes, metrics, logs, SIGTERM."""

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

from dlop.api.crd import build_crds
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, PODS
from dlop.kube.types import JsonObject
from tests.frameworks.kubeflow_manifests import manifest
from tests.installed_packages import install
from tests.sim.operator_env import NAMESPACE, RING_CRD, RING_JOBS, ring

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[2]


class OperatorProcess:
    """The process and its log lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[JsonObject] = []

    async def wait_for_log(self, text: str) -> JsonObject:
        """Wait for a log line whose message has this text."""
        assert self.process.stderr is not None
        while True:
            match = next((line for line in self.lines if text in line["msg"]), None)
            if match is not None:
                return match
            line = await self.process.stderr.readline()
            if not line:
                raise AssertionError(f"the process exited without logging {text!r}: {self.lines}")
            self.lines.append(json.loads(line))


@asynccontextmanager
async def run_process(*arguments: str, kubeconfig: Path, packages: Path | None = None) -> AsyncIterator[OperatorProcess]:
    """`packages` is a folder with further installed packages."""
    path = os.pathsep.join(map(str, (ROOT, *((packages,) if packages else ()))))
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "DLOP_LOG_FORMAT": "json", "PYTHONPATH": path}
    command = (sys.executable, "-m", "dlop", "run", "--bind-address", "127.0.0.1:0", *arguments)
    process = await asyncio.create_subprocess_exec(*command, env=environ, stderr=asyncio.subprocess.PIPE)
    try:
        yield OperatorProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def wait_for_pods(cluster: EmbeddedCluster, count: int) -> None:
    client = cluster.client()
    async with client.watch(PODS, namespace=NAMESPACE, send_initial_events=True) as events:
        seen: set[str] = set()
        async for event in events:
            seen.add(event.decode()["metadata"].get("name", ""))
            if len(seen - {""}) >= count:
                return


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        server = await cluster.serve()
        (tmp_path / "config").write_text(yaml.safe_dump(server.kubeconfig()))
        await cluster.client().create(CUSTOM_RESOURCE_DEFINITIONS, RING_CRD)
        yield cluster


async def test_a_process_runs_jobs_serves_probes_and_releases_the_lease(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    flags = ("--framework", "tests.sim.ring_job:RingJob", "--leader-election", "--event-loop-metrics")
    client = cluster.client()
    async with run_process(*flags, kubeconfig=tmp_path / "config") as operator:
        endpoint = await operator.wait_for_log("serving health probes and metrics")
        await operator.wait_for_log("became leader")
        await client.create(RING_JOBS, ring(), namespace=NAMESPACE)
        await wait_for_pods(cluster, 3)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{endpoint['port']}") as session:
            for path, expected in (
                ("/healthz", "ok"),
                ("/readyz", "ok: leader"),
                ("/metrics", "controller_runtime_reconcile_total"),
                ("/metrics", "dlop_event_loop_delay_seconds_count"),
            ):
                async with session.get(path) as response:
                    assert response.status == 200
                    assert expected in await response.text()
        operator.process.send_signal(signal.SIGTERM)
        assert await operator.process.wait() == 0
        lease = await client.get(LEASES, "dlop", namespace="default")
        assert not lease["spec"].get("holderIdentity")


async def test_a_process_without_a_cluster_reports_the_cause(tmp_path: Path) -> None:
    async with run_process(kubeconfig=tmp_path / "nowhere") as operator:
        line = await operator.wait_for_log("failed to start operator")
        assert "nowhere" in line["error"]
        assert await operator.process.wait() == 1


@pytest.mark.usefixtures("cluster")
async def test_a_package_with_a_broken_framework_is_logged_and_does_not_stop_the_operator(tmp_path: Path) -> None:
    install(tmp_path, "broken-rings", "ringjob = no_such_module:RingJob")
    async with run_process("--leader-election", kubeconfig=tmp_path / "config", packages=tmp_path) as operator:
        line = await operator.wait_for_log("failed to load framework")
        assert "entry point 'ringjob' of package broken-rings: cannot import module 'no_such_module'" in line["error"]
        await operator.wait_for_log("became leader")


async def test_invalid_flags_exit_with_code_2(tmp_path: Path) -> None:
    async with run_process("--workers", "none", kubeconfig=tmp_path / "config") as operator:
        _, errors = await operator.process.communicate()
        assert operator.process.returncode == 2
        assert b"--workers: invalid value 'none'" in errors


@pytest.mark.usefixtures("cluster")
async def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    other = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other, run_process("--bind-address", f"127.0.0.1:{port}", kubeconfig=tmp_path / "config") as operator:
        line = await operator.wait_for_log("failed to start operator")
        assert f"127.0.0.1:{port}" in line["error"]
        assert await operator.process.wait() == 1


KUBEFLOW_ARGUMENTS = (
    *("--enable-scheme=tfjob", "-leader-elect", "--leader-election-id=kubeflow-lease", "--controller-threads=1", "--kube-api-qps=200"),
    *("--webhook-server-port=9443", "--zap-encoder=json", "--bind-address=off"),
    *("--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"),
)


async def test_the_arguments_of_the_kubeflow_operator_run_its_jobs_and_serve_both_ports(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    client = cluster.client()
    for crd in build_crds([TFJob]):
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
    async with run_process(*KUBEFLOW_ARGUMENTS, kubeconfig=tmp_path / "config") as operator:
        assert (await operator.wait_for_log("using flag or variable of another operator"))["name"] == "--enable-scheme"
        await operator.wait_for_log("became leader")
        ports = {tuple(line["paths"]): line["port"] for line in operator.lines if line["msg"] == "serving health probes and metrics"}
        metrics, probes = ports[("/metrics",)], ports[("/healthz", "/readyz")]
        await client.create(TFJob.job_type.resource, manifest(TFJob, {"Worker": 1}), namespace=NAMESPACE)
        await wait_for_page(metrics, 'training_operator_jobs_created_total{framework="tensorflow",job_namespace="default"} 1.0')
        await wait_for_page(probes, "ok: leader", path="/readyz")
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{metrics}/healthz") as response:
            assert response.status == 404
        assert (await client.get(LEASES, "kubeflow-lease", namespace="default"))["spec"]["holderIdentity"]


async def wait_for_page(port: int, text: str, *, path: str = "/metrics") -> None:
    """Poll a page of the operator until it has this text."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                if text in await response.text():
                    return
            await asyncio.sleep(0.1)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("template", "message"),
    [(None, "cannot be read"), ("- name: {{.Unknown}}", "{{.Unknown}} is not supported"), ("name: wait", "must be a list of containers")],
)
async def test_an_invalid_init_container_template_fails_the_start(template: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "initContainer.yaml"
    if template is not None:
        file.write_text(template)
    async with run_process("--pytorch-init-container-template-file", str(file), kubeconfig=tmp_path / "config") as operator:
        line = await operator.wait_for_log("failed to start operator")
        assert line["error"].startswith(f"--pytorch-init-container-template-file: {file}")
        assert message in line["error"]
        assert await operator.process.wait() == 1
