"""Clusters with real processes in pods, and the official client of Kubeflow in its own Python environment."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
import uuid
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from real_cluster import RealCluster

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.embedded.kubelet.image_map import ImageMap, PythonEnvironment, read_images
from dlop.embedded.kubelet.kubectl_delivery import KUBECTL_DELIVERY
from dlop.embedded.kubelet.kubelet import EmbeddedKubelet, KubeletServerConfig
from dlop.embedded.kubelet.python_environments import PythonEnvironments, default_cache_dir
from dlop.embedded.kubelet.runtime.base import Mount
from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, NODES
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.operator_runner import RunningOperator
from tests.embedded.node_env import FAST_TIMINGS
from tests.frameworks.kubeflow_manifests import KINDS
from tests.local.local_process import start_local

CLIENT = "kubeflow-training==1.9.4"
SCENARIOS = "tests.local.official_client"

_REPOSITORY = Path(__file__).parents[2]
_PROGRAMS = Path(__file__).parent / "official_client" / "programs"
_SCENARIO_SECONDS = 300.0


@dataclass(frozen=True)
class ClientEnv:
    """A cluster with the official client."""

    kubeconfig: Path
    namespace: str
    programs: Path
    """The bin directory of the client's environment."""
    index: str
    """The URL of the package index for pods."""
    results: dict[tuple[str, ...], Any] = field(default_factory=dict)

    async def run_scenario_once(self, scenario: str, *words: str) -> Any:
        """The observations of a scenario that runs once for several tests."""
        if (scenario, *words) not in self.results:
            self.results[scenario, *words] = await self.run_scenario(scenario, *words)
        return self.results[scenario, *words]

    async def run_scenario(self, scenario: str, *words: str) -> Any:
        """Run a program of `official_client` and return its observations."""
        process = await asyncio.create_subprocess_exec(
            *(str(self.programs / "python"), "-m", f"{SCENARIOS}.{scenario}", self.namespace, *words),
            env={**_without_proxies(), "KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(_REPOSITORY)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_SCENARIO_SECONDS):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, err.decode()
        return json.loads(out)


@asynccontextmanager
async def embedded_env(folder: Path) -> AsyncIterator[ClientEnv]:
    """A `dlop local` process."""
    programs = await client_programs()
    images = _write_images(folder, programs)
    async with start_local("--images", str(images), folder=folder) as dlop:
        yield ClientEnv(await dlop.kubeconfig(), "default", programs, _index(folder))
        result = await dlop.wait_for_exit(signal.SIGINT)
        assert (result.code, result.err) == (130, "")


@asynccontextmanager
async def real_env(cluster: RealCluster, folder: Path) -> AsyncIterator[ClientEnv]:
    """The real API server with the operator and an embedded kubelet, which provides logs."""
    programs = await client_programs()
    images = ImageMap([*read_images(_write_images(folder, programs)), KUBECTL_DELIVERY])
    namespace = f"client-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        client = Client(await connect(cluster.kubeconfig_path))
        stack.push_async_callback(client.close)
        await apply(client, build_crds([*KINDS, MPIJob]), report=lambda _: None)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        stack.push_async_callback(client.delete, NAMESPACES, namespace)
        detected = await detect_runtime(mounts=[Mount.at_same_path(path) for path in (_REPOSITORY, default_cache_dir(), folder)])
        server_config = KubeletServerConfig("secret", cluster.kubelet_client_certificate.read_text())
        name = f"node-{uuid.uuid4().hex[:8]}"
        kubelet = EmbeddedKubelet(
            client,
            runtime=detected.runtime,
            root_dir=folder / "node",
            name=name,
            images=images,
            server_config=server_config,
            timings=FAST_TIMINGS,
        )
        stack.push_async_callback(client.delete, NODES, name)
        await stack.enter_async_context(kubelet)
        await stack.enter_async_context(_operator(cluster, namespace))
        yield ClientEnv(cluster.kubeconfig_path, namespace, programs, _index(folder))


@asynccontextmanager
async def _operator(cluster: RealCluster, namespace: str) -> AsyncIterator[None]:
    transport = await connect(cluster.kubeconfig_path)
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=[*KINDS, MPIJob], clock=time.time, rng=random.Random(0), settings=settings)
    operator.start()
    try:
        yield
        operator.raise_if_stopped()
    finally:
        await operator.stop()
        await transport.close()


async def client_programs() -> Path:
    """The bin directory of an environment with the client, and without dlop."""
    return await PythonEnvironments(default_cache_dir()).ensure(PythonEnvironment((CLIENT,)))


def _without_proxies() -> dict[str, str]:
    # The client uses a proxy even for local addresses.
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


# --- images and packages for pods -----------------------------------------------------------------------------------------


def _write_images(folder: Path, programs: Path) -> Path:
    """The image map of the scenarios."""
    index = _write_package(folder / "index")
    path = os.pathsep.join([str(programs), str(_PROGRAMS), os.environ["PATH"]])
    images: list[JsonObject] = [
        # The working directory is visible in pods, other temporary directories are not.
        {"name": "example.org/training", "env": {"PATH": path}, "workingDir": str(index)},
        {"name": "example.org/echo", "command": ["sh", "-c", "echo rank $RANK of $WORLD_SIZE"]},
    ]
    file = folder / "images.yaml"
    file.write_text(json.dumps({"images": images}))
    return file


def _index(folder: Path) -> str:
    return (folder / "index").as_uri()


def _write_package(index: Path) -> Path:
    """A package index for `pip` with one small package."""
    directory = index / "greeting"
    directory.mkdir(parents=True)
    dist_info = "greeting-1.0.dist-info"
    with zipfile.ZipFile(directory / "greeting-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greeting.py", "WORD = 'hello'\n")
        wheel.writestr(f"{dist_info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(f"{dist_info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{dist_info}/RECORD", "")
    (directory / "index.html").write_text('<a href="greeting-1.0-py3-none-any.whl">greeting-1.0-py3-none-any.whl</a>')
    return index
