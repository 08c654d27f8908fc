"""The laptop cluster: API server, node and operator in one process and one event loop, put together and taken apart as one.

    async with Laptop(registry, folder=folder) as laptop:
        await laptop.client.create(...)      # and pods run on this machine

Other programs reach it through the kubeconfig in its folder: HTTPS on the loopback, with a token. Leaving the block ends
all pods and everything else.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from dlop.api.crd import definitions
from dlop.embedded.apiserver.transports.http import HttpServer
from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.api_access import ApiAccess, ApiAddress
from dlop.embedded.kubelet.image_map import ImageMap
from dlop.embedded.kubelet.kubectl_delivery import KUBECTL_DELIVERY
from dlop.embedded.kubelet.kubelet import Node, Serving
from dlop.embedded.kubelet.machine import allow_open_files
from dlop.embedded.kubelet.python_environments import PythonEnvironments, default_cache_folder
from dlop.embedded.kubelet.runtime.detect import Choice
from dlop.embedded.kubelet.server.api import HOST
from dlop.frameworks.registry import Registry
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.local.options import Machine
from dlop.local.workdir import Folder
from dlop.operator.operator import Operator
from dlop.operator.settings import NO_ADDRESS, Settings


class LocalCluster:
    """A cluster on this machine, for as long as the context lasts."""

    def __init__(
        self,
        registry: Registry,
        *,
        folder: Folder,
        machine: Machine | None = None,
        choosing: Awaitable[Choice] | None = None,
        keep_logs: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`choosing` is the machine's `choose_runtime`, if it has begun already. `tell` is given lines about what takes a while.

        With `keep_logs` what pods have written stays when they go.
        """
        self.folder = folder
        self.isolation = ""
        """One line: how pods are kept apart here."""
        self._registry = registry
        self._machine = machine or Machine()
        self._choosing = choosing
        self._keep_logs = keep_logs
        self._tell = tell
        self._cluster = EmbeddedCluster()
        self._stack = AsyncExitStack()
        self.client = self._cluster.client()
        """In-process: what it asks for takes no way through a socket."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)

    def find_resource(self, api_version: str, kind: str) -> Resource | None:
        """Where objects of a kind live; None when this cluster does not know it."""
        found = self._cluster.registry.by_kind(api_version, kind)
        return None if found is None else found.resource

    async def _start(self) -> None:
        # It starts processes, and they take a while: meanwhile there is enough to do here.
        choosing = asyncio.ensure_future(self._choosing or self._machine.choose_runtime())
        try:
            await self._stack.enter_async_context(self._cluster)
            front = await self._cluster.serve()
            self.folder.write_kubeconfig(front.kubeconfig())
            for definition in definitions(self._registry):
                await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
            chosen = await choosing
        finally:
            choosing.cancel()
            await asyncio.gather(choosing, return_exceptions=True)
        self.isolation = chosen.reason
        await self._start_operator(await self._start_node(chosen, front))

    async def _start_node(self, chosen: Choice, front: HttpServer) -> Node:
        machine, token = self._machine, secrets.token_urlsafe(32)
        node = Node(
            self._cluster.client(),
            runtime=chosen.runtime,
            folder=self.folder.node,
            cpus=machine.cpus,
            memory_bytes=machine.memory_bytes,
            extended=machine.extended,
            images=ImageMap((*machine.images, KUBECTL_DELIVERY)),
            environments=PythonEnvironments(default_cache_folder(), tell=self._tell),
            serving=Serving(token),
            admit_pods=lambda listening: self._admit_pods(front, listening),
            keep_logs=self._keep_logs,
            # There is no other scheduler here, whatever a manifest asks for.
            schedules_all=True,
        )
        await self._stack.enter_async_context(node)
        # Not before: pods are to have the usual number.
        allow_open_files()
        if node.kubelet is not None:
            self._cluster.trust_node(HOST, node.kubelet.port, authority_pem=node.kubelet.authority_pem, token=token)
        return node

    async def _admit_pods(self, front: HttpServer, listening: socket.socket | None) -> ApiAccess:
        inside = front if listening is None else await self._cluster.serve_on(listening)
        return ApiAccess(from_pods=_address(inside), from_host=_address(front))

    async def _start_operator(self, node: Node) -> None:
        settings = Settings(leader_election=False, bind_address=NO_ADDRESS)
        operator = Operator(settings, self._registry, transport=self._cluster.transport())
        # What breaks takes the cluster with it: nobody would look after the jobs, or after their pods, any more.
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        for name, work in (("operator", operator.run()), ("node", node.until_ended())):
            self._stack.callback(group.create_task(work, name=name).cancel)
        await operator.wait_synced()


def _address(front: HttpServer) -> ApiAddress:
    return ApiAddress(front.host, front.port, front.ca_pem or "")
