"""Test environment for Crons: an operator on the embedded API server and on virtual time, and the jobs that Crons create."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dlop.api.crd import build_cron_crd
from dlop.api.cron import CRONS
from dlop.embedded.apiserver.store import StoreEvent
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from tests.sim.operator_env import NAMESPACE, OperatorEnv, operator_env, settle
from tests.sim.ring_job import RingJob, ring

RINGS = RingJob.job_type.resource
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
FORBIDDEN = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "ringjobs is forbidden"}


def cron(schedule: str = "@every 10m", *, name: str = "nightly", workload: JsonObject | None = None, **fields: Any) -> JsonObject:
    template = {"apiVersion": "example.org/v1", "kind": "RingJob", "workload": workload or {"spec": ring(workers=1)["spec"]}}
    spec = {"schedule": schedule, "template": template, **fields}
    return {"apiVersion": CRONS.api_version, "kind": "Cron", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


class Jobs:
    """The jobs of a cluster from now on, with the names of all that were ever created."""

    def __init__(self, kit: OperatorKit) -> None:
        self._kit = kit
        self.start = float(int(kit.clock()))
        self.created: list[str] = []
        self.most_at_once = 0
        self._known: set[str] = set()
        kit.cluster.store.listeners.append(self._on_change)

    def _on_change(self, _: StoreEvent) -> None:
        stored = {key.name: str(job.body["metadata"]["uid"]) for key, job in self._kit.cluster.store.list(RINGS.qualified_name)}
        for name, uid in stored.items():
            if uid not in self._known:
                self._known.add(uid)
                self.created.append(name)
        unfinished = [job for _, job in self._kit.cluster.store.list(RINGS.qualified_name) if not _is_finished(job.body)]
        self.most_at_once = max(self.most_at_once, len(unfinished))

    @property
    def times(self) -> list[float]:
        """The scheduled times of the jobs of Crons, in seconds after the creation of this object."""
        return [int(time) - self.start for time in (name.rpartition("-")[2] for name in self.created) if time.isdecimal()]


def _is_finished(job: JsonObject) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True" for condition in conditions)


@asynccontextmanager
async def cron_kit(*, pod_seconds: float | None = MINUTE, operator: bool = True) -> AsyncIterator[tuple[OperatorKit, Jobs]]:
    """Pods succeed after `pod_seconds`; None means never."""
    async with OperatorKit([RingJob], operator=operator) as kit:
        await kit.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_cron_crd())
        await settle(5)
        if pod_seconds is not None:
            kit.script.when("*").run().after(pod_seconds).succeed()
        kit.script.when("*").run()
        yield kit, Jobs(kit)


async def submit(kit: OperatorKit | OperatorEnv, manifest: JsonObject) -> None:
    await kit.client.create(CRONS, manifest, namespace=NAMESPACE)


async def edit(kit: OperatorKit | OperatorEnv, spec: JsonObject, *, name: str = "nightly") -> None:
    await kit.client.patch(CRONS, name, {"spec": spec}, namespace=NAMESPACE)


async def status_of(kit: OperatorKit | OperatorEnv, name: str = "nightly") -> JsonObject:
    status: JsonObject = (await kit.client.get(CRONS, name, namespace=NAMESPACE)).get("status") or {}
    return status


async def blocked(kit: OperatorKit | OperatorEnv) -> tuple[str, str]:
    """Reason and message of the condition Blocked; empty if there is none."""
    conditions = (await status_of(kit)).get("conditions") or [{}]
    return conditions[0].get("reason", ""), conditions[0].get("message", "")


async def cron_events(kit: OperatorKit | OperatorEnv) -> Counter[str]:
    events = (await kit.client.list(EVENTS, namespace=NAMESPACE))["items"]
    return Counter(event["reason"] for event in events if event["regarding"]["kind"] == "Cron")


async def job_names(env: OperatorEnv) -> list[str]:
    return [job["metadata"]["name"] for job in (await env.client.list(RINGS, namespace=NAMESPACE))["items"]]


@asynccontextmanager
async def cron_env(*, installed: bool = True) -> AsyncIterator[OperatorEnv]:
    async with operator_env() as env:
        if installed:
            await env.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_cron_crd())
            await settle(1)
        yield env
