"""Scale plans of ElasticJobs: how they are read, and which pods they create and remove."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dlop import SpecError
from dlop.api.scale_plan import Member, MemberRequest, MembersRecord, RoleTarget, ScaleRequest, expand_members, group_members
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.dlrover.members import ElasticJobMembers
from dlop.kube.objects import CustomObject, Pod, object_decoder
from dlop.kube.types import JsonObject
from dlop.reconcile.context import ReconcileContext, persisted_state
from dlop.reconcile.member_changes import MemberChanges, find_changes
from dlop.reconcile.snapshot import Snapshot
from tests.frameworks.elastic_manifests import RESOURCES, elastic_job, pod_meta, scale_plan, template
from tests.unit.job.jobs import UID, make

MEMBERS = ElasticJobMembers()
ONLY_WORKERS = "only the master can change other pods, because it must move their parameters first"
_decode_pod, _decode_plan = object_decoder(Pod), object_decoder(CustomObject)


def job(*, record: MembersRecord | None = None, **fields: Any) -> ElasticJob:
    manifest = elastic_job(**fields)
    status = None if record is None else {"dlop": {"members": msgspec.to_builtins(record)}}
    annotations = manifest["metadata"]["annotations"]
    return make(ElasticJob, manifest["spec"], name="elastic", status=status, annotations=annotations)


def with_servers(**fields: Any) -> ElasticJob:
    return job(strategy="ParameterServerStrategy", ps=1, **fields)


def read(manifest: JsonObject, elastic: ElasticJob | None = None) -> ScaleRequest:
    return MEMBERS.read_plan(elastic or job(), _decode_plan(msgspec.json.encode(manifest)))


def problems(manifest: JsonObject, elastic: ElasticJob | None = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(manifest, elastic)
    return [str(problem) for problem in caught.value.problems]


def manual(**fields: Any) -> JsonObject:
    return scale_plan(kind="manual", **fields)


# --- reading a plan ---------------------------------------------------------------------------------------------------


def test_a_plan_in_the_form_of_dlrovers_master_is_read() -> None:
    create = pod_meta("worker", 4, 1, resources={"cpu": "0.5", "memory": "512Mi", "nvidia.com/gpu": "2"})
    plan = scale_plan(replicas={"worker": 3}, create=[create], remove=["elastic-edljob-worker-1"], hosts=["elastic-edljob-ps-0:2222"])
    assert read(plan) == ScaleRequest(
        targets={"worker": RoleTarget(replicas=3, resources=RESOURCES)},
        creates=(
            MemberRequest(
                role="worker",
                id=4,
                rank=1,
                resources={"cpu": "500m", "memory": "512Mi", "nvidia.com/gpu": "2"},
            ),
        ),
        removes=("elastic-edljob-worker-1",),
        hosts=("elastic-edljob-ps-0:2222",),
    )


def test_a_service_with_another_name_than_the_default_is_read() -> None:
    named = {"type": "worker", "id": 4, "rankIndex": 1, "service": "trainer-1.default.svc:3333"}
    assert [create.service for create in read(scale_plan(create=[named, {**named, "rankIndex": None}])).creates] == ["trainer-1"] * 2


def test_the_master_in_a_plan_is_ignored() -> None:
    assert read(scale_plan(replicas={"dlrover-master": 1, "worker": 2})).targets.keys() == {"worker"}
    assert read(manual(replicas={"dlrover-master": 1})).targets == {}


def test_quantities_that_are_zero_are_left_out() -> None:
    resources = {"cpu": "0", "memory": "0Mi", "nvidia.com/gpu": "1"}
    assert read(scale_plan(replicas={"worker": 1}, resources=resources)).targets["worker"].resources == {"nvidia.com/gpu": "1"}


def test_a_plan_without_fields_asks_for_nothing() -> None:
    body = scale_plan()
    body["spec"] = {"ownerJob": "elastic"}
    assert read(body) == read(scale_plan()) == ScaleRequest()


@pytest.mark.parametrize("labels", [{}, {"scale-type": "Auto"}, {"scale-type": ""}])
def test_a_plan_without_a_known_label_is_rejected(labels: dict[str, str]) -> None:
    plan = scale_plan(replicas={"worker": 1})
    plan["metadata"]["labels"] = labels
    value = labels.get("scale-type", "")
    assert problems(plan) == [f"metadata.labels: must have the label scale-type with the value manual or auto, got {value!r}"]


NO_TEMPLATE = "is not possible, because the job has no template for it; add spec.replicaSpecs.ps to the ElasticJob"
NOT_A_QUANTITY = "is not a quantity; use a value like 500m or 2Gi"
INVALID: dict[str, tuple[JsonObject, list[str]]] = {
    "unknown role": (
        scale_plan(replicas={"servers": 1}),
        ["spec.replicaResourceSpecs.servers: must be one of ps, chief, worker, evaluator, got 'servers'"],
    ),
    "unknown role of a pod": (
        scale_plan(create=[pod_meta("worker", 0, 0), pod_meta("server", 0, 0)]),
        ["spec.createPods[1].type: must be one of ps, chief, worker, evaluator, got 'server'"],
    ),
    "role without template": (
        scale_plan(replicas={"ps": 1}),
        [
            f"spec.replicaResourceSpecs.ps: {NO_TEMPLATE}",
        ],
    ),
    "resource of a role": (
        scale_plan(replicas={"worker": 1}, resources={"cpu": "many"}),
        [f"spec.replicaResourceSpecs.worker.resource.cpu: {NOT_A_QUANTITY}"],
    ),
    "resource of a pod": (
        scale_plan(create=[pod_meta("worker", 0, 0, resources={"memory": "-1Gi"})]),
        [f"spec.createPods[0].resource.memory: {NOT_A_QUANTITY}"],
    ),
    "too many pods": (
        scale_plan(create=[{"type": "worker"}] * 10_001),
        ["spec.createPods: must have at most 10000 items, got 10001"],
    ),
    "ID of a pod": (
        scale_plan(create=[pod_meta("worker", 1_000_000, 0)]),
        ["spec.createPods[0].id: must be from 0 to 999999, got 1000000"],
    ),
    "rank of a pod": (
        scale_plan(create=[pod_meta("worker", 0, 1_000_000)]),
        ["spec.createPods[0].rankIndex: must be from 0 to 999999, got 1000000"],
    ),
    "no name": (scale_plan(removePods=[{"id": 1}]), ["spec.removePods[0].name: is missing; it selects the pod"]),
    "migration by the master": (
        scale_plan(migratePods=[{"name": "elastic-edljob-worker-0", "resource": RESOURCES}]),
        ["spec.migratePods[0]: is only possible in a manual plan; use createPods and removePods"],
    ),
    "several": (
        scale_plan(replicas={"servers": 1}, create=[pod_meta("worker", 0, 0, resources={"cpu": "x"})]),
        [
            "spec.replicaResourceSpecs.servers: must be one of ps, chief, worker, evaluator, got 'servers'",
            f"spec.createPods[0].resource.cpu: {NOT_A_QUANTITY}",
        ],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_plan_that_cannot_be_executed_is_rejected_with_the_paths_of_its_fields(name: str) -> None:
    manifest, expected = INVALID[name]
    assert problems(manifest) == expected


REFUSED: dict[str, tuple[JsonObject, str]] = {
    "number": (manual(replicas={"ps": 2}), f"spec.replicaResourceSpecs.ps: cannot be scaled by a manual plan; {ONLY_WORKERS}"),
    "new pod": (manual(create=[pod_meta("ps", 1, 1)]), f"spec.createPods[0].type: cannot be scaled by a manual plan; {ONLY_WORKERS}"),
    "chief": (manual(replicas={"chief": 0}), f"spec.replicaResourceSpecs.chief: cannot be scaled by a manual plan; {ONLY_WORKERS}"),
    "removal": (
        manual(remove=["elastic-edljob-worker-0", "elastic-edljob-ps-0"]),
        f"spec.removePods[1].name: must be a worker, got 'elastic-edljob-ps-0'; {ONLY_WORKERS}",
    ),
    "migration": (
        manual(migratePods=[{"name": "elastic-edljob-ps-0"}]),
        f"spec.migratePods[0].name: must be a worker, got 'elastic-edljob-ps-0'; {ONLY_WORKERS}",
    ),
    "master": (
        manual(remove=["elasticjob-elastic-dlrover-master-0"]),
        f"spec.removePods[0].name: must be a worker, got 'elasticjob-elastic-dlrover-master-0'; {ONLY_WORKERS}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_manual_plan_for_other_pods_than_workers_is_refused_with_the_field(name: str) -> None:
    manifest, expected = REFUSED[name]
    assert problems(manifest, with_servers()) == [expected]


@pytest.mark.parametrize("replicas", [-1, 10_001, 1.5, "two", True])
def test_a_number_that_is_not_possible_is_rejected_with_its_path(replicas: Any) -> None:
    (problem,) = problems(scale_plan(replicaResourceSpecs={"worker": {"replicas": replicas}}))
    assert problem.startswith("spec.replicaResourceSpecs.worker.replicas: ")


@pytest.mark.parametrize("field", ["replicaResourceSpecs", "createPods", "removePods", "migratePods", "psHosts"])
@pytest.mark.parametrize("value", [5, "x", [5], {"worker": 5}, [{"name": []}], [{"name": 5, "type": 5, "resource": []}]])
def test_a_malformed_plan_is_rejected_with_paths_and_never_raises_another_error(field: str, value: Any) -> None:
    assert all(problem.startswith(f"spec.{field}") for problem in problems(manual(**{field: value})))


@pytest.mark.parametrize("spec", [5, [], None, "x", {"ownerJob": 5}, {"ownerJob": []}, {}])
def test_a_plan_without_an_owner_has_none(spec: Any) -> None:
    plan = scale_plan()
    plan["spec"] = spec
    assert MEMBERS.plan_owner(_decode_plan(msgspec.json.encode(plan))) == ""


@pytest.mark.parametrize(
    ("name", "kind", "order"),
    [
        ("elastic-scaleplan-0", "auto", 0),
        ("elastic-scaleplan-12", "auto", 12),
        ("elastic-scaleplan-12", "manual", -1),
        ("elastic-scaleplan-x", "auto", -1),
        ("elastic-scaleplan-" + "9" * 40, "auto", -1),
        ("plan", "auto", -1),
    ],
)
def test_plans_of_the_master_are_ordered_by_number_after_manual_ones(name: str, kind: str, order: int) -> None:
    plan = scale_plan(kind=kind)
    plan["metadata"]["name"] = name
    assert MEMBERS.plan_order(_decode_plan(msgspec.json.encode(plan))) == order


def test_a_manual_plan_for_workers_can_be_written_and_read() -> None:
    elastic = job()
    plan = MEMBERS.manual_plan(elastic, {"worker": 5})
    (owner,) = plan["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("ElasticJob", UID, False)
    assert plan["metadata"]["labels"] == {"scale-type": "manual", "elasticjob.dlrover/name": "elastic"}
    assert read(plan, elastic) == ScaleRequest(targets={"worker": RoleTarget(replicas=5)}, is_manual=True)
    with pytest.raises(SpecError, match="ps: cannot be scaled"):
        MEMBERS.manual_plan(with_servers(), {"worker": 5, "ps": 2})


# --- what a plan changes ----------------------------------------------------------------------------------------------


def pod(
    number: int, rank: int | None = None, phase: str = "Running", *, role: str = "worker", elastic: ElasticJob | None = None, **more: Any
) -> Pod:
    """A pod as the operator has created it."""
    is_deleted = more.pop("is_deleted", False)
    member = Member(role=role, id=number, rank=number if rank is None else rank, **more)
    replica = (elastic or with_servers()).member(member)
    assert replica is not None
    body = replica.pod()
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_deleted else {}
    return _decode_pod(msgspec.json.encode({**body, "metadata": {**body["metadata"], **deleted}, "status": {"phase": phase}}))


def changes(manifest: JsonObject, *pods: Pod, elastic: ElasticJob | None = None) -> MemberChanges:
    elastic = elastic or with_servers()
    context = ReconcileContext(elastic, elastic.spec, Snapshot(pods=pods), persisted_state(elastic), 1000.0)
    return find_changes(context, MEMBERS, elastic.member_record, read(manifest, elastic))


def created(found: MemberChanges) -> list[tuple[int, int, int]]:
    """ID, rank and relaunch count of the members to create."""
    return [(member.id, member.rank, member.relaunch_count) for member in found.creates]


def worker(number: int) -> str:
    return f"elastic-edljob-worker-{number}"


def test_the_first_pods_have_equal_ids_and_ranks_and_the_resources_of_the_plan() -> None:
    found = changes(scale_plan(replicas={"ps": 1, "worker": 2}))
    assert [(member.role, member.id, member.rank, member.relaunch_count) for member in found.creates] == [
        ("ps", 0, 0, 0),
        ("worker", 0, 0, 0),
        ("worker", 1, 1, 0),
    ]
    assert {frozenset(member.resources.items()) for member in found.creates} == {frozenset(RESOURCES.items())}
    assert (found.counts["ps"], found.counts["worker"]) == ((0, 1), (0, 2))


def test_new_pods_have_the_next_ids_and_the_free_ranks() -> None:
    found = changes(scale_plan(replicas={"worker": 4}), pod(0), pod(1, phase="Failed"), pod(3, 2))
    assert [(number, rank) for number, rank, _ in created(found)] == [(4, 1), (5, 3)]
    assert found.removes == ()


@pytest.mark.parametrize(("phase", "count"), [("Pending", 0), ("Running", 0), ("Succeeded", 0), ("Failed", 1)])
def test_pods_that_have_not_failed_count(phase: str, count: int) -> None:
    assert len(changes(scale_plan(replicas={"worker": 1}), pod(0, phase=phase)).creates) == count


def test_a_pod_that_is_being_deleted_does_not_count_and_its_id_is_not_used_again() -> None:
    found = changes(scale_plan(replicas={"worker": 1}), pod(0, is_deleted=True))
    assert [number for number, _, _ in created(found)] == [1]


def test_the_pods_with_the_highest_ids_leave_first() -> None:
    found = changes(scale_plan(replicas={"worker": 2}), pod(0, phase="Pending"), pod(10, 1), pod(9, 2), pod(2, 3))
    assert sorted(found.removes) == [worker(10), worker(9)]
    assert (found.creates, found.counts["worker"]) == ((), (4, 2))


def test_pods_that_have_succeeded_stay_when_a_role_is_scaled_down() -> None:
    found = changes(scale_plan(replicas={"worker": 1}), pod(0), pod(1), pod(2, phase="Succeeded"))
    assert sorted(found.removes) == [worker(0), worker(1)]
    assert changes(scale_plan(replicas={"worker": 0}), pod(0, phase="Succeeded")).removes == ()


def test_the_replacement_of_a_rank_counts_the_pods_before_it() -> None:
    replacement = scale_plan(create=[pod_meta("worker", 5, 1)])
    assert created(changes(replacement, pod(0))) == [(5, 1, 0)]
    assert created(changes(replacement, pod(0), pod(1, phase="Failed"))) == [(5, 1, 1)]
    assert created(changes(replacement, pod(1, phase="Failed"), pod(3, 1, "Failed", relaunch_count=1))) == [(5, 1, 2)]
    assert created(changes(replacement, pod(1, role="ps"), pod(2, 2, "Failed", relaunch_count=7))) == [(5, 1, 0)]


def test_the_replacement_of_a_rank_counts_pods_that_are_already_deleted() -> None:
    first = changes(scale_plan(replicas={"worker": 2}))
    second = changes(scale_plan(number=1, create=[pod_meta("worker", 2, 1)]), elastic=with_servers(record=record_of(first)))
    assert created(second) == [(2, 1, 1)]
    third = changes(scale_plan(number=2, create=[pod_meta("worker", 3, 1)]), elastic=with_servers(record=record_of(second)))
    assert created(third) == [(3, 1, 2)]
    other_rank = changes(scale_plan(number=2, create=[pod_meta("worker", 3, 0)]), elastic=with_servers(record=record_of(second)))
    assert created(other_rank) == [(3, 0, 1)]


def record_of(found: MemberChanges) -> MembersRecord:
    return MembersRecord(relaunches=found.relaunches, hosts=found.hosts, limits=found.limits)


def test_a_pod_that_exists_is_not_created_again() -> None:
    found = changes(scale_plan(create=[pod_meta("worker", 1, 1)]), pod(0), pod(1))
    assert (found.creates, found.is_empty) == ((), True)


def test_pods_without_id_and_rank_get_the_next_id_and_the_lowest_free_rank() -> None:
    found = changes(manual(createPods=[{"type": "worker"}, {"type": "worker", "id": 9}]), pod(0), pod(4, 2))
    assert created(found) == [(5, 1, 0), (9, 3, 0)]


def test_a_plan_scales_then_creates_and_then_removes() -> None:
    plan = scale_plan(replicas={"worker": 3}, create=[pod_meta("worker", 3, 3)], remove=[worker(0), worker(2)])
    found = changes(plan, pod(0), pod(1))
    assert created(found) == [(3, 3, 0)]
    assert (found.removes, found.counts["worker"]) == ((worker(0),), (2, 2))


def test_only_members_of_the_job_can_be_removed() -> None:
    master, foreign = "elasticjob-elastic-dlrover-master-0", "other-edljob-worker-0"
    found = changes(scale_plan(remove=[master, foreign, worker(7)]), pod(0))
    assert (found.removes, found.is_empty) == ((), True)


@pytest.mark.parametrize("plan", [scale_plan(), scale_plan(replicas={"dlrover-master": 1}), scale_plan(replicas={"worker": 1})])
def test_a_plan_that_changes_nothing_is_empty(plan: JsonObject) -> None:
    assert changes(plan, pod(0)).is_empty


def test_addresses_of_parameter_servers_are_kept_until_a_plan_has_others() -> None:
    elastic = with_servers(record=MembersRecord(hosts=("a:1",)))
    assert changes(scale_plan(), elastic=elastic).hosts == ("a:1",)
    changed = changes(scale_plan(hosts=["a:1", "b:1"]), elastic=elastic)
    assert (changed.hosts, changed.is_empty) == (("a:1", "b:1"), False)


def test_the_replacements_of_many_pods_are_stored_together() -> None:
    found = changes(scale_plan(create=[pod_meta("worker", 100 + rank, rank) for rank in range(30)]))
    (planned,) = group_members(found.creates)
    assert (planned.runs, list(expand_members([planned]))) == (((100, 0, 30),), list(found.creates))


# --- limits of plans --------------------------------------------------------------------------------------------------


def test_a_role_has_at_most_10000_pods() -> None:
    plan = scale_plan(create=[{"type": "worker"}] * 10_000)
    assert len(changes(plan).creates) == 10_000
    with pytest.raises(SpecError, match="spec: asks for 10001 worker pods, and a job can have 10000"):
        changes(plan, pod(0))


def failure_of(manifest: JsonObject, elastic: ElasticJob) -> str:
    """The message of a plan that fails in the first pass."""
    manifest["metadata"]["uid"] = "plan"
    plan = elastic.reconcile(Snapshot(scale_plans=(_decode_plan(msgspec.json.encode(manifest)),)), 1000.0)
    (report,) = plan.reports
    assert (report.status["phase"], "members" in (plan.status or {})["dlop"]) == ("Failed", False)
    return str(report.status["message"])


def test_a_plan_whose_pods_an_api_server_cannot_hold_fails() -> None:
    hosts = [f"elastic-edljob-ps-{rank}.default.svc:2222" for rank in range(3000)]
    message = failure_of(scale_plan(replicas={"ps": 3000, "worker": 3000}, hosts=hosts), with_servers())
    assert re.fullmatch(r"spec: the pods of this job need 1\.\d GiB in the API server, more than the limit of 1 GiB; .*", message)


def test_a_plan_that_does_not_fit_into_the_status_of_the_job_fails() -> None:
    creates = [pod_meta("worker", number, number, resources={"cpu": f"{number + 1}m", "memory": "1Gi"}) for number in range(10_000)]
    message = failure_of(scale_plan(create=creates), job())
    assert re.match(r"spec: needs [\d,]+ bytes in the status of the job, more than the limit of 800,000; ", message)
    hosts = [f"{number:0100}" for number in range(9_000)]
    assert "bytes in the status of the job" in failure_of(scale_plan(hosts=hosts), with_servers())


def test_the_message_of_a_plan_with_many_problems_is_short() -> None:
    message = failure_of(scale_plan(create=[{"type": "x"}] * 10_000), job())
    assert (message[:24], len(message)) == ("spec.createPods[0].type:", 1000)


# --- manual plans -----------------------------------------------------------------------------------------------------


def test_a_worker_is_migrated_to_a_pod_with_other_resources_and_its_rank() -> None:
    plan = manual(migratePods=[{"name": worker(1), "resource": {"cpu": "4"}}])
    found = changes(plan, pod(0), pod(1), pod(2))
    assert (found.removes, created(found), found.creates[0].resources) == ((worker(1),), [(3, 1, 1)], {"cpu": "4"})
    assert found.counts["worker"] == (3, 3)


@pytest.mark.parametrize(
    "more", [{"migratePods": [{"name": worker(0)}] * 2}, {"remove": [worker(0)], "migratePods": [{"name": worker(0)}]}]
)
def test_a_worker_that_is_named_twice_is_migrated_once_and_one_that_is_removed_is_not_migrated(more: Any) -> None:
    found = changes(manual(**more), pod(0))
    assert found.removes == (worker(0),)
    assert created(found) == ([] if "remove" in more else [(1, 0, 1)])


def limited(limit: int) -> ElasticJob:
    return with_servers(record=MembersRecord(limits={"worker": limit}))


def test_the_number_of_a_manual_plan_limits_further_pods_of_the_master() -> None:
    assert changes(manual(replicas={"worker": 2}), pod(0), pod(1), pod(2)).limits == {"worker": 2}
    assert changes(manual(remove=[worker(2)]), pod(0), pod(1), pod(2)).limits == {"worker": 2}
    found = changes(scale_plan(create=[pod_meta("worker", 3, 2)]), pod(0), pod(1), elastic=limited(2))
    assert found.creates == ()
    (remark,) = found.remarks
    assert remark.message == "1 worker pod is not created, because a manual plan limits their number to 2"


def test_the_limit_of_a_manual_plan_allows_replacements_and_ends_with_a_number_of_the_master() -> None:
    replacement = scale_plan(create=[pod_meta("worker", 2, 1)], remove=[worker(1)])
    assert created(changes(replacement, pod(0), pod(1), elastic=limited(2))) == [(2, 1, 1)]
    assert created(changes(scale_plan(create=[pod_meta("worker", 2, 1)]), pod(0), pod(1, phase="Failed"), elastic=limited(2))) == [
        (2, 1, 1)
    ]
    found = changes(scale_plan(replicas={"worker": 3}), pod(0), pod(1), elastic=limited(2))
    assert (len(found.creates), found.limits) == (1, {})


def test_on_platform_pyk8s_a_manual_plan_can_add_workers_and_not_remove_them() -> None:
    elastic = job(platform="pyk8s")
    assert len(changes(manual(replicas={"worker": 2}), pod(0), elastic=elastic).creates) == 1
    with pytest.raises(SpecError, match="spec: removes pods, and the master of this job would create them again"):
        changes(manual(replicas={"worker": 0}), pod(0), elastic=elastic)


# --- resource limits --------------------------------------------------------------------------------------------------


def limited_to(**limits: Any) -> ElasticJob:
    return with_servers(resourceLimits=limits)


def test_pods_that_exceed_the_limits_of_the_job_are_not_created() -> None:
    found = changes(scale_plan(replicas={"worker": 4}), elastic=limited_to(cpu="2", memory="100Gi"))
    assert created(found) == [(0, 0, 0), (1, 1, 0)]
    assert found.counts["worker"] == (0, 2)
    assert found.remarks[0].message == (
        "2 worker pods are not created, because spec.resourceLimits allows 2 of cpu for all pods of the job"
    )


@pytest.mark.parametrize(("limit", "count"), [("1Gi", 2), ("1535Mi", 2), ("1536Mi", 3), ("100Mi", 0)])
def test_limits_are_exact_and_inclusive(limit: str, count: int) -> None:
    assert len(changes(scale_plan(replicas={"worker": 3}), elastic=limited_to(memory=limit)).creates) == count


def test_existing_pods_of_all_roles_count_and_those_that_the_plan_removes_do_not() -> None:
    elastic = limited_to(cpu=3)
    pods = [pod(0, resources=RESOURCES), pod(1, resources=RESOURCES), pod(0, role="ps", resources=RESOURCES)]
    assert changes(scale_plan(create=[pod_meta("worker", 2, 2)]), *pods, elastic=elastic).creates == ()
    assert created(changes(scale_plan(create=[pod_meta("worker", 2, 1)], remove=[worker(1)]), *pods, elastic=elastic)) == [(2, 1, 1)]
    failed = pod(1, phase="Failed", resources=RESOURCES)
    assert created(changes(scale_plan(create=[pod_meta("worker", 2, 1)]), pods[0], failed, pods[2], elastic=elastic)) == [(2, 1, 1)]


@pytest.mark.parametrize(("resources", "count"), [({"cpu": "1", "nvidia.com/gpu": "2"}, 2), ({"cpu": "1"}, 3)])
def test_the_limit_of_gpus_is_that_of_nvidias_resource(resources: Mapping[str, str], count: int) -> None:
    assert len(changes(scale_plan(replicas={"worker": 3}, resources=resources), elastic=limited_to(gpu="4")).creates) == count


def test_resources_of_the_template_are_limited_if_the_plan_has_none() -> None:
    replica_specs = {"worker": {"template": template(resources={"limits": {"cpu": 2}})}}
    elastic = job(resourceLimits={"cpu": "5"}, replicaSpecs=replica_specs)
    assert len(changes(scale_plan(replicas={"worker": 3}, resources={}), elastic=elastic).creates) == 2


def test_a_pod_that_is_not_created_is_not_counted_as_a_replaced_one() -> None:
    first = changes(scale_plan(create=[pod_meta("worker", 0, 0), pod_meta("worker", 1, 1)]), elastic=limited_to(cpu="1"))
    assert created(first) == [(0, 0, 0)]
    again = scale_plan(number=1, create=[pod_meta("worker", 1, 1)])
    assert created(changes(again, pod(0), elastic=with_servers(record=record_of(first)))) == [(1, 1, 0)]


def test_a_worker_is_not_migrated_if_its_replacement_would_exceed_the_limits() -> None:
    plan = manual(migratePods=[{"name": worker(0), "resource": {"cpu": "8"}}])
    found = changes(plan, pod(0, resources=RESOURCES), elastic=limited_to(cpu="2"))
    assert (found.creates, found.removes, found.counts["worker"], len(found.remarks)) == ((), (), (1, 1), 1)


def test_many_pods_beyond_the_limits_are_reported_together() -> None:
    found = changes(scale_plan(replicas={"worker": 1000}), elastic=limited_to(cpu="2"))
    assert (len(found.creates), len(found.remarks)) == (2, 1)


def test_a_manual_plan_that_names_a_pod_that_does_not_exist_fails() -> None:
    for fields in ({"remove": [worker(7)]}, {"migratePods": [{"name": worker(7)}]}):
        with pytest.raises(SpecError, match=r"spec\.(remove|migrate)Pods: names elastic-edljob-worker-7, and the job has no such pod"):
            changes(manual(**fields), pod(0))
    assert changes(scale_plan(remove=[worker(7)]), pod(0)).is_empty
