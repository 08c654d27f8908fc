"""Two clusters with real processes in their pods, and the official client of Kubeflow's kinds in an environment of its own."""

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

from dlop.api.crd import definitions
from dlop.deploy.apply import apply
from dlop.embedded.kubelet.image_map import ImageMap, PythonEnvironment, read_images
from dlop.embedded.kubelet.kubectl_delivery import KUBECTL_DELIVERY
from dlop.embedded.kubelet.kubelet import Node, Serving
from dlop.embedded.kubelet.python_environments import PythonEnvironments, default_cache_folder
from dlop.embedded.kubelet.runtime.detect import choose
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, NODES
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.operator_runner import RunningOperator
from tests.embedded.node_world import HURRIED
from tests.frameworks.kubeflow_manifests import KINDS
from tests.local.local_program import running

CLIENT = "kubeflow-training==1.9.4"
STORIES = "tests.local.official_client"

_REPOSITORY = Path(__file__).parents[2]
_PROGRAMS = Path(__file__).parent / "official_client" / "programs"
_STORY_SECONDS = 300.0


@dataclass(frozen=True)
class ClientWorld:
    """A cluster, and the client in front of it."""

    kubeconfig: Path
    namespace: str
    programs: Path
    """Those of the client's environment."""
    index: str
    """Where pods find packages."""
    played: dict[tuple[str, ...], Any] = field(default_factory=dict)

    async def has_played(self, story: str, *words: str) -> Any:
        """What a story has seen that was played only once, for several tests."""
        if (story, *words) not in self.played:
            self.played[story, *words] = await self.plays(story, *words)
        return self.played[story, *words]

    async def plays(self, story: str, *words: str) -> Any:
        """Run one of the programs in `official_client`, and say what it has seen."""
        process = await asyncio.create_subprocess_exec(
            *(str(self.programs / "python"), "-m", f"{STORIES}.{story}", self.namespace, *words),
            env={**_without_proxies(), "KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(_REPOSITORY)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_STORY_SECONDS):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, err.decode()
        return json.loads(out)


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[ClientWorld]:
    """`dlop local`, as a user starts it."""
    programs = await client_programs()
    images = _write_images(folder, programs)
    async with running("--images", str(images), folder=folder) as dlop:
        yield ClientWorld(await dlop.kubeconfig(), "default", programs, _index(folder))
        ended = await dlop.ends(signal.SIGINT)
        assert (ended.code, ended.err) == (130, "")


@asynccontextmanager
async def real(cluster: RealCluster, folder: Path) -> AsyncIterator[ClientWorld]:
    """The real API server, with the operator and with the node of the embedded cluster: so there are logs here too."""
    programs = await client_programs()
    images = ImageMap([*read_images(_write_images(folder, programs)), KUBECTL_DELIVERY])
    namespace = f"client-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        client = Client(await connect(cluster.kubeconfig_path))
        stack.push_async_callback(client.close)
        await apply(client, definitions([*KINDS, MPIJob]), say=lambda _: None)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        stack.push_async_callback(client.delete, NAMESPACES, namespace)
        chosen = await choose(visible=[_REPOSITORY, default_cache_folder(), folder])
        serving = Serving("secret", cluster.kubelet_client_certificate.read_text())
        name = f"node-{uuid.uuid4().hex[:8]}"
        node = Node(client, runtime=chosen.runtime, folder=folder / "node", name=name, images=images, serving=serving, pace=HURRIED)
        stack.push_async_callback(client.delete, NODES, name)
        await stack.enter_async_context(node)
        await stack.enter_async_context(_operator(cluster, namespace))
        yield ClientWorld(cluster.kubeconfig_path, namespace, programs, _index(folder))


@asynccontextmanager
async def _operator(cluster: RealCluster, namespace: str) -> AsyncIterator[None]:
    transport = await connect(cluster.kubeconfig_path)
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=[*KINDS, MPIJob], clock=time.time, rng=random.Random(0), settings=settings)
    operator.start()
    try:
        yield
        operator.demand()
    finally:
        await operator.stop()
        await transport.close()


async def client_programs() -> Path:
    """The programs of an environment that has the client, and nothing of this project."""
    return await PythonEnvironments(default_cache_folder()).programs(PythonEnvironment((CLIENT,)))


def _without_proxies() -> dict[str, str]:
    """The client would ask a proxy even for what is on this machine."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


# --- what pods find -------------------------------------------------------------------------------------------------------


def _write_images(folder: Path, programs: Path) -> Path:
    """What the images of the stories mean."""
    place = _write_package(folder / "index")
    path = os.pathsep.join([str(programs), str(_PROGRAMS), os.environ["PATH"]])
    images: list[JsonObject] = [
        # The index is its working directory, for other folders among temporary files are not shown to pods.
        {"name": "example.org/training", "env": {"PATH": path}, "workingDir": str(place)},
        {"name": "example.org/talking", "command": ["sh", "-c", "echo I am rank $RANK of $WORLD_SIZE"]},
    ]
    file = folder / "images.yaml"
    file.write_text(json.dumps({"images": images}))
    return file


def _index(folder: Path) -> str:
    return (folder / "index").as_uri()


def _write_package(index: Path) -> Path:
    """An index of packages, as `pip` reads it, with one small package."""
    place = index / "greeting"
    place.mkdir(parents=True)
    about = "greeting-1.0.dist-info"
    with zipfile.ZipFile(place / "greeting-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greeting.py", "WORD = 'hello'\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    (place / "index.html").write_text('<a href="greeting-1.0-py3-none-any.whl">greeting-1.0-py3-none-any.whl</a>')
    return index
