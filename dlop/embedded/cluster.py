"""The embedded cluster: store, API server, controllers and transports in one process.

    async with EmbeddedCluster() as cluster:
        client = cluster.client()               # in-process, deterministic, without sockets
        server = await cluster.serve()          # HTTPS on loopback, for kubectl and other processes

Clock, UIDs and random numbers are parameters, so that tests are reproducible.
"""

from __future__ import annotations

import random
import secrets
import socket
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from dlop.embedded.apiserver.apiextensions.crd_controller import CRD_TYPE, CrdController
from dlop.embedded.apiserver.controllers.garbage_collector import GarbageCollector
from dlop.embedded.apiserver.controllers.namespaces import NamespaceController
from dlop.embedded.apiserver.core import builtin_types
from dlop.embedded.apiserver.faults import Faults
from dlop.embedded.apiserver.kubelet_proxy.kubelet_client import KubeletClient
from dlop.embedded.apiserver.object_queue import ObjectQueue
from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.rest.list import StoreReader
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.store import Store
from dlop.embedded.apiserver.transports.http import HttpServer, serve
from dlop.embedded.apiserver.transports.inprocess import InProcessTransport
from dlop.embedded.certificates import generate_certificates
from dlop.kube.client import Client, ClientLimits
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject

DEFAULT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class EmbeddedCluster:
    """An async context manager that runs a control plane."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        rng: random.Random | None = None,
        token: str | None = None,
        store: Store | None = None,
    ) -> None:
        """`clock` returns seconds since the epoch. `store` can be passed to change its settings, such as the length of its history."""
        self.store = Store() if store is None else store
        self.registry = ResourceRegistry()
        self.queue = ObjectQueue()
        self._clock = clock
        self._new_uid = new_uid
        self._rng = random.Random() if rng is None else rng  # noqa: S311 - for names and timeouts, not for secrets
        self._token = secrets.token_urlsafe(32) if token is None else token
        self.storage = self._new_storage()
        self.faults = Faults(self.store)
        self._kubelets = KubeletClient()
        self.server = ApiServer(self.storage, self.faults, token=self._token, kubelets=self._kubelets)
        self._servers = [self.server]
        self._http_servers: list[HttpServer] = []

    async def __aenter__(self) -> Self:
        for resource_type in (*builtin_types(self.store), CRD_TYPE):
            self.registry.add(resource_type)
        CrdController(self.store, self.registry, self.queue, self._clock, storage=self.storage)
        GarbageCollector(self.store, self.registry, self.storage, self.queue)
        NamespaceController(self.store, self.registry, self.storage, self.queue)
        self._create_namespaces()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        # Close these first, because followed logs keep requests to the HTTP servers open.
        await self._kubelets.close()
        for http_server in self._http_servers:
            await http_server.close()
        for server in self._servers:
            server.end_watches()

    def trust_kubelet(self, host: str, port: int, *, ca_pem: str, token: str) -> None:
        """Let the API server call the kubelet at this address, with its CA and token."""
        self._kubelets.trust(host, port, ca_pem=ca_pem, token=token)

    def transport(self) -> InProcessTransport:
        """An in-process transport of the administrator, without sockets."""
        return InProcessTransport(self.server, token=self.server.token)

    def client(self, **limits: Any) -> Client:
        """An in-process client of the administrator. The arguments are those of `ClientLimits`."""
        return Client(self.transport(), limits=ClientLimits(**limits))

    async def serve(self, *, tls: bool = True, port: int = 0, server: ApiServer | None = None) -> HttpServer:
        """Serve over HTTP on loopback until the cluster stops. `kubectl` sends its token only over TLS."""
        certificates = generate_certificates(now_seconds=time.time()) if tls else None
        http_server = await serve(server or self.server, certificates=certificates, port=port)
        self._http_servers.append(http_server)
        return http_server

    async def serve_on(self, listener: socket.socket) -> HttpServer:
        """Serve on a listening socket, which may be in another network namespace, until the cluster stops."""
        certificates = generate_certificates(now_seconds=time.time(), address=listener.getsockname()[0])
        http_server = await serve(self.server, certificates=certificates, listening=listener)
        self._http_servers.append(http_server)
        return http_server

    def add_server(self, view: StoreReader) -> ApiServer:
        """Add an API server that reads and watches through `view` and writes to the same store."""
        server = ApiServer(self._new_storage(view), Faults(self.store), token=self._token, kubelets=self._kubelets)
        self._servers.append(server)
        return server

    def _new_storage(self, view: StoreReader | None = None) -> ResourceStorage:
        return ResourceStorage(
            self.store,
            self.registry,
            self.queue,
            clock=self._clock,
            new_uid=self._new_uid,
            rng=self._rng,
            view=view,
        )

    def _create_namespaces(self) -> None:
        namespaces = self.registry.find("", "v1", NAMESPACES.plural)
        if namespaces is None:
            raise LookupError("the namespaces resource is not registered")
        for name in DEFAULT_NAMESPACES:
            body: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.storage.create(namespaces, "", body)
