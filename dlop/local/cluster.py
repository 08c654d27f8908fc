"""A local cluster: API server, kubelet and operator in one process and one event loop.

    async with LocalCluster(registry, workdir=workdir) as cluster:
        await cluster.client.create(...)      # pods run on this machine

Other programs connect with the kubeconfig in the working directory: HTTPS on the loopback interface, with a token. Leaving the
context stops all pods.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from dlop.api.crd import build_crds, build_cron_crd
from dlop.embedded.apiserver.transports.http import HttpServer
from dlop.embedded.apiserver.transports.inprocess import InProcessTransport
from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.api_access import ApiAccess, ApiAddress
from dlop.embedded.kubelet.git_sync_image import GIT_SYNC
from dlop.embedded.kubelet.image_map import ImageMap
from dlop.embedded.kubelet.kubectl_delivery import KUBECTL_DELIVERY
from dlop.embedded.kubelet.kubelet import EmbeddedKubelet, KubeletServerConfig
from dlop.embedded.kubelet.machine import raise_open_file_limit
from dlop.embedded.kubelet.python_environments import PythonEnvironments, default_cache_dir
from dlop.embedded.kubelet.runtime.base import Mount
from dlop.embedded.kubelet.runtime.detect import DetectedRuntime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.embedded.kubelet.server.api import HOST
from dlop.frameworks.registry import Registry
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.local.operator_account import create_operator_account, request_operator_token
from dlop.local.options import LocalError, NodeOptions
from dlop.local.workdir import WorkDir
from dlop.operator.operator import Operator
from dlop.operator.settings import NO_ADDRESS, Settings


class LocalCluster:
    def __init__(
        self,
        registry: Registry,
        *,
        workdir: WorkDir,
        node: NodeOptions | None = None,
        runtime_detection: Awaitable[DetectedRuntime] | None = None,
        keep_logs: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`runtime_detection` is a `NodeOptions.choose_runtime` that has already started.

        `report` gets messages about slow operations. `keep_logs` keeps the logs of deleted pods.
        """
        self.workdir = workdir
        self.isolation = ""
        """How pods are isolated, in one line."""
        self._registry = registry
        self._node_options = node or NodeOptions()
        self._runtime_detection = runtime_detection
        self._keep_logs = keep_logs
        self._report = report
        self._cluster = EmbeddedCluster()
        self._stack = AsyncExitStack()
        self.client = self._cluster.client()
        """An in-process client of the administrator, without a socket."""

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
        """The resource of a kind; None if the cluster does not serve it."""
        resource_type = self._cluster.registry.by_kind(api_version, kind)
        return None if resource_type is None else resource_type.resource

    async def _start(self) -> None:
        # The detection starts processes, which takes a while. Start the API server in the meantime.
        detection = asyncio.ensure_future(self._runtime_detection or self._node_options.choose_runtime())
        try:
            await self._stack.enter_async_context(self._cluster)
            server = await self._cluster.serve()
            self.workdir.write_kubeconfig(server.kubeconfig())
            for crd in (*build_crds(self._registry), build_cron_crd()):
                await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
            detected = await detection
        finally:
            detection.cancel()
            await asyncio.gather(detection, return_exceptions=True)
        self.isolation = detected.description
        await self._start_operator(await self._start_kubelet(detected, server))

    async def _start_kubelet(self, detected: DetectedRuntime, server: HttpServer) -> EmbeddedKubelet:
        options, token = self._node_options, secrets.token_urlsafe(32)
        if not isinstance(detected.runtime, PlainRuntime):
            _check_mounts(options.mounts, self.workdir)
        kubelet = EmbeddedKubelet(
            self._cluster.client(),
            runtime=detected.runtime,
            root_dir=self.workdir.node,
            secret_dirs=(self.workdir.path,),
            cpus=options.cpus,
            memory_bytes=options.memory_bytes,
            extended_resources=options.extended_resources,
            images=ImageMap((*options.images, KUBECTL_DELIVERY, GIT_SYNC)),
            environments=PythonEnvironments(default_cache_dir(), report=self._report),
            server_config=KubeletServerConfig(token),
            open_api_access=lambda pod_socket: self._open_api_access(server, pod_socket),
            keep_logs=self._keep_logs,
            # There is no other scheduler, whatever schedulerName a manifest has.
            schedule_all=True,
        )
        await self._stack.enter_async_context(kubelet)
        # After the kubelet has started, because pods inherit the usual limit.
        raise_open_file_limit()
        if kubelet.server is not None:
            self._cluster.trust_kubelet(HOST, kubelet.server.port, ca_pem=kubelet.server.ca_pem, token=token)
        return kubelet

    async def _open_api_access(self, server: HttpServer, pod_socket: socket.socket | None) -> ApiAccess:
        pod_server = server if pod_socket is None else await self._cluster.serve_on(pod_socket)
        return ApiAccess(from_pods=_address(pod_server), from_host=_address(server))

    async def _start_operator(self, kubelet: EmbeddedKubelet) -> None:
        settings = Settings(leader_election=False, bind_address=NO_ADDRESS)
        await create_operator_account(self.client, self._registry)
        token = await request_operator_token(self.client)
        transport = InProcessTransport(self._cluster.server, token=token, renew_token=lambda: request_operator_token(self.client))
        operator = Operator(settings, self._registry, transport=transport, options=self._node_options.operator_options)
        # If the operator or the kubelet fails, the cluster stops.
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        for name, work in (("operator", operator.run()), ("kubelet", kubelet.wait())):
            self._stack.callback(group.create_task(work, name=name).cancel)
        await operator.wait_synced()


def _check_mounts(mounts: Sequence[Mount], workdir: WorkDir) -> None:
    for mount in mounts:
        if mount.source.is_relative_to(workdir.path):
            raise LocalError(
                f"pods must not see the directory {workdir.path}, which contains the kubeconfig, but need {mount.source}; "
                "choose another directory with --folder."
            )


def _address(server: HttpServer) -> ApiAddress:
    return ApiAddress(server.host, server.port, server.ca_pem or "")
