"""Jobs whose replicas know the world size restart as a whole when they are scaled. This is not counted."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dlop.api.constants import ATTEMPT_LABEL, SIZE_ANNOTATION
from dlop.policies import Lifecycle
from dlop.replica import Replica
from tests.unit.reconcile.ring import HELPER, TRAINER, RingJob, ring
from tests.unit.reconcile.world import World

SCOPES = ("Replica", "Role", "Job")


class FixedTrainers(Lifecycle[RingJob]):
    def fixed_roles(self, job: RingJob) -> tuple[str, ...]:
        return (TRAINER,)


class FixedJob(RingJob):
    """The environment contains the number of trainers. Helpers are elastic."""

    lifecycle = FixedTrainers()

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"SIZE": str(self.replicas(TRAINER))}


def running(**arguments: object) -> World:
    world = World(ring(**{"helpers": 1, **arguments}), kind=FixedJob)  # type: ignore[arg-type]
    world.settle()
    world.run()
    world.settle()
    return world


def sizes(world: World) -> set[str]:
    return {variable["value"] for pod in world.pods.values() for variable in pod["spec"]["containers"][0]["env"]}


def attempts(world: World) -> set[str]:
    return {pod["metadata"]["labels"][ATTEMPT_LABEL] for pod in world.pods.values()}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("trainers", [1, 3])
def test_all_replicas_restart_with_the_new_size_without_counting(scope: str, trainers: int) -> None:
    world = running(restartScope=scope, backoffLimit=0, disruptionLimit=0)
    before = set(world.uids().values())
    world.scale(TRAINER, trainers)
    world.settle()
    assert world.phase == "Restarting"
    world.run()
    world.settle()
    assert (world.phase, sizes(world), attempts(world)) == ("Running", {str(trainers)}, {"1"})
    assert len(world.pods) == trainers + 1
    assert before.isdisjoint(world.uids().values())
    assert {"restarts", "disruptions", "backoffs"}.isdisjoint(world.record)
    assert [event.reason for event in world.events].count("Resized") == 1


@pytest.mark.parametrize("scope", SCOPES)
def test_no_pod_of_the_new_size_exists_before_the_last_one_of_the_old_size_is_gone(scope: str) -> None:
    world = running(restartScope=scope)
    world.scale(TRAINER, 1)
    while world.execute(world.plan()) or world.confirm_deletions(limit=1):
        assert len(attempts(world)) <= 1
    assert (attempts(world), len(world.pods)) == ({"1"}, 2)


def test_the_new_attempt_is_stored_before_anything_is_deleted() -> None:
    world = running()
    world.scale(TRAINER, 3)
    world.execute(world.plan())
    assert (world.record["attempt"], len(world.pods)) == (1, 3)
    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())


def test_the_condition_has_the_reason_even_after_an_earlier_failure() -> None:
    world = running()
    world.exit("ring-trainer-0", 1)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    message = "scaled from Trainer=2 to Trainer=3: restarting all replicas, because their environment contains the size"
    assert (world.condition("Restarting")["reason"], world.condition("Restarting")["message"]) == ("RingJobRestarting", message)


def test_scaling_an_elastic_role_does_not_restart_the_job() -> None:
    world = running()
    before = world.uids()
    world.scale(HELPER, 2)
    world.settle()
    assert before.items() <= world.uids().items()
    assert len(world.pods) == 4


def test_a_completed_replica_restarts_too_because_its_peers_wait_for_it() -> None:
    world = running(policy="Never")
    world.exit("ring-trainer-0", 0)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    assert (len(world.pods), attempts(world), "completedIndexes" in world.record) == (4, {"1"}, False)


def test_pods_that_have_not_started_are_only_replaced() -> None:
    world = World(ring(), kind=FixedJob)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    assert (sizes(world), attempts(world), len(world.pods)) == ({"3"}, {"0"}, 3)


def test_a_pod_that_waits_for_a_sidecar_has_started() -> None:
    world = running()
    for pod in world.pods.values():
        pod["status"]["phase"] = "Pending"
        pod["status"]["containerStatuses"].append({"name": "sidecar", "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}})
    world.scale(TRAINER, 3)
    world.settle()
    assert (sizes(world), attempts(world), len(world.pods)) == ({"3"}, {"1"}, 4)


def test_resuming_with_another_size_before_the_pods_are_gone_reports_both() -> None:
    world = running()
    world.edit(lambda spec: spec["runPolicy"].update(suspend=True))
    world.execute(world.plan())
    world.edit(lambda spec: spec["runPolicy"].update(suspend=False))
    world.scale(TRAINER, 3)
    world.settle()
    assert (sizes(world), attempts(world)) == ({"3"}, {"1"})
    assert [event.reason for event in world.events][-5:-2].count("Resumed") == 1


def test_the_new_attempt_is_above_all_role_attempts() -> None:
    world = running(restartScope="Role", policy="ExitCode")
    world.exit("ring-trainer-0", 137)
    world.settle()
    world.run()
    world.settle()
    assert world.record["roleAttempts"] == {TRAINER: 1}
    world.scale(TRAINER, 3)
    world.settle()
    assert (attempts(world), "roleAttempts" in world.record) == ({"2"}, False)


def test_a_change_that_is_reverted_before_the_next_pass_has_no_effect() -> None:
    world = running()
    before = world.uids()
    world.scale(TRAINER, 3)
    world.scale(TRAINER, 2)
    world.settle()
    assert world.uids() == before


def test_pods_without_the_size_annotation_are_not_restarted() -> None:
    world = running()
    for pod in world.pods.values():
        del pod["metadata"]["annotations"][SIZE_ANNOTATION]
    before = world.uids()
    world.scale(TRAINER, 3)
    world.settle()
    assert before.items() <= world.uids().items()


def test_a_job_that_completes_while_it_is_scaled_succeeds() -> None:
    world = running(policy="Never")
    for index in range(2):
        world.exit(f"ring-trainer-{index}", 0)
    world.scale(TRAINER, 1)
    world.settle()
    assert world.phase == "Succeeded"


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("writes", range(8))
def test_a_crash_after_any_write_is_harmless(scope: str, writes: int) -> None:
    world = running(restartScope=scope)
    world.scale(TRAINER, 3)
    while writes > 0:
        plan = world.plan()
        world.execute(plan, writes=writes)
        writes -= max(1, len(world.effects(plan)))
    world.settle()
    world.run()
    world.settle()
    assert (world.phase, sizes(world), len(attempts(world))) == ("Running", {"3"}, 1)
