"""Three servers for every case: the embedded one in this process, the same over HTTPS, and the real kube-apiserver.

Cases share one event loop, one server of each kind and its connections; each has a namespace of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from real_cluster import RealCluster

from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject
from tests.conformance.definitions import DEFINITIONS
from tests.conformance.support import SERVERS, Api, Server

# A real server keeps copies of recent lists and answers from them even when etcd has forgotten them; it looks only now
# and then whether it should forget as well. Without these copies a compaction is felt at once.
_REAL_FLAGS = ("--feature-gates=ListFromCacheSnapshot=false",)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only_on(*servers, because): a case for these servers only, with the reason")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("only_on")
        metafunc.parametrize("server", mark.args if mark else SERVERS, indirect=True, scope="session")


@pytest.fixture(scope="session")
def real_server() -> Iterator[RealCluster]:
    """The real API server; its controllers are started by `server`."""
    with RealCluster.started(extra_flags=_REAL_FLAGS) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """The server of this run, with every kind of `definitions.py`."""
    folder = tmp_path_factory.mktemp("kubeconfigs")
    if request.param == "real":
        opened = _real(request.getfixturevalue("real_server"), folder)
    else:
        opened = _embedded(folder) if request.param == "embedded" else _in_process()
    async with opened as found:
        yield found


@asynccontextmanager
async def _in_process() -> AsyncIterator[Server]:
    async with EmbeddedCluster() as cluster:
        found = Server("in-process", cluster.client(), compact=_forget(cluster))
        await _install_definitions(found)
        yield found


@asynccontextmanager
async def _embedded(folder: Path) -> AsyncIterator[Server]:
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=True)
        async with _clients(front.kubeconfig(), folder) as (known, stranger):
            found = Server("embedded", known, compact=_forget(cluster), stranger=stranger, kubeconfig=folder / "known")
            await _install_definitions(found)
            yield found


@asynccontextmanager
async def _real(cluster: RealCluster, folder: Path) -> AsyncIterator[Server]:
    async def compact() -> None:
        await asyncio.to_thread(cluster.compact)

    async with _clients(yaml.safe_load(cluster.kubeconfig_path.read_text()), folder) as (known, stranger):
        found = Server("real", known, compact=compact, stranger=stranger, kubeconfig=folder / "known")
        # First the kinds, then the garbage collector: it looks for new ones when it starts, and else twice a minute only.
        await _install_definitions(found)
        await asyncio.to_thread(cluster.add_controllers)
        await asyncio.to_thread(cluster.wait_until_ready)
        yield found


@asynccontextmanager
async def _clients(kubeconfig: JsonObject, folder: Path) -> AsyncIterator[tuple[Client, Client]]:
    """A client that the server knows, and one with a token that it does not know."""
    nobody = {**kubeconfig["users"][0], "user": {"token": "nobody-knows-this-token"}}
    known = Client(await connect(_written(kubeconfig, folder / "known")))
    stranger = Client(await connect(_written({**kubeconfig, "users": [nobody]}, folder / "stranger")))
    try:
        yield known, stranger
    finally:
        await known.close()
        await stranger.close()


def _written(kubeconfig: JsonObject, path: Path) -> Path:
    path.write_text(json.dumps(kubeconfig))
    return path


def _forget(cluster: EmbeddedCluster) -> Callable[[], Awaitable[None]]:
    async def compact() -> None:
        cluster.store.compact()

    return compact


async def _install_definitions(server: Server) -> None:
    await asyncio.gather(*(Api(server, "default").install(definition) for definition in DEFINITIONS))


@pytest_asyncio.fixture(loop_scope="session")
async def api(server: Server) -> Api:
    """The server of this run, and a fresh namespace. Nobody empties it: the server itself does not outlive the run."""
    namespace = f"case-{next(server.numbers)}"
    await server.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return Api(server, namespace)
