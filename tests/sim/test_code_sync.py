"""Jobs with git repositories: without an image to clone them, with clones that fail, and after an edit."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dlop.api.types import ForceDeletion, Options
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.jobs.lookup import JobHandle
from dlop.jobs.view import build_view
from dlop.kube.objects import Pod, object_decoder
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.elastic_manifests import SCALE_PLANS, elastic_job, scale_plan
from tests.sim.ring_job import RingJob, ring

OPTIONS = Options(git_sync_image="git-sync:4", force_deletion=ForceDeletion.TIMEOUT)
SOURCE = "https://example.org/team/train.git"
NO_IMAGE = "spec.runPolicy.codeSync[0]: there is no image to clone {}; set `image`, or start the operator with --git-sync-image"
LOG = "Cloning into '/code/train'...\nfatal: Remote branch release not found in upstream origin\n"
CAUSE = (
    "spec.runPolicy.codeSync[0]: cannot clone https://example.org/team/train.git (branch release): "
    "fatal: Remote branch release not found in upstream origin"
)
_decode_pod = object_decoder(Pod)


def synced(*, policy: str = "OnFailure", workers: int = 1, run_policy: JsonObject | None = None, **source: Any) -> JsonObject:
    return ring(workers=workers, restart_policy=policy, codeSync=[{"source": SOURCE, **source}], **(run_policy or {}))


def code_sync(**source: Any) -> JsonObject:
    """A patch that replaces the repository."""
    return {"spec": {"runPolicy": {"codeSync": [{"source": SOURCE, **source}]}}}


def blocked(job: ObservedJob) -> tuple[str, str]:
    condition = job.condition("Blocked") or {}
    return condition.get("reason", ""), condition.get("message", "")


def waiting(job: ObservedJob) -> list[str]:
    """What `dlop describe` lists as reasons why the job waits."""
    handle = JobHandle.decode(RingJob, msgspec.json.encode(job.body))
    return list(build_view(handle, [_decode_pod(msgspec.json.encode(pod)) for pod in job.pods.values()]).pending_reasons)


# --- the image ---


@virtual_time
async def test_a_job_is_blocked_until_there_is_an_image_that_clones() -> None:
    async with OperatorKit([RingJob]) as kit:
        job = await kit.submit(synced(workers=2))
        await kit.until(job, reached=lambda view: view.condition("Blocked") is not None)
        assert await kit.writes_when_idle() == []
        assert (blocked(job), job.pods, job.services) == (("NoGitSyncImage", NO_IMAGE.format(SOURCE)), {}, {})
        assert [reason for reason, _ in job.events].count("NoGitSyncImage") == 1
        assert waiting(job) == [NO_IMAGE.format(SOURCE)]
        await kit.edit(job, code_sync(image="git-sync:3"))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 2 and not blocked(view)[0])
        assert job.pods["ring-worker-0"]["spec"]["initContainers"][0]["image"] == "git-sync:3"
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_running_job_is_not_affected_by_an_operator_without_an_image_until_a_pod_is_lost() -> None:
    async with OperatorKit([RingJob], options=OPTIONS) as kit:
        job = await kit.submit(synced())
        await kit.until(job, phase="Running")
        await kit.operator.stop()
        await kit.start_operator(options=Options())
        assert await kit.writes_when_idle() == []
        assert (job.phase, blocked(job)) == ("Running", ("", ""))
        await kit.client.delete(PODS, "ring-worker-0", namespace="default")
        await kit.until(job, reached=lambda view: blocked(view)[0] == "NoGitSyncImage" and not view.pods)
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_job_without_an_image_fails_at_its_start_deadline() -> None:
    async with OperatorKit([RingJob]) as kit:
        job = await kit.submit(synced(run_policy={"startDeadlineSeconds": 60}))
        await kit.until(job, phase="Failed", within_seconds=90)
        assert NO_IMAGE.format(SOURCE) in (job.condition("Failed") or {})["message"]


@virtual_time
async def test_members_of_an_elasticjob_wait_for_an_image_and_their_plan_is_not_reported_as_executed() -> None:
    async with OperatorKit([ElasticJob], options=OPTIONS) as kit:
        job = await kit.submit(elastic_job(runPolicy={"codeSync": [{"source": SOURCE}]}))
        await kit.until(job, reached=lambda view: list(view.pod_phases.values()) == ["Running"])
        await kit.operator.stop()
        await kit.start_operator(options=Options())
        await kit.client.create(SCALE_PLANS, scale_plan(replicas={"worker": 2}, owner=job.body), namespace="default")
        await kit.until(job, reached=lambda view: NO_IMAGE.format(SOURCE) in str(view.status))
        assert await kit.writes_when_idle() == []
        assert len(job.pods) == 1
        (plan,) = (await kit.client.list(SCALE_PLANS, namespace="default"))["items"]
        assert plan.get("status", {}).get("phase") != "Succeeded"
        await kit.operator.stop()
        await kit.start_operator(options=OPTIONS)
        await kit.until(job, reached=lambda view: list(view.pod_phases.values()) == ["Running"] * 3, within_seconds=60)
        assert NO_IMAGE.format(SOURCE) not in str(job.status)


# --- clones that fail ---


@virtual_time
async def test_a_failing_clone_blocks_the_job_with_its_message_until_an_edit_corrects_it() -> None:
    async with OperatorKit([RingJob], options=OPTIONS) as kit:
        kit.script.when("ring-worker-0", times=1).fail_init("git-sync-code", message=LOG).after(10).fail_init("git-sync-code", message=LOG)
        job = await kit.submit(synced(branch="release"))
        await kit.until(job, reached=lambda view: view.status.get("dlop", {}).get("restarts") == {"Worker": 2})
        assert await kit.writes_when_idle() == []
        assert blocked(job) == ("CodeSyncFailed", f"pod ring-worker-0: {CAUSE}")
        assert [reason for reason, _ in job.events].count("CodeSyncFailed") == 1
        assert (job.status["dlop"]["lastFailure"]["reason"], job.status["dlop"]["lastFailure"]["message"]) == ("CodeSyncFailed", CAUSE)
        assert waiting(job) == [
            f"pod ring-worker-0: {CAUSE}",
            "pod ring-worker-0: CrashLoopBackOff: back-off 10s restarting failed container=git-sync-code",
        ]
        await kit.edit(job, code_sync(branch="main"))
        await kit.until(job, phase="Running", reached=lambda view: not blocked(view)[0])
        variables = {each["name"]: each["value"] for each in job.pods["ring-worker-0"]["spec"]["initContainers"][0]["env"]}
        assert variables["GIT_SYNC_BRANCH"] == "main"
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_failing_clone_fails_a_job_that_is_never_restarted() -> None:
    async with OperatorKit([RingJob], options=OPTIONS) as kit:
        kit.script.when("ring-worker-0").fail_init("git-sync-code", 128, message=LOG)
        job = await kit.submit(synced(policy="Never", branch="release"))
        await kit.until(job, phase="Failed")
        message = (job.condition("Failed") or {})["message"]
        assert message.endswith(f"terminated with exit code 128 (CodeSyncFailed): {CAUSE}")
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_pods_whose_clones_fail_are_replaced_as_for_any_failed_init_container() -> None:
    async with OperatorKit([RingJob], options=OPTIONS) as kit:
        kit.script.when("ring-worker-0", times=2).fail_init("git-sync-code", message=LOG)
        job = await kit.submit(synced(policy="ExitCode", branch="release", run_policy={"backoffLimit": 2}))
        await kit.until(job, phase="Restarting")
        assert CAUSE in (job.condition("Restarting") or {})["message"]
        await kit.until(job, phase="Running", within_seconds=60)
        assert job.status["dlop"]["restarts"] == {"Worker": 2}
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_clones_that_always_fail_exceed_the_backoff_limit() -> None:
    async with OperatorKit([RingJob], options=OPTIONS) as kit:
        kit.script.when("ring-worker-0").fail_init("git-sync-code", message=LOG)
        job = await kit.submit(synced(policy="ExitCode", branch="release", run_policy={"backoffLimit": 2}))
        await kit.until(job, phase="Failed", within_seconds=120)
        message = (job.condition("Failed") or {})["message"]
        assert message.startswith("the backoff limit of 2 is exceeded")
        assert message.endswith(CAUSE)


@virtual_time
@pytest.mark.parametrize(("log", "details"), [("", "git-sync-code exited with code 1"), ("x" * 5000, "x" * 1000)])
async def test_a_clone_without_a_message_is_reported_with_its_exit_code_and_a_long_one_is_cut(log: str, details: str) -> None:
    async with OperatorKit([RingJob], options=OPTIONS) as kit:
        kit.script.when("*").fail_init("git-sync-code", message=log)
        job = await kit.submit(synced())
        await kit.until(job, reached=lambda view: blocked(view)[0] == "CodeSyncFailed")
        assert blocked(job)[1] == f"pod ring-worker-0: spec.runPolicy.codeSync[0]: cannot clone {SOURCE}: {details}"


@virtual_time
async def test_an_init_container_of_the_user_that_fails_is_not_blamed_on_the_repository() -> None:
    async with OperatorKit([RingJob], options=OPTIONS) as kit:
        kit.script.when("*").fail_init("own", message="no disk")
        body = synced(policy="Never")
        body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["initContainers"] = [{"name": "own", "image": "i"}]
        job = await kit.submit(body)
        await kit.until(job, phase="Failed")
        assert (job.condition("Failed") or {})["message"].endswith("terminated with exit code 1 (Error): no disk")


@virtual_time
async def test_a_program_that_fails_after_a_retried_clone_is_reported_as_itself() -> None:
    async with OperatorKit([RingJob], options=OPTIONS) as kit:
        kit.script.when("*").fail_init("git-sync-code", message=LOG).after(5).run().after(5).fail(3, message="bad data")
        job = await kit.submit(synced(run_policy={"backoffLimit": 1}))
        await kit.until(job, phase="Failed", within_seconds=60)
        assert "terminated with exit code 3 (Error): bad data" in (job.condition("Failed") or {})["message"]


@virtual_time
async def test_bad_repositories_make_the_job_invalid_and_disturb_no_other_job() -> None:
    async with OperatorKit([RingJob], options=OPTIONS) as kit:
        bad = synced()
        bad["metadata"] |= {"name": "bad", "annotations": {}}
        bad["spec"]["runPolicy"]["codeSync"][0]["source"] = "ext::sh -c id"
        job, good = await kit.submit(bad), await kit.submit(synced())
        await kit.until(good, phase="Running")
        await kit.until(job, phase="Invalid")
        assert "spec.runPolicy.codeSync[0].source: must be a URL or a path" in (job.condition("Failed") or {})["message"]
        await asyncio.sleep(60)
        assert job.pods == {}
        assert await kit.writes_when_idle() == []
