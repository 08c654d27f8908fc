"""Crons on the embedded API server and on virtual time: each job is created once, whatever happens to the operator."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from dlop.api.crd import build_crds, build_cron_crd
from dlop.api.cron import CRONS
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.embedded.apiserver.store import StoreEvent
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, PODS
from dlop.kube.timestamps import format_time
from dlop.kube.transport import Request
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.faulty_transport import Crash, Rejected, ResponseLost, SideEffect, WriteFault
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, OperatorEnv, operator_env, settle
from tests.sim.ring_job import RingJob, ring

RINGS = RingJob.job_type.resource
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
FORBIDDEN = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "ringjobs is forbidden"}
LEADING = Settings.model_validate({"leader_election": True, "bind_address": "off"})


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


# --- the life of a Cron --------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_cron_creates_jobs_and_reports_about_them() -> None:
    async with cron_kit() as (kit, jobs):
        await submit(kit, cron())
        await settle(35 * MINUTE)
        assert jobs.times == [10 * MINUTE, 20 * MINUTE, 30 * MINUTE]
        status = await status_of(kit)
        assert status["lastScheduleTime"] == format_time(jobs.start + 30 * MINUTE)
        assert [(entry["object"]["name"], entry["status"]) for entry in status["history"]] == [(name, "Succeeded") for name in jobs.created]
        assert all(entry["finished"] > entry["created"] for entry in status["history"])
        assert "active" not in status
        assert await cron_events(kit) == {"SuccessfulCreate": 3, "SawCompletedWorkload": 3}
        assert len(await kit.writes_when_idle(settle_seconds=0, seconds=4 * MINUTE)) == 0


@virtual_time
async def test_a_cron_writes_and_reads_nothing_until_its_job_is_due() -> None:
    async with cron_env() as env, env.run_operator():
        await submit(env, cron("0 0 1 1 *"))
        await settle(MINUTE)
        env.clear_requests()
        await settle(DAY)
        assert env.transport.requests == []


@virtual_time
async def test_the_jobs_of_a_deleted_cron_are_deleted_and_no_more_are_created() -> None:
    async with cron_kit(pod_seconds=None) as (kit, jobs):
        await submit(kit, cron())
        await settle(11 * MINUTE)
        assert len(await kit.cluster.client().list(PODS, namespace=NAMESPACE)) > 0
        await kit.client.delete(CRONS, "nightly", namespace=NAMESPACE)
        await settle(30 * MINUTE)
        assert (await kit.client.list(RINGS, namespace=NAMESPACE))["items"] == []
        assert (await kit.client.list(PODS, namespace=NAMESPACE))["items"] == []
        assert jobs.times == [10 * MINUTE]
        assert kit.operator.operator.tracked_jobs == 0


@virtual_time
async def test_a_job_is_created_after_its_ttl_has_removed_the_one_before() -> None:
    async with cron_kit() as (kit, jobs):
        await submit(kit, cron(workload={"metadata": {"name": "train"}, "spec": ring(workers=1, ttlSecondsAfterFinished=900)["spec"]}))
        await settle(20 * MINUTE + 30)
        assert (await blocked(kit))[0] == "NameConflict"
        await settle(12 * MINUTE)
        assert jobs.created == ["train", "train"]
        assert (await blocked(kit))[0] == "NameConflict"  # the third job is due, and the second exists
        assert (await cron_events(kit))["OverridePolicy"] > 0


@virtual_time
async def test_a_suspended_cron_creates_nothing_until_it_is_resumed() -> None:
    async with cron_kit() as (kit, jobs):
        await submit(kit, cron(suspend=True))
        await settle(35 * MINUTE)
        assert jobs.times == []
        await edit(kit, {"suspend": False})
        await settle(MINUTE)
        assert jobs.times == [30 * MINUTE]


@virtual_time
async def test_a_new_schedule_takes_effect_at_once() -> None:
    async with cron_kit() as (kit, jobs):
        await submit(kit, cron("@every 24h"))
        await settle(MINUTE)
        await edit(kit, {"schedule": "@every 5m"})
        await settle(10 * MINUTE)
        assert jobs.times == [5 * MINUTE, 10 * MINUTE]


@virtual_time
async def test_nothing_is_created_after_the_deadline() -> None:
    async with cron_kit() as (kit, jobs):
        await submit(kit, cron(deadline=format_time(jobs.start + 25 * MINUTE)))
        await settle(2 * HOUR)
        assert jobs.times == [10 * MINUTE, 20 * MINUTE]
        assert (await blocked(kit))[0] == "Deadline"
        assert (await cron_events(kit))["Deadline"] == 1


@virtual_time
async def test_a_schedule_follows_its_time_zone() -> None:
    async with cron_kit() as (kit, jobs):
        await submit(kit, cron("0 0 * * *", timeZone="Asia/Tokyo"))
        await settle(DAY)
        assert [time for time in jobs.times if (jobs.start + time) % DAY == 15 * HOUR] == jobs.times
        assert len(jobs.times) == 1


# --- concurrency ---------------------------------------------------------------------------------------------------------


@virtual_time
async def test_forbid_lets_jobs_wait_for_each_other() -> None:
    async with cron_kit(pod_seconds=25 * MINUTE) as (kit, jobs):
        await submit(kit, cron(concurrencyPolicy="Forbid"))
        await settle(25 * MINUTE)
        assert (await blocked(kit))[0] == "AlreadyActive"
        await settle(80 * MINUTE)
        assert jobs.most_at_once == 1
        assert jobs.times[:2] == [10 * MINUTE, 30 * MINUTE]
        assert (await cron_events(kit))["AlreadyActive"] == len(jobs.times)


@virtual_time
async def test_replace_deletes_the_job_that_runs() -> None:
    async with cron_kit(pod_seconds=None) as (kit, jobs):
        await submit(kit, cron(concurrencyPolicy="Replace"))
        await settle(35 * MINUTE)
        assert jobs.times == [10 * MINUTE, 20 * MINUTE, 30 * MINUTE]
        assert jobs.most_at_once == 1
        assert [pod["metadata"]["name"] for pod in (await kit.client.list(PODS, namespace=NAMESPACE))["items"]] == [
            f"{jobs.created[-1]}-worker-0"
        ]
        assert (await cron_events(kit))["SuccessfulDelete"] == 2


@virtual_time
async def test_allow_lets_jobs_overlap() -> None:
    async with cron_kit(pod_seconds=None) as (kit, jobs):
        await submit(kit, cron())
        await settle(35 * MINUTE)
        assert jobs.most_at_once == 3
        assert len((await status_of(kit))["active"]) == 3


# --- crashes and faults --------------------------------------------------------------------------------------------------


EXPECTED = [2 * MINUTE, 4 * MINUTE, 6 * MINUTE]


@dataclass
class NthWrite:
    """Selects a fault for one of the writes that the controller of Crons sends."""

    number: int
    fault: WriteFault
    seen: int = 0

    def __call__(self, _: int, request: Request) -> WriteFault | None:
        is_own = CRONS.plural in request.path or (RINGS.plural in request.path and request.method in ("POST", "DELETE"))
        self.seen += is_own
        return self.fault if is_own and self.seen == self.number else None


async def run_three_times(*, policy: str, selected: NthWrite) -> tuple[list[float], int]:
    """Run a Cron with a fault of one write. Returns the times of the jobs, and how many ran at once."""
    async with cron_kit(operator=False, pod_seconds=30) as (kit, jobs):
        operator = await kit.start_operator()
        operator.transport.inject_faults_by(selected)
        await submit(kit, cron("@every 2m", concurrencyPolicy=policy))
        for _ in range(15):
            await settle(MINUTE / 2)
            if operator.transport.disconnected.is_set() and kit.operator is operator:
                await operator.crash()
                await settle(5)
                await kit.start_operator()
        return jobs.times, jobs.most_at_once


def run_with_each_fault(*, policy: str, fault: WriteFault) -> Iterator[tuple[int, list[float], int]]:
    """For each write of the run: its number, the times of the jobs, and how many ran at once."""
    for number in itertools.count(1):
        selected = NthWrite(number, fault)
        times, most_at_once = _run(run_three_times, policy=policy, selected=selected)
        if selected.seen < number:
            assert number > 10
            return
        yield number, times, most_at_once


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
def test_a_cron_creates_each_job_once_although_the_operator_crashes_after_any_write(policy: str) -> None:
    for number, times, _ in run_with_each_fault(policy=policy, fault=Crash()):
        assert times == EXPECTED, f"crash after write {number}"


@pytest.mark.parametrize("fault", [ResponseLost(), Rejected(409), Rejected(429), Rejected(500)], ids=str)
def test_a_cron_creates_each_job_once_although_any_write_fails(fault: WriteFault) -> None:
    for number, times, most_at_once in run_with_each_fault(policy="Forbid", fault=fault):
        assert (times, most_at_once) == (EXPECTED, 1), f"fault of write {number}"


def _run(work: Callable[..., Any], **arguments: Any) -> Any:
    @virtual_time
    async def run() -> Any:
        return await work(**arguments)

    return run()


@virtual_time
async def test_two_operators_create_each_job_once_when_the_leader_fails_at_the_scheduled_time() -> None:
    async with cron_kit(operator=False) as (kit, jobs):
        first = await kit.start_operator(settings=LEADING)
        await settle(30)
        await kit.start_operator(settings=LEADING)
        start = kit.clock() - jobs.start
        await submit(kit, cron())
        await settle(9 * MINUTE)
        # The leader creates the job, cannot write the status, and loses the lease.
        first.transport.inject_faults_by(lambda _, request: Rejected(500) if "crons" in request.path else None)
        await settle(2 * MINUTE)
        await first.crash()
        await settle(25 * MINUTE)
        assert jobs.times == [start + 10 * MINUTE, start + 20 * MINUTE, start + 30 * MINUTE]
        assert len((await status_of(kit))["history"]) == 3


@virtual_time
async def test_a_new_leader_with_stale_caches_creates_no_second_job() -> None:
    async with cron_env() as env, AsyncExitStack() as first:
        await first.enter_async_context(env.run_operator(identity="one", leader_election=True))
        await settle(5)
        async with env.run_operator(identity="two", leader_election=True) as second:
            await submit(env, cron(concurrencyPolicy="Forbid"))
            await settle(5)
            held = [env.faults.hold_watches(match=RequestMatch(plural=plural)) for plural in ("ringjobs", "crons")]
            await settle(10 * MINUTE)
            [name] = await job_names(env)
            # Its job may have been deleted, so its name proves nothing.
            await env.client.delete(RINGS, name, namespace=NAMESPACE)
            await first.aclose()
            await settle(2 * MINUTE)
            assert second.is_leading
            assert await job_names(env) == []
            for hold in held:
                hold.release()
            await settle(9 * MINUTE)
            assert len(await job_names(env)) == 1


@virtual_time
async def test_forbid_holds_although_the_new_leader_does_not_see_the_job_that_runs() -> None:
    async with cron_env() as env, AsyncExitStack() as first:
        await first.enter_async_context(env.run_operator(identity="one", leader_election=True))
        await settle(5)
        async with env.run_operator(identity="two", leader_election=True) as second:
            await submit(env, cron("@every 1m", concurrencyPolicy="Forbid"))
            await settle(50)
            held = env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
            statuses = env.faults.fail_before(None, match=RequestMatch(verb="patch", plural="crons"), times=1_000_000)
            await settle(15)
            assert await status_of(env) == {}
            # The next job is due before there is a new leader, so the name of the job that runs is not tried again.
            leases = env.faults.fail_before(None, match=RequestMatch(plural="leases"), times=1_000_000)
            await first.aclose()
            statuses.times = 0
            await settle(MINUTE)
            leases.times = 0
            await settle(15)
            assert second.is_leading
            assert len(await job_names(env)) == 1
            held.release()
            await settle(MINUTE)
            assert len(await job_names(env)) == 1


@virtual_time
async def test_an_edit_between_the_creation_of_the_job_and_the_status_write_changes_nothing() -> None:
    async with cron_kit(operator=False) as (kit, jobs):
        operator = await kit.start_operator()
        await submit(kit, cron())
        await settle(9 * MINUTE)
        label = {"metadata": {"labels": {"edited": "yes"}}}
        change = SideEffect(lambda: kit.start_soon(lambda: kit.client.patch(CRONS, "nightly", label, namespace=NAMESPACE)))
        operator.transport.inject_faults_by(lambda _, request: change if request.method == "POST" and "ringjobs" in request.path else None)
        await settle(26 * MINUTE)
        assert jobs.times == [10 * MINUTE, 20 * MINUTE, 30 * MINUTE]


# --- installation and permissions ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_cluster_without_crons_is_not_asked_for_them_and_crons_can_be_installed_later() -> None:
    async with cron_env(installed=False) as env, env.run_operator():
        await settle(HOUR)
        assert not [request for request in env.transport.requests if "apps.kubedl.io" in request.path]
        await env.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_cron_crd())
        await settle(5)
        await submit(env, cron())
        await settle(11 * MINUTE)
        assert len(await job_names(env)) == 1


@virtual_time
async def test_a_cron_waits_for_the_crd_of_its_jobs_and_says_so() -> None:
    async with OperatorKit([RingJob]) as kit:
        [crd] = build_crds([RingJob])
        await kit.client.delete(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"])
        await kit.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_cron_crd())
        await settle(5)
        await submit(kit, cron())
        await settle(MINUTE)
        reason, message = await blocked(kit)
        assert reason == "InvalidSpec"
        expected = "must be a kind of job that the operator runs and whose CRD is installed, got example.org/v1 RingJob"
        assert message == f"spec.template.kind: {expected}"
        await kit.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        await settle(MINUTE)
        assert await blocked(kit) == ("", "")
        jobs = Jobs(kit)
        await settle(10 * MINUTE)
        assert len(jobs.created) == 1


@virtual_time
async def test_an_operator_of_some_kinds_leaves_the_crons_of_other_kinds_alone() -> None:
    async with cron_env() as env, env.run_operator(kinds=("RingJob",)):
        other = cron(name="other")
        other["spec"]["template"]["kind"] = "StarJob"
        await submit(env, other)
        await submit(env, cron())
        await settle(11 * MINUTE)
        assert await status_of(env, "other") == {}
        assert len(await job_names(env)) == 1


@virtual_time
async def test_a_cron_without_the_permission_says_which_one_is_missing_and_disturbs_nothing_else() -> None:
    async with cron_env() as env, env.run_operator():
        fault = env.faults.fail_before(FORBIDDEN, match=RequestMatch(verb="create", plural="ringjobs"), times=1_000_000)
        await submit(env, cron())
        await settle(11 * MINUTE)
        reason, message = await blocked(env)
        assert reason == "Forbidden"
        assert message.startswith("cannot create RingJob nightly-")
        assert message.endswith(
            "ringjobs is forbidden; add `--with cron:default`, or `--with cron` for all namespaces, to the `dlop deploy` line that was used"
        )
        env.clear_requests()
        await settle(4 * MINUTE)
        assert len(env.writes()) < 5  # with a back-off of up to two minutes
        fault.times = 0
        await settle(3 * MINUTE)
        assert (await blocked(env), len(await job_names(env))) == (("", ""), 1)


@virtual_time
async def test_a_job_of_another_owner_keeps_its_name_until_it_is_deleted() -> None:
    async with cron_env() as env, env.run_operator():
        await env.submit(ring("train", workers=1))
        await submit(env, cron(workload={"metadata": {"name": "train"}, "spec": ring(workers=1)["spec"]}))
        await settle(11 * MINUTE)
        assert await blocked(env) == ("NameConflict", "RingJob train exists and does not belong to this Cron; delete it")
        await env.delete_job("train")
        await settle(5)
        [job] = (await env.client.list(RINGS, namespace=NAMESPACE))["items"]
        assert job["metadata"]["ownerReferences"][0]["kind"] == "Cron"


# --- bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "61 * * * *"}, "spec.schedule: has an invalid minute field, '61'; write minute, hour, day of month"),
        ({"timeZone": "Mars/Olympus"}, "spec.timeZone: must be the name of a time zone, such as Europe/Paris, got 'Mars/Olympus'"),
        ({"template": {"workload": {"metadata": {"namespace": "kube-system"}}}}, "spec.template.workload.metadata.namespace: must be the"),
        ({"template": {"apiVersion": "example.org/v9"}}, "spec.template.apiVersion: must be example.org/v1, got example.org/v9"),
        ({"template": {"kind": "Deployment", "apiVersion": "apps/v1"}}, "spec.template.kind: must be a kind of job that the operator runs"),
        ({"template": {"kind": "Cron", "apiVersion": CRONS.api_version}}, "spec.template.kind: must be a kind of job that the operator"),
        ({"template": {"workload": {"spec": None}}}, "spec.template.workload.spec.replicaSpecs: must contain at least one role"),
        (
            {"template": {"workload": {"spec": {"replicaSpecs": {"Worker": {"replicas": -1}}}}}},
            "spec.template.workload.spec.replicaSpecs.Worker.replicas: must be from 0 to 10000, got -1",
        ),
    ],
)
@virtual_time
async def test_a_bad_cron_says_what_is_wrong_and_runs_when_it_is_fixed(change: JsonObject, message: str) -> None:
    async with cron_env() as env, env.run_operator():
        await submit(env, cron())
        await submit(env, cron(name="good"))
        await edit(env, change)
        await settle(15 * MINUTE)
        reason, actual = await blocked(env)
        assert reason == "InvalidSpec"
        assert actual.startswith(message)
        assert [name.rpartition("-")[0] for name in await job_names(env)] == ["good"]
        assert (await cron_events(env))["InvalidSpec"] == 1
        await env.client.delete(CRONS, "good", namespace=NAMESPACE)
        fixed = cron()
        stored = await env.client.get(CRONS, "nightly", namespace=NAMESPACE)
        await env.client.replace(CRONS, "nightly", {**stored, "spec": fixed["spec"]}, namespace=NAMESPACE)
        await settle(5)
        assert await blocked(env) == ("", "")
        assert "nightly" in [name.rpartition("-")[0] for name in await job_names(env)]


@virtual_time
async def test_a_job_that_the_api_server_rejects_is_reported() -> None:
    async with cron_env() as env, env.run_operator():
        await submit(env, cron(workload={"metadata": {"labels": {"bad key!": "x"}}, "spec": ring(workers=1)["spec"]}))
        await settle(11 * MINUTE)
        reason, message = await blocked(env)
        assert (reason, "bad key!" in message) == ("FailedCreate", True)


@virtual_time
async def test_a_cron_with_a_long_name_creates_a_job() -> None:
    async with cron_env() as env, env.run_operator():
        name = "long." * 50 + "end"
        await submit(env, cron(name=name))
        await settle(11 * MINUTE)
        assert len(await job_names(env)) == 1
        with pytest.raises(NotFoundError):
            await env.client.get(CRONS, "nightly", namespace=NAMESPACE)
