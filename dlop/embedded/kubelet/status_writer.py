"""Writes the status of one pod to the API server. Bursts of changes are merged, and the last status is always written."""

from __future__ import annotations

import asyncio
from random import Random

import structlog

from dlop.kube.client import Client, PatchType
from dlop.kube.errors import ConflictError, KubeError, NotFoundError, StatusError
from dlop.kube.resources import PODS
from dlop.kube.retry_backoff import ExponentialBackoff
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

# Changes within this time are written together, because a container that starts has three states within a few milliseconds.
_BURST_SECONDS = 0.01
# Fields that may be removed from a status. A merge patch must name them to remove them.
_REMOVABLE_FIELDS = ("reason", "message", "podIP", "podIPs")


class StatusWriter:
    def __init__(self, client: Client, pod: JsonObject, *, rng: Random) -> None:
        self._client = client
        self._namespace: str = pod["metadata"]["namespace"]
        self._name: str = pod["metadata"]["name"]
        self._uid: str = pod["metadata"]["uid"]
        self._written: JsonObject = pod.get("status") or {}
        self._desired: JsonObject | None = None
        self._changed = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._backoff = ExponentialBackoff(rng=rng, first_seconds=0.1, cap_seconds=10.0, reset_after_seconds=60.0)
        self._is_deleted = False

    def set_status(self, status: JsonObject) -> None:
        """Queue a status. Does not block."""
        if status == (self._desired or self._written) or self._is_deleted:
            return
        self._desired = status
        self._flushed.clear()
        self._changed.set()

    def mark_deleted(self) -> None:
        """The pod object no longer exists, so nothing is written to it."""
        self._is_deleted = True
        self._flushed.set()

    async def wait_flushed(self) -> None:
        """Wait until the last status is written, or the pod object is deleted."""
        await self._flushed.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_BURST_SECONDS)
            self._changed.clear()
            status, self._desired = self._desired, None
            if status is not None and status != self._written and not self._is_deleted:
                await self._write(status)
            if not self._changed.is_set() or self._is_deleted:
                self._flushed.set()

    async def _write(self, status: JsonObject) -> None:
        """Retry until the status is written or a newer one is queued."""
        while not self._is_deleted and self._desired is None:
            try:
                await self._patch(status)
                self._written = status
                return
            except NotFoundError:
                self._is_deleted = True
            except ConflictError:
                await self._check_uid()
            except KubeError as error:
                if isinstance(error, StatusError) and error.code in (400, 422):
                    log.error("pod status rejected", pod=self._name, namespace=self._namespace, error=str(error))
                    return
                log.warning("pod status update failed, retrying", pod=self._name, namespace=self._namespace, error=str(error))
                await asyncio.sleep(self._backoff.delay_seconds(now=asyncio.get_running_loop().time()))

    async def _patch(self, status: JsonObject) -> None:
        body = {"metadata": {"uid": self._uid}, "status": _status_patch(status, self._written)}
        await self._client.patch(PODS, self._name, body, patch_type=PatchType.STRATEGIC, namespace=self._namespace, subresource="status")

    async def _check_uid(self) -> None:
        """After a conflict, find out whether the pod was replaced. Otherwise the write is retried."""
        try:
            pod = await self._client.get(PODS, self._name, namespace=self._namespace)
            self._is_deleted = pod["metadata"]["uid"] != self._uid
        except NotFoundError:
            self._is_deleted = True
        except KubeError:
            await asyncio.sleep(self._backoff.delay_seconds(now=asyncio.get_running_loop().time()))


def _status_patch(status: JsonObject, written: JsonObject) -> JsonObject:
    """A strategic merge patch from `written` to `status`, with null for removed fields."""
    removed = {name: None for name in _REMOVABLE_FIELDS if name in written and name not in status}
    previous = {condition["type"]: condition for condition in written.get("conditions") or ()}
    conditions = [{**dict.fromkeys(previous.get(condition["type"], ())), **condition} for condition in status["conditions"]]
    return {**status, **removed, "conditions": conditions}
