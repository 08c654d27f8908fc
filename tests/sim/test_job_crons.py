"""Jobs with a `cronPolicy`: each has a Cron of its name, which creates it again and outlives it."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.api.crd import build_cron_crd
from dlop.api.cron import CRONS, SOURCE_ANNOTATION
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.kube.client import PatchType
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubedl_manifests import kubedl_job
from tests.sim.cron_env import FORBIDDEN, MINUTE, cron, cron_env, cron_kit
from tests.sim.operator_env import NAMESPACE, OperatorEnv, settle
from tests.sim.pair_job import PairJob, pair
from tests.sim.ring_job import RingJob, ring

RINGS = RingJob.job_type.resource
EVERY_10_MINUTES = {"schedule": "@every 10m", "concurrencyPolicy": "Forbid"}


def scheduled_ring(name: str = "train", policy: JsonObject | None = None, **run_policy: Any) -> JsonObject:
    return ring(name, workers=1, cronPolicy=policy or EVERY_10_MINUTES, **run_policy)


async def get_cron(env: OperatorKit | OperatorEnv, name: str = "train") -> JsonObject | None:
    try:
        return await env.client.get(CRONS, name, namespace=NAMESPACE)
    except NotFoundError:
        return None


async def job_events(env: OperatorKit | OperatorEnv, reason: str) -> list[str]:
    """The messages of the events about jobs with a reason."""
    events = (await env.client.list(EVENTS, namespace=NAMESPACE))["items"]
    return [event["note"] for event in events if event["reason"] == reason and event["regarding"]["kind"] != "Cron"]


@virtual_time
async def test_a_job_with_a_schedule_runs_at_once_and_again_and_again_after_its_ttl() -> None:
    async with cron_kit() as (kit, jobs):
        job = scheduled_ring(ttlSecondsAfterFinished=60)
        await kit.client.create(RINGS, {**job, "metadata": {**job["metadata"], "labels": {"team": "a"}}}, namespace=NAMESPACE)
        await settle(34 * MINUTE)
        assert jobs.created[0] == "train"
        assert [name.rpartition("-")[0] for name in jobs.created[1:]] == ["train"] * 3
        assert jobs.times == [10 * MINUTE, 20 * MINUTE, 30 * MINUTE]
        stored = await get_cron(kit)
        assert stored is not None
        assert "ownerReferences" not in stored["metadata"]
        assert {name: stored["spec"][name] for name in EVERY_10_MINUTES} == EVERY_10_MINUTES
        template = {"metadata": {"labels": {"team": "a"}}, "spec": ring(workers=1, ttlSecondsAfterFinished=60)["spec"]}
        assert stored["spec"]["template"] == {"apiVersion": "example.org/v1", "kind": "RingJob", "workload": template}
        assert (await kit.client.list(RINGS, namespace=NAMESPACE))["items"] == []
        assert len(await kit.writes_when_idle(settle_seconds=0, seconds=4 * MINUTE)) == 0


@virtual_time
async def test_the_inline_policy_of_kubedl_is_understood() -> None:
    async with OperatorKit([TFJob]) as kit:
        await kit.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_cron_crd())
        await settle(5)
        await kit.submit(kubedl_job(TFJob, {"Worker": 1}, cronPolicy={"schedule": "0 2 * * *", "historyLimit": 3}))
        await settle(MINUTE)
        stored = await get_cron(kit, "demo")
        assert stored is not None
        assert (stored["spec"]["schedule"], stored["spec"]["historyLimit"]) == ("0 2 * * *", 3)
        assert stored["spec"]["template"]["workload"]["spec"] == kubedl_job(TFJob, {"Worker": 1})["spec"]


@virtual_time
async def test_an_edit_of_the_job_updates_its_cron_and_an_edit_of_the_cron_stays() -> None:
    async with cron_env() as env, env.run_operator():
        await env.submit(scheduled_ring())
        await settle(5)
        await env.client.patch(CRONS, "train", {"spec": {"suspend": True}}, namespace=NAMESPACE)
        await settle(20 * MINUTE)
        stored = await get_cron(env)
        assert stored is not None
        assert stored["spec"]["suspend"] is True
        policy = {"schedule": "@daily", "concurrencyPolicy": None}
        await env.client.patch(RINGS, "train", {"spec": {"runPolicy": {"cronPolicy": policy}}}, namespace=NAMESPACE)
        await settle(5)
        stored = await get_cron(env)
        assert stored is not None
        assert {name for name in stored["spec"] if name != "template"} == {"schedule"}
        assert stored["spec"]["schedule"] == "@daily"
        assert stored["metadata"]["annotations"][SOURCE_ANNOTATION].endswith("/2")


@virtual_time
async def test_a_cron_that_was_deleted_comes_back_while_its_job_asks_for_it() -> None:
    async with cron_env() as env, env.run_operator():
        await env.submit(scheduled_ring())
        await settle(5)
        await env.client.delete(CRONS, "train", namespace=NAMESPACE)
        await settle(5)
        assert await get_cron(env) is not None
        await env.delete_job("train")
        await env.client.delete(CRONS, "train", namespace=NAMESPACE)
        await settle(5)
        assert await get_cron(env) is None


@pytest.mark.parametrize("edit", ["delete the job", "remove the policy"])
@virtual_time
async def test_a_cron_that_was_deleted_does_not_come_back_although_the_job_cache_is_stale(edit: str) -> None:
    async with cron_env() as env, env.run_operator():
        await env.submit(scheduled_ring(suspend=True))  # without pods, which the operator would create again
        await settle(5)
        hold = env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
        if edit == "delete the job":
            await env.client.delete(RINGS, "train", namespace=NAMESPACE)
        else:
            await env.client.patch(RINGS, "train", {"spec": {"runPolicy": {"cronPolicy": None}}}, namespace=NAMESPACE)
        await env.client.delete(CRONS, "train", namespace=NAMESPACE)
        await settle(5)
        assert await get_cron(env) is None
        hold.release()
        await settle(5)
        assert await get_cron(env) is None


@virtual_time
async def test_a_cron_keeps_the_newer_policy_of_its_job_although_the_job_cache_is_stale() -> None:
    async with cron_env() as env, env.run_operator():
        await env.submit(scheduled_ring())
        await settle(5)
        hold = env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
        job = await env.client.patch(RINGS, "train", {"spec": {"runPolicy": {"cronPolicy": {"suspend": True}}}}, namespace=NAMESPACE)
        # As by an earlier leader.
        source = f"{job['metadata']['uid']}/{job['metadata']['generation']}"
        update = {"metadata": {"annotations": {SOURCE_ANNOTATION: source}}, "spec": {"suspend": True}}
        await env.client.patch(CRONS, "train", update, namespace=NAMESPACE)
        env.clear_requests()
        await settle(5)
        assert [write.path for write in env.writes(plural="crons") if write.path.endswith("/train")] == []
        hold.release()
        await settle(5)
        stored = await get_cron(env)
        assert stored is not None
        assert stored["spec"]["suspend"] is True


@virtual_time
async def test_a_new_operator_creates_the_cron_that_the_last_one_did_not() -> None:
    async with cron_env() as env:
        await env.submit(scheduled_ring())
        async with env.run_operator():
            await settle(5)
            assert await get_cron(env) is not None
            env.clear_requests()
        async with env.run_operator(identity="two"):
            await settle(5)
            assert env.writes(plural="crons") == []


@virtual_time
async def test_a_job_of_a_cron_has_no_cron_of_its_own() -> None:
    async with cron_env() as env, env.run_operator():
        workload = {"spec": ring(workers=1, cronPolicy=EVERY_10_MINUTES)["spec"]}
        await env.client.create(CRONS, cron(workload=workload), namespace=NAMESPACE)
        await settle(15 * MINUTE)
        assert [item["metadata"]["name"] for item in (await env.client.list(CRONS, namespace=NAMESPACE))["items"]] == ["nightly"]
        assert len((await env.client.list(RINGS, namespace=NAMESPACE))["items"]) == 1


@virtual_time
async def test_a_cron_of_the_user_is_not_changed() -> None:
    async with cron_env() as env, env.run_operator():
        await env.client.create(CRONS, cron("@daily", name="train"), namespace=NAMESPACE)
        await env.submit(scheduled_ring())
        await settle(5)
        stored = await get_cron(env)
        assert stored is not None
        assert stored["spec"]["schedule"] == "@daily"
        [note] = await job_events(env, "NameConflict")
        assert note == "cronPolicy has no effect: Cron train exists and was not created for this job; delete or rename one of them"


@virtual_time
async def test_a_job_of_another_kind_does_not_take_over_the_cron_of_its_name() -> None:
    async with OperatorKit([PairJob, RingJob]) as kit:
        await kit.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_cron_crd())
        await settle(5)
        await kit.client.create(RINGS, scheduled_ring(), namespace=NAMESPACE)
        await settle(30)
        other = pair(workers=1, servers=1, cronPolicy={"schedule": "@daily"})
        await kit.client.create(PairJob.job_type.resource, {**other, "metadata": {"name": "train"}}, namespace=NAMESPACE)
        await settle(30)
        stored = await get_cron(kit)
        assert stored is not None
        assert (stored["spec"]["schedule"], stored["spec"]["template"]["kind"]) == ("@every 10m", "RingJob")
        conflicts = [note for note in await job_events(kit, "NameConflict") if note.startswith("cronPolicy")]
        assert conflicts == ["cronPolicy has no effect: Cron train exists and was not created for this job; delete or rename one of them"]
        change = {"spec": {"runPolicy": {"cronPolicy": {"schedule": "@every 20m"}}}}
        await kit.client.patch(RINGS, "train", change, patch_type=PatchType.MERGE, namespace=NAMESPACE)
        await settle(30)
        stored = await get_cron(kit)
        assert stored is not None
        assert (stored["spec"]["schedule"], stored["spec"]["template"]["kind"]) == ("@every 20m", "RingJob")


@virtual_time
async def test_a_job_runs_without_the_crd_of_crons_and_gets_its_cron_when_it_is_installed() -> None:
    async with cron_env(installed=False) as env, env.run_operator():
        await env.submit(scheduled_ring())
        await settle(5)
        [note] = await job_events(env, "CRDNotInstalled")
        assert note == "cronPolicy has no effect: the cluster does not serve crons.apps.kubedl.io; `dlop install` installs the CRD"
        assert len(await env.pods()) == 1
        await env.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_cron_crd())
        await settle(5)
        assert await get_cron(env) is not None


@virtual_time
async def test_a_job_runs_without_the_permission_and_says_so() -> None:
    async with cron_env() as env, env.run_operator():
        fault = env.faults.fail_before(FORBIDDEN, match=RequestMatch(verb="create", plural="crons"), times=1_000_000)
        await env.submit(scheduled_ring())
        await settle(MINUTE)
        assert len(await env.pods()) == 1
        [note] = await job_events(env, "Forbidden")
        assert note.startswith("cannot create Cron train for cronPolicy: ringjobs is forbidden; add `--with cron:default`")
        fault.times = 0
        await settle(3 * MINUTE)
        assert await get_cron(env) is not None


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({}, "spec.runPolicy.cronPolicy.schedule: is missing; add a cron line, such as '0 2 * * *'"),
        ({"schedule": "every day"}, "spec.runPolicy.cronPolicy.schedule: must have five fields, got 2 in 'every day'"),
        ({"schedule": "@daily", "timeZone": "Mars"}, "spec.runPolicy.cronPolicy.timeZone: must be the name of a time zone"),
        ({"schedule": "@daily", "historyLimit": -1}, "spec.runPolicy.cronPolicy.historyLimit: must be from 0"),
        ("@daily", "spec.runPolicy.cronPolicy: must be an object, got '@daily'"),
    ],
)
@virtual_time
async def test_a_job_with_a_bad_schedule_is_invalid_and_has_no_cron(policy: Any, message: str) -> None:
    async with cron_env() as env, env.run_operator():
        manifest = ring("train", workers=1)
        manifest["spec"]["runPolicy"]["cronPolicy"] = policy
        await env.submit(manifest)
        await settle(5)
        failed = (await env.conditions("train"))["Failed"]
        assert failed["reason"] == "InvalidSpec"
        assert message in failed["message"]
        assert await get_cron(env) is None
