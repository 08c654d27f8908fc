"""ElasticJobs in `hack/chaos`: the rules of the judge for their members and scale plans, and the scripted master."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest
from chaos_history import Entry, JobChange, MemberChange, PlanChange, job_change, member_change, plan_change
from chaos_judge import MOST_REPETITIONS, judge
from chaos_master import ScriptedMaster
from chaos_scripts import End, JobEdit, JobScript, RoleDraft, SpecDraft, draw_scripts, member_sizes
from elastic_master import member_pod, scale_plan

from dlop.api.record import Record
from dlop.api.scale_plan import Member
from dlop.api.spec import RestartPolicy, RestartScope
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.dlrover.names import MASTER, PLATFORM_ANNOTATION
from dlop.kube.resources import PODS
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.elastic_manifests import SCALE_PLANS, elastic_job
from tests.frameworks.sandbox import Clock, Sandbox, open_sandbox, run_embedded

pytestmark = pytest.mark.selftest


# --- the judge --------------------------------------------------------------------------------------------------------


def script(*, platform: str = "k8s", grows: bool = False) -> JobScript:
    """A job that is deleted, so that its master has no result."""
    roles = tuple(RoleDraft(name, 2, RestartPolicy.EXIT_CODE) for name in (MASTER, "worker"))
    return JobScript(
        name="job",
        kind=ElasticJob,
        draft=SpecDraft(roles, annotations={PLATFORM_ANNOTATION: platform}),
        end=End.DELETED,
        decisive=(MASTER, 0),
        culprit=None,
        culprit_fault=None,
        faults={},
        edits=((1.0, JobEdit.SCALE_UP),) if grows else (),
        scaled_role="worker",
        scope=RestartScope.ROLE,
    )


class History:
    """Builds a history. Each change has the next revision, and takes one second."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def _next(self) -> tuple[int, float]:
        return len(self.entries) + 1, len(self.entries) + 1.0

    def job(self, *, deleted: bool = False, phase: str = "Running", is_repetition: bool = False) -> History:
        revision, seconds = self._next
        record = Record(phase=phase)
        change = JobChange(revision=revision, seconds=seconds, deleted=deleted, record=record, is_repetition=is_repetition)
        self.entries.append(change)
        return self

    def member(
        self, number: int, phase: str = "Running", *, rank: int | None = None, deleted: bool = False, terminating: bool = False
    ) -> History:
        """The first change of a member is its creation."""
        revision, seconds = self._next
        member = Member(role="worker", id=number, rank=number if rank is None else rank)
        uid = f"uid-{number}"
        change = MemberChange(
            revision=revision,
            seconds=seconds,
            name=f"job-edljob-worker-{number}",
            uid=uid,
            member=member,
            created=not any(isinstance(entry, MemberChange) and entry.uid == uid for entry in self.entries),
            deleted=deleted,
            phase=phase,
            terminating=terminating or deleted,
        )
        self.entries.append(change)
        return self

    def plan(self, phase: str = "", *, deleted: bool = False) -> History:
        revision, seconds = self._next
        self.entries.append(
            PlanChange(revision=revision, seconds=seconds, name="plan", uid="plan", spec="", phase=phase, message="why", deleted=deleted)
        )
        return self


def rules(history: History, script: JobScript) -> list[str]:
    return sorted({violation.rule for violation in judge(script, history.entries)})


def two_members() -> History:
    return History().job().plan().member(0).member(1).plan("Succeeded").plan("Succeeded", deleted=True)


def ended(history: History) -> History:
    return history.member(0, deleted=True).member(1, deleted=True).job(deleted=True)


def test_a_correct_run_has_no_violations() -> None:
    history = two_members().member(1, "Failed").member(2, rank=1).member(2, rank=1, deleted=True)
    assert rules(ended(history), script()) == []


def test_a_second_live_member_of_a_rank_is_a_violation() -> None:
    history = two_members().member(0, deleted=True).member(2, rank=1).member(2, rank=1, deleted=True)
    assert rules(ended(history), script()) == ["two live members"]


def test_a_replacement_may_start_while_its_predecessor_terminates() -> None:
    history = two_members().member(1, terminating=True).member(2, rank=1).member(2, rank=1, deleted=True)
    assert rules(ended(history), script()) == []


@pytest.mark.parametrize(("grows", "found"), [(False, ["too many members"]), (True, [])])
def test_more_members_than_the_master_wants_are_a_violation(*, grows: bool, found: list[str]) -> None:
    history = two_members().member(2).member(2, deleted=True)
    assert rules(ended(history), script(grows=grows)) == found


def test_a_member_that_survives_its_job_is_a_violation() -> None:
    assert rules(two_members().job(deleted=True), script()) == ["member survives"]
    succeeded = replace(script(), end=End.SUCCEEDED)
    assert "member survives" in rules(two_members().job(phase="Succeeded"), succeeded)
    finished = two_members().member(0, "Succeeded").member(1, "Failed").job(phase="Succeeded")
    assert "member survives" not in rules(finished, succeeded)


@pytest.mark.parametrize(("platform", "found"), [("k8s", ["created after the end"]), ("pyk8s", [])])
def test_only_the_master_may_create_members_after_the_end(platform: str, found: list[str]) -> None:
    history = ended(two_members()).job(deleted=True)
    history.entries += [replace(entry, seconds=entry.seconds + 60) for entry in History().member(5).entries]
    history.entries = [replace(entry, revision=number) for number, entry in enumerate(history.entries)]
    assert rules(history.member(5, deleted=True), script(platform=platform)) == found


def test_a_plan_that_is_not_executed_is_a_violation() -> None:
    assert rules(ended(two_members().plan("Scaling")), script()) == ["plan not executed"]


def test_a_plan_that_fails_is_a_violation() -> None:
    assert rules(ended(two_members().plan("Failed").plan("Failed", deleted=True)), script()) == ["plan failed"]


@pytest.mark.parametrize(("repetitions", "found"), [(MOST_REPETITIONS, []), (MOST_REPETITIONS + 1, ["repeated write"])])
def test_a_status_that_is_written_again_and_again_is_a_violation(repetitions: int, found: list[str]) -> None:
    history = two_members()
    for _ in range(repetitions):
        history.job(is_repetition=True)
    assert rules(ended(history.job()), script()) == found


def test_only_the_version_of_the_pod_cache_makes_a_write_a_repetition() -> None:
    def body(version: str, phase: str = "Running") -> JsonObject:
        return {**elastic_job(), "status": {"phase": phase, "dlop": {"phase": "Running", "podsVersion": version}}}

    def is_repetition(new: JsonObject) -> bool:
        return job_change(ElasticJob, new, revision=1, seconds=0.0, deleted=False, previous=body("1")).is_repetition

    assert is_repetition(body("2"))
    assert not is_repetition(body("2", phase="Scaling"))


# --- scripts ----------------------------------------------------------------------------------------------------------


def test_jobs_of_both_platforms_are_drawn_and_clean_up_their_members() -> None:
    scripts = list(itertools.islice(draw_scripts([ElasticJob], seed=1), 100))
    assert {script.writes_plans for script in scripts} == {True, False}
    assert {script.draft.run_policy["cleanPodPolicy"] for script in scripts} == {"Running", "All"}
    assert all(script.decisive == (MASTER, 0) and member_sizes(ElasticJob, script.draft)["worker"] for script in scripts)


# --- objects ----------------------------------------------------------------------------------------------------------


def test_entries_name_the_rank_of_a_member_and_the_content_of_a_plan() -> None:
    job = elastic_job("job")
    job["metadata"]["uid"] = "u"
    pod, member = member_pod(job, Member(role="worker", id=3, rank=1)), Member(role="worker", id=3, rank=1)
    pod["metadata"]["uid"] = "0123456789"
    created = member_change(pod, member, revision=1, seconds=0.0, created=True, deleted=False)
    assert str(created) == "member job-edljob-worker-3 (01234567, rank 1): created"
    plan = scale_plan(job, 4, sizes={"ps": 1}, creates=[member], removes=["job-edljob-worker-1"])
    plan["metadata"]["uid"] = "0123456789"
    written = plan_change(plan, revision=1, seconds=0.0, created=True, deleted=False)
    assert str(written) == "scale plan job-scaleplan-4 (01234567): created, ps=1 +job-edljob-worker-3 -job-edljob-worker-1"


# --- the master -------------------------------------------------------------------------------------------------------


@contextmanager
def master_of(sandbox: Sandbox, job: JsonObject, sizes: dict[str, int], *, platform: str) -> Iterator[ScriptedMaster]:
    master = ScriptedMaster(sandbox.client, job, lambda: dict(sizes), writes_plans=platform == "k8s", rng=Random(0))
    program = asyncio.create_task(master.run())
    try:
        yield master
    finally:
        program.cancel()


async def live_members(sandbox: Sandbox) -> list[str]:
    pods = (await sandbox.pods()).items()
    return sorted(name.removeprefix("demo-edljob-") for name, pod in pods if "edljob" in name and pod["status"]["phase"] == "Running")


async def scale_and_replace(transport: Transport, clock: Clock, platform: str) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        manifest = elastic_job("demo", platform=platform, ps=1)
        manifest["metadata"]["namespace"] = sandbox.namespace
        sandbox.start()
        job = await sandbox.submit(manifest)
        await sandbox.until_running(1)
        sizes = {"ps": 1, "worker": 2}

        async def until_members(*names: str) -> None:
            async def reached() -> bool:
                return await live_members(sandbox) == list(names)

            await sandbox.until(reached)

        with master_of(sandbox, job, sizes, platform=platform) as master:
            await until_members("ps-0", "worker-0", "worker-1")
            sizes["worker"] = 3
            await until_members("ps-0", "worker-0", "worker-1", "worker-2")
            sizes["worker"] = 2
            await until_members("ps-0", "worker-0", "worker-1")
            await sandbox.kubelet.perform(f"{sandbox.namespace}/demo-edljob-worker-0", ContainerExit(137))
            await until_members("ps-0", "worker-1", "worker-2")
            await master.until_settled()
        await sandbox.client.delete(PODS, "demo-edljob-worker-1", namespace=sandbox.namespace)
        with master_of(sandbox, job, sizes, platform=platform) as second:
            await until_members("ps-0", "worker-2", "worker-3")
            await second.until_settled()
        pods = await sandbox.pods()
        ranks = [pods[f"demo-edljob-worker-{number}"]["metadata"]["labels"]["elasticjob.dlrover/rank-index"] for number in (2, 3)]
        assert ranks == ["0", "1"]

        async def no_plans() -> bool:
            return await sandbox.names(SCALE_PLANS) == []

        await sandbox.until(no_plans)


@pytest.mark.parametrize("platform", ["k8s", "pyk8s"])
@virtual_time
async def test_the_master_keeps_the_number_of_members_and_a_new_one_continues(platform: str) -> None:
    await run_embedded(scale_and_replace, platform)
