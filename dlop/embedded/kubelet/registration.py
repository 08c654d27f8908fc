"""Registers the node: creates its Node object and renews its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import structlog

from dlop.embedded.kubelet.node_object import LEASE_NAMESPACE, NodeProperties, lease_object, node_object
from dlop.embedded.kubelet.orphaned_pods import orphaned_status
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from dlop.kube.resources import LEASES, NODES, PODS
from dlop.kube.retry_backoff import ExponentialBackoff
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

_NOT_READY = "node.kubernetes.io/not-ready"


class Registration:
    def __init__(self, client: Client, properties: NodeProperties, *, clock: Callable[[], float], rng: Random) -> None:
        self._client = client
        self._properties = properties
        self._clock = clock
        self._rng = rng
        self._uid = ""

    async def register(self) -> None:
        """Create or adopt the Node object and mark it ready. Retries until it succeeds."""
        backoff = ExponentialBackoff(rng=self._rng, first_seconds=0.2, cap_seconds=7.0, reset_after_seconds=60.0)
        while True:
            try:
                await self._register_once()
                await self._renew_once()
                return
            except KubeError as error:
                log.warning("node registration failed, retrying", error=str(error))
                await asyncio.sleep(backoff.delay_seconds(now=asyncio.get_running_loop().time()))

    async def renew_lease(self, *, interval_seconds: float) -> None:
        while True:
            await asyncio.sleep(interval_seconds)
            try:
                await self._renew_once()
            except KubeError as error:
                log.warning("lease renewal failed", error=str(error))

    async def _register_once(self) -> None:
        desired = node_object(self._properties, now=self._clock())
        name = self._properties.name
        try:
            node = await self._client.create(NODES, desired)
        except AlreadyExistsError:
            labels = {"metadata": {"labels": desired["metadata"]["labels"]}}
            node = await self._client.patch(NODES, name, labels)
        self._uid = node["metadata"]["uid"]
        await self._client.patch(NODES, name, {"status": desired["status"]}, subresource="status")
        await self._make_schedulable(node)

    async def _make_schedulable(self, node: JsonObject) -> None:
        """Remove the not-ready taint of a new node. There is no node lifecycle controller here that would do it."""
        taints = (node.get("spec") or {}).get("taints") or []
        remaining = [taint for taint in taints if taint["key"] != _NOT_READY]
        if len(remaining) != len(taints):
            await self._client.patch(NODES, self._properties.name, {"spec": {"taints": remaining or None}})

    async def _renew_once(self) -> None:
        lease = lease_object(self._properties.name, now=self._clock(), owner_uid=self._uid)
        try:
            await self._client.patch(LEASES, self._properties.name, {"spec": lease["spec"]}, namespace=LEASE_NAMESPACE)
        except NotFoundError:
            await self._client.create(LEASES, lease, namespace=LEASE_NAMESPACE)


async def fail_orphaned_pod(client: Client, pod: JsonObject, *, now: float) -> None:
    """Write the final status of an orphaned pod, and delete it if its deletion was requested."""
    metadata = pod["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    body = {"metadata": {"uid": metadata["uid"]}, "status": orphaned_status(pod, now=now)}
    try:
        await client.patch(PODS, name, body, patch_type=PatchType.STRATEGIC, namespace=namespace, subresource="status")
        if metadata.get("deletionTimestamp"):
            await client.delete(PODS, name, namespace=namespace, uid=metadata["uid"], grace_seconds=0)
    except KubeError as error:
        log.warning("orphaned pod not updated", pod=name, namespace=namespace, error=str(error))
