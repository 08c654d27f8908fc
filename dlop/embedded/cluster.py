"""The embedded cluster: store, API server, controllers and fronts, put together and taken apart as one.

    async with EmbeddedCluster() as cluster:
        client = cluster.client()               # in-process: deterministic, no sockets
        front = await cluster.serve()           # https on the loopback, for kubectl and other processes

Time, uids and randomness come in from outside, so that a test can have the same cluster every time.
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

from dlop.embedded.apiserver.apiextensions.crd_controller import CRD_TYPE, CustomResources
from dlop.embedded.apiserver.controllers.garbage_collector import GarbageCollector
from dlop.embedded.apiserver.controllers.namespaces import NamespaceController
from dlop.embedded.apiserver.core import builtin_types
from dlop.embedded.apiserver.faults import Faults
from dlop.embedded.apiserver.kubelet_proxy.kubelet_client import Kubelets
from dlop.embedded.apiserver.object_queue import Background
from dlop.embedded.apiserver.registry import Registry
from dlop.embedded.apiserver.rest.list import View
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.store import Store
from dlop.embedded.apiserver.transports.http import HttpServer, serve
from dlop.embedded.apiserver.transports.inprocess import InProcessTransport
from dlop.embedded.certificates import make_certificates
from dlop.kube.client import Client, Limits
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject

DEFAULT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class EmbeddedCluster:
    """A whole control plane in this process, for as long as the context lasts."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        randomness: random.Random | None = None,
        token: str | None = None,
        store: Store | None = None,
    ) -> None:
        """`clock` gives seconds since the epoch. A `store` may be brought along, e.g. with a shorter history."""
        self.store = Store() if store is None else store
        self.registry = Registry()
        self.background = Background()
        self._clock = clock
        self._new_uid = new_uid
        # Only names and time-outs come from here; secrets do not.
        self._randomness = random.Random() if randomness is None else randomness  # noqa: S311
        self._token = secrets.token_urlsafe(32) if token is None else token
        self.verbs = self._verbs()
        self.faults = Faults(self.store)
        self._kubelets = Kubelets()
        self.server = ApiServer(self.verbs, self.faults, token=self._token, kubelets=self._kubelets)
        self._servers = [self.server]
        self._fronts: list[HttpServer] = []

    async def __aenter__(self) -> Self:
        for served in (*builtin_types(self.store), CRD_TYPE):
            self.registry.add(served)
        CustomResources(self.store, self.registry, self.background, self._clock, verbs=self.verbs)
        GarbageCollector(self.store, self.registry, self.verbs, self.background)
        NamespaceController(self.store, self.registry, self.verbs, self.background)
        self._create_namespaces()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        # Logs that are followed would else keep the fronts busy.
        await self._kubelets.close()
        for front in self._fronts:
            await front.close()
        for server in self._servers:
            server.end_watches()

    def trust_node(self, host: str, port: int, *, authority_pem: str, token: str) -> None:
        """Let the server ask the kubelet at an address for logs and the like: whom its certificate is from, and its token."""
        self._kubelets.trust(host, port, authority_pem=authority_pem, token=token)

    def transport(self) -> InProcessTransport:
        """A way to the server without sockets."""
        return InProcessTransport(self.server)

    def client(self, **limits: Any) -> Client:
        """A client over the in-process front; the arguments are those of `Limits`."""
        return Client(self.transport(), limits=Limits(**limits))

    async def serve(self, *, tls: bool = True, port: int = 0, server: ApiServer | None = None) -> HttpServer:
        """Serve over HTTP on the loopback until the cluster ends. Without TLS `kubectl` would not send its token."""
        certificates = make_certificates(now_seconds=time.time()) if tls else None
        front = await serve(server or self.server, certificates=certificates, port=port)
        self._fronts.append(front)
        return front

    async def serve_on(self, listening: socket.socket) -> HttpServer:
        """Serve on a socket that listens already, in whatever network that is, until the cluster ends."""
        certificates = make_certificates(now_seconds=time.time(), address=listening.getsockname()[0])
        front = await serve(self.server, certificates=certificates, listening=listening)
        self._fronts.append(front)
        return front

    def add_server(self, view: View) -> ApiServer:
        """Add an API server that reads and watches through `view` and writes to the same store."""
        server = ApiServer(self._verbs(view), Faults(self.store), token=self._token, kubelets=self._kubelets)
        self._servers.append(server)
        return server

    def _verbs(self, view: View | None = None) -> ResourceStorage:
        return ResourceStorage(
            self.store,
            self.registry,
            self.background,
            clock=self._clock,
            new_uid=self._new_uid,
            randomness=self._randomness,
            view=view,
        )

    def _create_namespaces(self) -> None:
        namespaces = self.registry.find("", "v1", NAMESPACES.plural)
        if namespaces is None:
            raise LookupError("the server has no namespaces")
        for name in DEFAULT_NAMESPACES:
            body: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.verbs.create(namespaces, "", body)
