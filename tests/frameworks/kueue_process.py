"""Kueue itself on a real control plane, with its CRDs, its webhooks and its controllers."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import processes
import yaml
from kueue_build import crd_files, require_kueue, webhook_file
from ports import ReservedPorts
from real_cluster import RealCluster

from dlop.deploy.apply import apply
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
CLUSTER_QUEUES = Resource(GROUP, VERSION, "clusterqueues", "ClusterQueue", namespaced=False)
LOCAL_QUEUES = Resource(GROUP, VERSION, "localqueues", "LocalQueue")
_READY_WITHIN_SECONDS = 60.0
_LOG = "kueue.log"
_VALIDATING = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
_MUTATING = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)


@asynccontextmanager
async def run_kueue(cluster: RealCluster, folder: Path) -> AsyncIterator[None]:
    """Run Kueue until the end of the block. The webhooks are those for its own objects.

    Raises:
        AssetsError: Kueue has not been built.
    """
    program = require_kueue()
    ports, watchdog = ReservedPorts(), processes.Watchdog()
    client = Client(await connect(cluster.kubeconfig_path))
    process: subprocess.Popen[bytes] | None = None
    try:
        webhook_port, probe_port = ports.reserve(), ports.reserve()
        _write_certificates(cluster, folder / "certificates")
        await apply(client, map(_read_crd, crd_files()), report=lambda _: None)
        command = [str(program), "--config", "config.yaml", "--kubeconfig", str(cluster.kubeconfig_path)]
        process = _start(command, folder, _configuration(webhook_port, probe_port), group=watchdog.group)
        await _wait_until_ready(process, probe_port, folder)
        for configuration in _webhooks(cluster, webhook_port):
            resource = _VALIDATING if configuration["kind"] == _VALIDATING.kind else _MUTATING
            await client.create(resource, configuration)
        yield
    finally:
        watchdog.close()
        if process is not None:
            process.wait()
        ports.release()
        await client.close()


def _start(command: list[str], folder: Path, configuration: JsonObject, *, group: int) -> subprocess.Popen[bytes]:
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration))
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, process_group=group)


def _configuration(webhook_port: int, probe_port: int) -> JsonObject:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probe_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook_port, "certDir": "certificates"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "waitForPodsReady": {"timeout": "5m"},
        "integrations": {"frameworks": ["batch/job"], "externalFrameworks": ["XDLJob.v1alpha1.training.kubedl.io"]},
        "featureGates": {"VisibilityOnDemand": False},
        "clientConnection": {"qps": 500, "burst": 1000},
    }


def _write_certificates(cluster: RealCluster, folder: Path) -> None:
    """The certificate of the API server, which is valid for loopback addresses."""
    folder.mkdir()
    shutil.copy(cluster.ca_path, folder / "tls.crt")
    shutil.copy(cluster.ca_path.with_suffix(".key"), folder / "tls.key")


def _read_crd(path: Path) -> JsonObject:
    crd: JsonObject = yaml.safe_load(path.read_text())
    # Required for API groups that end in k8s.io.
    crd["metadata"].setdefault("annotations", {})["api-approved.kubernetes.io"] = "unapproved, a part of a test"
    return crd


def _webhooks(cluster: RealCluster, port: int) -> list[JsonObject]:
    """The webhooks for the objects of Kueue, at a URL instead of a service."""
    ca_bundle = base64.b64encode(cluster.ca_path.read_bytes()).decode()
    configurations: list[JsonObject] = list(yaml.safe_load_all(webhook_file().read_text()))
    for configuration in configurations:
        own = [each for each in configuration["webhooks"] if any(GROUP in rule["apiGroups"] for rule in each["rules"])]
        for webhook in own:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": ca_bundle}
        configuration["webhooks"] = own
    return configurations


async def _wait_until_ready(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    async with asyncio.timeout(_READY_WITHIN_SECONDS):
        while not await _is_ready(port):
            if process.poll() is not None:
                raise RuntimeError(f"Kueue has exited: see {folder / _LOG}")
            await asyncio.sleep(0.1)


async def _is_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()
