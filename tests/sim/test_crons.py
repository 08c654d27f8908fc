"""Crons on the embedded API server and on virtual time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dlop.api.crd import build_crds, build_cron_crd
from dlop.api.cron import CRONS
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.sim.cron_env import (
    DAY,
    FORBIDDEN,
    HOUR,
    MINUTE,
    RINGS,
    Jobs,
    blocked,
    cron,
    cron_env,
    cron_events,
    cron_kit,
    edit,
    job_names,
    status_of,
    submit,
)
from tests.sim.operator_env import NAMESPACE, settle
from tests.sim.ring_job import RingJob, ring

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


@virtual_time
async def test_the_example_of_the_documentation_runs_at_night() -> None:
    page = (Path(__file__).parents[2] / "manifests" / "README.md").read_text()
    [block] = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind: Cron" in block]
    async with OperatorKit([PyTorchJob]) as kit:
        kit.script.when("*").run().after(MINUTE).succeed()
        await kit.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_cron_crd())
        await settle(5)
        await kit.client.create(CRONS, yaml.safe_load(block), namespace=NAMESPACE, field_validation="Strict")
        await settle(10 * HOUR)
        history = (await status_of(kit))["history"]
        # Paris is two hours ahead of UTC.
        assert [(entry["created"], entry["status"]) for entry in history] == [("2025-06-16T00:30:00Z", "Succeeded")]


@virtual_time
async def test_a_cron_and_a_job_of_kubedl_are_taken_over() -> None:
    async with cron_kit(operator=False) as (kit, jobs):
        await submit(kit, cron(concurrencyPolicy="Forbid"))
        uid = (await kit.client.get(CRONS, "nightly", namespace=NAMESPACE))["metadata"]["uid"]
        owner = {"apiVersion": CRONS.api_version, "kind": "Cron", "name": "nightly", "uid": uid, "controller": True}
        await settle(10 * MINUTE + 1)
        job = ring(f"nightly-{int(jobs.start + 10 * MINUTE)}", workers=1)
        metadata = {**job["metadata"], "labels": {"kubedl.io/cron-name": "nightly"}, "ownerReferences": [owner]}
        # KubeDL has created the job, and has not written its time into the status.
        await kit.client.create(RINGS, {**job, "metadata": metadata}, namespace=NAMESPACE)
        await kit.start_operator()
        await settle(5)
        status = await status_of(kit)
        assert (status["lastScheduleTime"], len(status["active"])) == (format_time(jobs.start + 10 * MINUTE), 1)
        await settle(11 * MINUTE)
        assert jobs.times == [10 * MINUTE, 20 * MINUTE]
        assert "conditions" not in await status_of(kit)


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
        status = (await kit.client.get(CRONS, "nightly", namespace=NAMESPACE))["status"]
        assert [entry["status"] for entry in status["history"]] == ["Deleted", "Deleted", "Running"]


@virtual_time
async def test_allow_lets_jobs_overlap() -> None:
    async with cron_kit(pod_seconds=None) as (kit, jobs):
        await submit(kit, cron())
        await settle(35 * MINUTE)
        assert jobs.most_at_once == 3
        assert len((await status_of(kit))["active"]) == 3


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
async def test_the_first_of_very_many_problems_are_reported() -> None:
    async with cron_env() as env, env.run_operator():
        labels = {f"label-{number}": number for number in range(30_000)}
        await submit(env, cron(workload={"metadata": {"labels": labels}, "spec": ring(workers=1)["spec"]}))
        await settle(5)
        reason, message = await blocked(env)
        assert reason == "InvalidSpec"
        assert message.startswith("spec.template.workload.metadata.labels.label-0: must be a string, got 0; ")
        assert message.endswith("; and 29950 more problems")


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
