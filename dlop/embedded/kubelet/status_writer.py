"""Writes the status of one pod to the server: one write for a burst of changes, and the last word always gets through."""

from __future__ import annotations

import asyncio
from random import Random

import structlog

from dlop.kube.backoff import Backoff
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import ConflictError, KubeError, NotFoundError, StatusError
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

# Changes within this time are told at once: a container that starts goes through three states in a few milliseconds.
_BURST_SECONDS = 0.01
# What a status may lose again. In a patch, what is not named stays.
_CAN_VANISH = ("reason", "message", "podIP", "podIPs")


class StatusWriter:
    """The one who writes a pod's status."""

    def __init__(self, client: Client, pod: JsonObject, *, rng: Random) -> None:
        self._client = client
        self._namespace: str = pod["metadata"]["namespace"]
        self._name: str = pod["metadata"]["name"]
        self._uid: str = pod["metadata"]["uid"]
        self._written: JsonObject = pod.get("status") or {}
        self._wanted: JsonObject | None = None
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._backoff = Backoff(rng=rng, first_seconds=0.1, cap_seconds=10.0, reset_after_seconds=60.0)
        self.is_gone = False
        """The pod does not exist any more."""

    def tell(self, status: JsonObject) -> None:
        """This is the status now. Returns at once."""
        if status == (self._wanted or self._written) or self.is_gone:
            return
        self._wanted = status
        self._settled.clear()
        self._changed.set()

    def give_up(self) -> None:
        """There is no pod to write to any more."""
        self.is_gone = True
        self._settled.set()

    async def settled(self) -> None:
        """Wait until the last status is written, or there is no pod to write it to."""
        await self._settled.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_BURST_SECONDS)
            self._changed.clear()
            status, self._wanted = self._wanted, None
            if status is not None and status != self._written and not self.is_gone:
                await self._write(status)
            if not self._changed.is_set() or self.is_gone:
                self._settled.set()

    async def _write(self, status: JsonObject) -> None:
        """Write until it is written, or something newer is to be."""
        while not self.is_gone and self._wanted is None:
            try:
                await self._patch(status)
                self._written = status
                return
            except NotFoundError:
                self.is_gone = True
            except ConflictError:
                await self._look_who_is_there()
            except KubeError as error:
                if isinstance(error, StatusError) and error.code in (400, 422):
                    log.error("the server refuses a pod's status", pod=self._name, namespace=self._namespace, error=str(error))
                    return
                log.warning("a pod's status is written again", pod=self._name, namespace=self._namespace, error=str(error))
                await asyncio.sleep(self._backoff.delay_seconds(now=asyncio.get_running_loop().time()))

    async def _patch(self, status: JsonObject) -> None:
        body = {"metadata": {"uid": self._uid}, "status": _difference(status, self._written)}
        await self._client.patch(PODS, self._name, body, patch_type=PatchType.STRATEGIC, namespace=self._namespace, subresource="status")

    async def _look_who_is_there(self) -> None:
        """A conflict is another pod of this name, or a race that may be run again."""
        try:
            found = await self._client.get(PODS, self._name, namespace=self._namespace)
            self.is_gone = found["metadata"]["uid"] != self._uid
        except NotFoundError:
            self.is_gone = True
        except KubeError:
            await asyncio.sleep(self._backoff.delay_seconds(now=asyncio.get_running_loop().time()))


def _difference(status: JsonObject, written: JsonObject) -> JsonObject:
    """The patch that makes one status of the other. What it does not name stays, so what vanishes is named."""
    vanished = {name: None for name in _CAN_VANISH if name in written and name not in status}
    before = {each["type"]: each for each in written.get("conditions") or ()}
    conditions = [{**dict.fromkeys(before.get(each["type"], ())), **each} for each in status["conditions"]]
    return {**status, **vanished, "conditions": conditions}
