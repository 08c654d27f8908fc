"""Runs each conformance test on the embedded server in this process and on the real kube-apiserver.

Tests marked `over_https` also run on the embedded server over HTTPS. With `hack/test --thorough`, all tests do. If
`DLOP_KUBERNETES_VERSION` selects an older version, the tests run on the real server only, because the embedded server is the same.

Tests share one event loop, one server of each kind and its connections. Each test has a namespace of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from kubernetes_build import NEWEST_VERSION, kubernetes_version, require_assets
from real_cluster import RealCluster

from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject
from tests.conformance.crds import CRDS, GADGET_CRD
from tests.conformance.kubectl import Kubectl
from tests.conformance.service_accounts import Account, create_account, create_token_request
from tests.conformance.support import SERVERS, Api, ApiServer
from tests.kubernetes_versions import is_at_least
from tests.thorough import THOROUGH

# The real server keeps snapshots of recent lists. It serves them for some time after etcd has compacted them, so without this flag
# the tests would have to wait until a compaction takes effect.
_REAL_FLAGS = ("--feature-gates=ListFromCacheSnapshot=false",) if is_at_least("1.33") else ()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only_on(*servers, reason): run a test on these servers only")
    config.addinivalue_line("markers", "over_https(reason): also run a test on the embedded server over HTTPS")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    conformance = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in conformance:
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    if kubernetes_version() != NEWEST_VERSION:
        deselected = {item for item in conformance if not _runs_on_real_server(item)}
        config.hook.pytest_deselected(items=list(deselected))
        items[:] = [item for item in items if item not in deselected]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        metafunc.parametrize("server", _servers(metafunc.definition), indirect=True)


def _servers(test: pytest.Item) -> Sequence[str]:
    marker = test.get_closest_marker("only_on")
    if marker:
        return marker.args
    return SERVERS if THOROUGH or test.get_closest_marker("over_https") else [name for name in SERVERS if name != "embedded"]


def _runs_on_real_server(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("server") == "real"


@pytest.fixture(scope="session")
def real_cluster_to_compact() -> Iterator[RealCluster]:
    """A real API server without controllers. These tests compact its history, so they do not use the shared `real_cluster`."""
    with RealCluster.started(extra_flags=_REAL_FLAGS) as cluster:
        yield cluster


@pytest.fixture
def server(request: pytest.FixtureRequest) -> ApiServer:
    """The server of this test, with the CRDs of `crds.py`."""
    server: ApiServer = request.getfixturevalue(f"{request.param.replace('-', '_')}_server")
    return server


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def in_process_server() -> AsyncIterator[ApiServer]:
    async with EmbeddedCluster() as cluster:
        server = ApiServer("in-process", cluster.client(), compact=_compaction(cluster))
        await _install_crds(server)
        yield server


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiServer]:
    directory = tmp_path_factory.mktemp("kubeconfigs")
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=True)
        async with _clients(front.kubeconfig(), directory) as (admin, unauthorized):
            server = ApiServer(
                "embedded", admin, compact=_compaction(cluster), unauthorized_client=unauthorized, kubeconfig=directory / "admin"
            )
            await _install_crds(server)
            yield server


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def real_server(real_cluster_to_compact: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiServer]:
    cluster = real_cluster_to_compact
    directory = tmp_path_factory.mktemp("kubeconfigs")

    async def compact() -> None:
        await asyncio.to_thread(cluster.compact)

    async with _clients(yaml.safe_load(cluster.kubeconfig_path.read_text()), directory) as (admin, unauthorized):
        server = ApiServer("real", admin, compact=compact, unauthorized_client=unauthorized, kubeconfig=directory / "admin")
        # Install the CRDs before the garbage collector starts, because it discovers new resources only every 30 seconds.
        await _install_crds(server)
        await asyncio.to_thread(cluster.add_controllers)
        await asyncio.to_thread(cluster.wait_until_ready)
        yield server


@asynccontextmanager
async def _clients(kubeconfig: JsonObject, directory: Path) -> AsyncIterator[tuple[Client, Client]]:
    """The client of the kubeconfig and a client with an unknown token."""
    unknown_user = {**kubeconfig["users"][0], "user": {"token": "unknown-token"}}
    admin = Client(await connect(_write_kubeconfig(kubeconfig, directory / "admin")))
    unauthorized = Client(await connect(_write_kubeconfig({**kubeconfig, "users": [unknown_user]}, directory / "unauthorized")))
    try:
        yield admin, unauthorized
    finally:
        await admin.close()
        await unauthorized.close()


def _write_kubeconfig(kubeconfig: JsonObject, path: Path) -> Path:
    path.write_text(json.dumps(kubeconfig))
    return path


def _compaction(cluster: EmbeddedCluster) -> Callable[[], Awaitable[None]]:
    async def compact() -> None:
        cluster.store.compact()

    return compact


async def _install_crds(server: ApiServer) -> None:
    await asyncio.gather(*(Api(server, "default").install(crd) for crd in CRDS))


@pytest_asyncio.fixture(loop_scope="session")
async def api(server: ApiServer) -> Api:
    """The server of this test and a new namespace. The namespace is not deleted, because the server stops at the end of the run."""
    namespace = f"case-{next(server.namespace_numbers)}"
    await server.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return Api(server, namespace)


@pytest_asyncio.fixture(loop_scope="session")
async def account(api: Api, tmp_path: Path) -> Account:
    """A new service account without permissions."""
    await create_account(api)
    return Account(api, (await create_token_request(api))["status"]["token"], tmp_path)


@pytest.fixture(scope="session")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubectl")


@pytest_asyncio.fixture(loop_scope="session")
async def kubectl(api: Api, kubectl_home: Path) -> Kubectl:
    await api.install(GADGET_CRD)
    return Kubectl(require_assets(("kubectl",))["kubectl"], api, kubectl_home / api.server.name)
