"""What `dlop describe` says about the Cron and the TensorBoard of a job."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from dlop.api.cron import CRONS
from dlop.api.tensorboard import TENSORBOARD_ANNOTATION
from dlop.console.describe_page import render_page
from dlop.deploy.apply import apply
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.registry import Registry
from dlop.jobs.crons import JobCronView, get_job_cron_view
from dlop.jobs.lookup import JobHandle, find_job, parse_job_reference
from dlop.jobs.queries import get_job_view
from dlop.jobs.tensorboard import TensorBoardView, get_tensorboard_view
from dlop.kube.timestamps import format_time, parse_time
from dlop.kube.types import JsonObject
from dlop.policies import INGRESSES
from dlop.testing.kit import OperatorKit
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.ingress_crd import INGRESS_CRD
from tests.sim.cron_env import FORBIDDEN, MINUTE, RINGS, cron, cron_kit, edit, submit
from tests.sim.operator_env import NAMESPACE, settle
from tests.sim.pair_job import PairJob, pair
from tests.sim.ring_job import RingJob, ring

BOARD = "pair-tensorboard-0"
LOGS: JsonObject = {"logDir": "/logs", "ttlSecondsAfterJobFinished": 600}
INGRESS: JsonObject = {"host": "boards.example.org", "pathPrefix": "/tb"}
ADDRESS = "http://boards.example.org/tb/default/pair/"


async def handle(kit: OperatorKit, name: str) -> JobHandle:
    return await find_job(kit.client, parse_job_reference(name, Registry([PairJob, RingJob])), namespace=NAMESPACE)


async def cron_of(kit: OperatorKit, name: str = "train") -> JobCronView:
    view = await get_job_cron_view(kit.client, await handle(kit, name), now=kit.clock())
    assert view is not None
    return view


async def board_of(kit: OperatorKit) -> TensorBoardView:
    view = await get_tensorboard_view(kit.client, await handle(kit, "pair"), now=kit.clock())
    assert view is not None
    return view


async def section(kit: OperatorKit, title: str, *, name: str = "pair") -> list[str]:
    """The lines of a section of the page, or the facts with this name."""
    job, now = await handle(kit, name), kit.clock()
    lines = render_page(
        await get_job_view(kit.client, job),
        cron=await get_job_cron_view(kit.client, job, now=now),
        tensorboard=await get_tensorboard_view(kit.client, job, now=now),
        now=now,
    )
    texts = [text for _, text in lines]
    if title not in texts:
        return [text.partition(":")[2].strip() for text in texts if text.startswith(f"  {title}:")]
    rest = texts[texts.index(title) + 1 :]
    return rest[: rest.index("")]


async def create_job(kit: OperatorKit, *, policy: JsonObject | None = None, **run_policy: Any) -> None:
    fields = {"cronPolicy": policy, **run_policy} if policy else run_policy
    await kit.client.create(RINGS, ring("train", workers=1, **fields), namespace=NAMESPACE)


async def finish(kit: OperatorKit) -> None:
    for name in ("server-0", "worker-0", "worker-1"):
        await kit.kubelet.perform(f"default/pair-{name}", ContainerExit(0))
    await kit.until("default/pair", phase="Succeeded")


# --- Crons ---------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_job_without_a_schedule_has_no_cron_and_no_tensorboard() -> None:
    async with cron_kit() as (kit, _):
        await create_job(kit)
        job = await handle(kit, "train")
        assert await get_job_cron_view(kit.client, job, now=kit.clock()) is None
        assert await get_tensorboard_view(kit.client, job, now=kit.clock()) is None
        assert (await section(kit, "Cron", name="train"), await section(kit, "TensorBoard", name="train")) == ([], [])


@virtual_time
async def test_a_job_names_the_cron_that_created_it_with_its_time_and_the_next_run() -> None:
    async with cron_kit(pod_seconds=None) as (kit, jobs):
        await submit(kit, cron())
        await settle(11 * MINUTE)
        (name,) = jobs.created
        times = [format_time(jobs.start + minutes * MINUTE) for minutes in (10, 20)]
        assert await cron_of(kit, name) == JobCronView(
            name="nightly", has_created_job=True, scheduled_at=times[0], next_scheduled_at=times[1]
        )
        (text,) = await section(kit, "Cron", name=name)
        assert text.startswith(f"nightly (created this job for {times[0]}); next run {times[1]} (in ")
        await edit(kit, {"suspend": True})
        assert (await cron_of(kit, name)).is_suspended
        assert await section(kit, "Cron", name=name) == [f"nightly (created this job for {times[0]}); suspended"]
        await edit(kit, {"suspend": False, "deadline": times[0]})
        await settle(MINUTE)
        assert f"; spec.deadline {times[0]} has passed" in (await section(kit, "Cron", name=name))[0]
        await edit(kit, {"schedule": "every day"})
        assert "spec.schedule: must have five fields" in (await cron_of(kit, name)).problem


@virtual_time
async def test_a_job_of_kubedl_has_its_scheduled_time_in_its_name() -> None:
    async with cron_kit(operator=False) as (kit, _):
        await submit(kit, cron())
        uid = (await kit.client.get(CRONS, "nightly", namespace=NAMESPACE))["metadata"]["uid"]
        owner = {"apiVersion": CRONS.api_version, "kind": "Cron", "name": "nightly", "uid": uid, "controller": True}
        expected = {"nightly-1700000000": "2023-11-14T22:13:20Z", "nightly-test": "", f"nightly-{'9' * 30}": ""}
        for name, scheduled_at in expected.items():
            manifest = ring(name)
            body = {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}
            await kit.client.create(RINGS, body, namespace=NAMESPACE)
            assert (await cron_of(kit, name)).scheduled_at == scheduled_at
        assert (await section(kit, "Cron", name="nightly-test"))[0].startswith("nightly (created this job); next run ")


@virtual_time
async def test_a_job_of_a_cron_that_was_deleted_or_replaced_says_so() -> None:
    async with cron_kit(pod_seconds=None) as (kit, jobs):
        await submit(kit, cron())
        await settle(11 * MINUTE)
        (name,) = jobs.created
        # The job is deleted with its Cron, and the finalizer keeps it.
        await kit.client.patch(RINGS, name, {"metadata": {"finalizers": ["example.org/keep"]}}, namespace=NAMESPACE)
        await kit.client.delete(CRONS, "nightly", namespace=NAMESPACE)
        await settle(MINUTE)
        assert (await cron_of(kit, name)).problem == "it was deleted"
        await submit(kit, cron())
        view = await cron_of(kit, name)
        assert (view.problem, view.next_scheduled_at) == ("it was deleted", "")


@virtual_time
async def test_a_job_with_a_cron_policy_shows_the_next_run_of_its_cron() -> None:
    async with cron_kit() as (kit, _):
        await create_job(kit, policy={"schedule": "0 2 * * *"})
        await settle(MINUTE)
        view = await cron_of(kit)
        next_run = parse_time(view.next_scheduled_at)
        assert view == JobCronView(name="train", has_created_job=False, next_scheduled_at=view.next_scheduled_at)
        assert next_run is not None
        assert 0 < next_run - kit.clock() <= 24 * 60 * MINUTE
        assert (await section(kit, "Cron", name="train"))[0].startswith(f"train (from cronPolicy); next run {view.next_scheduled_at} (in ")
        await edit(kit, {"deadline": "2001-01-01T00:00:00Z"}, name="train")
        view = await cron_of(kit)
        assert view.next_scheduled_at == ""
        assert (await section(kit, "Cron", name="train"))[0].startswith("train (from cronPolicy); ")


@virtual_time
async def test_a_job_with_a_cron_policy_says_why_its_cron_is_not_there() -> None:
    async with cron_kit(operator=False) as (kit, _):
        await create_job(kit, policy={"schedule": "0 2 * * *"})
        assert await section(kit, "Cron", name="train") == [
            "train (from cronPolicy); it does not exist yet; an event in the history says so if something prevents it"
        ]
        await submit(kit, cron(name="train"))
        assert (await cron_of(kit)).problem == "it exists and was not created for this job; delete or rename one of them"
        kit.cluster.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="crons"))
        assert (await cron_of(kit)).problem == "you are not allowed to read it: ringjobs is forbidden"


# --- TensorBoards --------------------------------------------------------------------------------------------------------


@virtual_time
async def test_the_page_follows_the_life_of_a_tensorboard() -> None:
    async with OperatorKit([PairJob]) as kit:
        kit.script.when("pair-*").after(60).run()
        job = await kit.submit(pair(tensorBoard=LOGS))
        await asyncio.sleep(30)
        waiting = "it starts when the job runs; the phase of the job is Created"
        assert await section(kit, "TensorBoard") == [
            f"  State:        not ready: {waiting}",
            "  Open:         dlop tensorboard pair -n default",
            "  Kept until:   10m after the end of the job",
        ]
        await kit.until(job, phase="Running", reached=lambda job: job.pod_phases.get(BOARD) == "Running")
        assert (await section(kit, "TensorBoard"))[:2] == ["  State:        ready", f"  Pod:          {BOARD}"]
        await finish(kit)
        await asyncio.sleep(60)
        finished_at = parse_time(job.status["dlop"]["finishedAt"])
        assert finished_at is not None
        view = await board_of(kit)
        assert (view.is_ready, view.deleted_at) == (True, format_time(finished_at + 600))
        assert (await section(kit, "TensorBoard"))[-1].startswith(f"  Kept until:   {view.deleted_at} (in ")
        await kit.until(job, reached=lambda job: BOARD not in job.pods, within_seconds=700)
        view = await board_of(kit)
        assert (view.is_ready, view.pod, view.command) == (False, "", "")
        state, kept_until = await section(kit, "TensorBoard")
        assert "was deleted 600 seconds after the end of the job; raise ttlSecondsAfterJobFinished to get it back." in state
        assert kept_until.endswith(" ago)")


@virtual_time
async def test_a_tensorboard_is_deleted_with_its_job_if_that_is_earlier() -> None:
    async with OperatorKit([PairJob]) as kit:
        kit.script.when("pair-*").run()
        job = await kit.submit(pair(tensorBoard={**LOGS, "ttlSecondsAfterJobFinished": 0}))
        await kit.until(job, phase="Running")
        assert (await section(kit, "TensorBoard"))[-1] == "  Kept until:   the end of the job"
        await kit.edit(job, {"spec": {"runPolicy": {"tensorBoard": {"ttlSecondsAfterJobFinished": 2**31 - 1}}}})
        await finish(kit)
        finished_at = parse_time(job.status["dlop"]["finishedAt"])
        assert finished_at is not None
        assert (await board_of(kit)).deleted_at == format_time(finished_at + 2**31 - 1)
        await kit.edit(job, {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 300}}})
        assert (await board_of(kit)).deleted_at == format_time(finished_at + 300)


@virtual_time
async def test_a_time_to_live_may_be_longer_than_dates_allow() -> None:
    async with OperatorKit([PairJob], operator=False) as kit:
        config = json.dumps({**LOGS, "ttlSecondsAfterJobFinished": 10**30})
        manifest = pair()
        metadata = {**manifest["metadata"], "annotations": {TENSORBOARD_ANNOTATION: config}}
        await kit.submit({**manifest, "metadata": metadata})
        status = {"dlop": {"phase": "Succeeded", "finishedAt": "2026-01-01T00:00:00Z"}}
        await kit.client.patch(PairJob.job_type.resource, "pair", {"status": status}, namespace=NAMESPACE, subresource="status")
        assert (await board_of(kit)).deleted_at == "9999-12-31T23:59:59Z"


@virtual_time
async def test_the_address_is_shown_with_what_prevents_it() -> None:
    async with OperatorKit([PairJob]) as kit:
        await apply(kit.client, [INGRESS_CRD], report=lambda _: None)
        kit.script.when("pair-*").run()
        job = await kit.submit(pair(tensorBoard={**LOGS, "ingress": INGRESS}))
        await kit.until(job, phase="Running", reached=lambda job: bool(job.children(INGRESSES.qualified_name)))
        view = await board_of(kit)
        assert (view.address, view.ingress_problem) == (ADDRESS, "")
        assert f"  Address:      {ADDRESS}" in await section(kit, "TensorBoard")
        await kit.operator.crash()
        await kit.client.delete(INGRESSES, BOARD, namespace=NAMESPACE)
        assert f"  Address:      {ADDRESS} (the job has no Ingress {BOARD})" in await section(kit, "TensorBoard")
        other = {"apiVersion": INGRESSES.api_version, "kind": "Ingress", "metadata": {"name": BOARD}, "spec": {"rules": []}}
        await kit.client.create(INGRESSES, other, namespace=NAMESPACE)
        assert (await board_of(kit)).ingress_problem == f"the job has no Ingress {BOARD}"
        kit.cluster.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="ingresses"))
        assert (await board_of(kit)).ingress_problem == ""
