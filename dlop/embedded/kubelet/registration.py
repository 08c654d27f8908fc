"""The node's own objects on the server: its Node and its lease, made when it comes and kept alive while it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import structlog

from dlop.embedded.kubelet.node_object import LEASE_NAMESPACE, NodeFacts, lease_object, node_object
from dlop.embedded.kubelet.orphaned_pods import lost_status
from dlop.kube.backoff import Backoff
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from dlop.kube.resources import LEASES, NODES, PODS
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

_NOT_READY = "node.kubernetes.io/not-ready"


class Registration:
    """Registers one node."""

    def __init__(self, client: Client, facts: NodeFacts, *, clock: Callable[[], float], rng: Random) -> None:
        self._client = client
        self._facts = facts
        self._clock = clock
        self._rng = rng
        self._uid = ""

    async def register(self) -> None:
        """Make the Node, or take over the one of a life before, and say that it is ready."""
        backoff = Backoff(rng=self._rng, first_seconds=0.2, cap_seconds=7.0, reset_after_seconds=60.0)
        while True:
            try:
                await self._register()
                await self._renew()
                return
            except KubeError as error:
                log.warning("the node cannot register yet", error=str(error))
                await asyncio.sleep(backoff.delay_seconds(now=asyncio.get_running_loop().time()))

    async def stay(self, *, every_seconds: float) -> None:
        """Renew the lease until cancelled."""
        while True:
            await asyncio.sleep(every_seconds)
            try:
                await self._renew()
            except KubeError as error:
                log.warning("the node's lease could not be renewed", error=str(error))

    async def _register(self) -> None:
        wanted = node_object(self._facts, now=self._clock())
        name = self._facts.name
        try:
            found = await self._client.create(NODES, wanted)
        except AlreadyExistsError:
            labels = {"metadata": {"labels": wanted["metadata"]["labels"]}}
            found = await self._client.patch(NODES, name, labels)
        self._uid = found["metadata"]["uid"]
        await self._client.patch(NODES, name, {"status": wanted["status"]}, subresource="status")
        await self._make_schedulable(found)

    async def _make_schedulable(self, node: JsonObject) -> None:
        """A new node is tainted until somebody has seen it ready. Here nobody else looks."""
        taints = (node.get("spec") or {}).get("taints") or []
        kept = [taint for taint in taints if taint["key"] != _NOT_READY]
        if len(kept) != len(taints):
            await self._client.patch(NODES, self._facts.name, {"spec": {"taints": kept or None}})

    async def _renew(self) -> None:
        lease = lease_object(self._facts.name, now=self._clock(), owner_uid=self._uid)
        try:
            await self._client.patch(LEASES, self._facts.name, {"spec": lease["spec"]}, namespace=LEASE_NAMESPACE)
        except NotFoundError:
            await self._client.create(LEASES, lease, namespace=LEASE_NAMESPACE)


async def tell_lost(client: Client, pod: JsonObject, *, now: float) -> None:
    """Write the last status of a pod whose processes are gone, and let it go if it was to be deleted."""
    metadata = pod["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    body = {"metadata": {"uid": metadata["uid"]}, "status": lost_status(pod, now=now)}
    try:
        await client.patch(PODS, name, body, patch_type=PatchType.STRATEGIC, namespace=namespace, subresource="status")
        if metadata.get("deletionTimestamp"):
            await client.delete(PODS, name, namespace=namespace, uid=metadata["uid"], grace_seconds=0)
    except KubeError as error:
        log.warning("a pod of the node's last life could not be told of", pod=name, namespace=namespace, error=str(error))
