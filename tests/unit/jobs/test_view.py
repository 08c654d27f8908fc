"""A job as people see it: each replica as it stands, what is in the way, and what happened in order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop.jobs.history import KubeEvent
from dlop.jobs.lookup import JobHandle
from dlop.jobs.view import JobView, view_of
from dlop.kube.objects import Pod, reader
from dlop.kube.types import JsonObject
from tests.sim.job_world import CrewJob, crew

_read_pod = reader(Pod)


def found(*, status: JsonObject | None = None, metadata: JsonObject | None = None, **spec: Any) -> JobHandle:
    body = crew("job")
    body["metadata"] |= {"namespace": "ns", "uid": "u", "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z", **(metadata or {})}
    body["spec"] |= spec
    return JobHandle.read(CrewJob, msgspec.json.encode({**body, "status": status or {}}))


def pod(name: str, phase: str = "Running", state: JsonObject | None = None, *, status: JsonObject | None = None, **metadata: Any) -> Pod:
    owner = {"apiVersion": "crew.dlop.dev/v1", "kind": "CrewJob", "name": "job", "uid": "u", "controller": True}
    main = {"name": "main", "restartCount": 0, "state": state or {}}
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": [owner], **metadata},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main"}], "nodeName": "node-1"},
        "status": {"phase": phase, "podIP": "10.0.0.1", "containerStatuses": [main], **(status or {})},
    }
    return _read_pod(msgspec.json.encode(body))


def record(phase: str = "Running", **fields: Any) -> JsonObject:
    return {"dlop": {"phase": phase, "observedGeneration": 2, **fields}}


def states(view: JobView) -> dict[str, str]:
    return {f"{each.role} {each.index}": each.state for each in view.replicas}


# --- replicas ------------------------------------------------------------------------------------------------------------


def test_every_replica_that_is_asked_for_has_a_row_also_without_a_pod() -> None:
    view = view_of(found(status=record()), [pod("job-chief-0"), pod("job-worker-1", "Pending")])
    assert states(view) == {"Chief 0": "Running", "Worker 0": "Missing", "Worker 1": "Pending"}
    worker = view.roles[1]
    assert (worker.name, worker.wanted, worker.running, worker.pending) == ("Worker", 2, 0, 2)


def test_a_pod_that_somebody_else_has_named_is_the_replica_that_its_labels_tell() -> None:
    labels = {"dlop.dev/job-name": "job", "dlop.dev/replica-type": "worker", "dlop.dev/replica-index": "1"}
    view = view_of(found(status=record()), [pod("job-chief-0"), pod("another-name", labels=labels), pod("one-more", labels=labels)])
    assert states(view) == {"Chief 0": "Running", "Worker 0": "Missing", "Worker 1": "Running", " -1": "Running"}
    assert [each.pod for each in view.replicas] == ["job-chief-0", "job-worker-0", "another-name", "one-more"]


def test_what_the_record_knows_to_be_done_is_done_whatever_became_of_its_pod() -> None:
    status = record(completed={"Worker": "0"}, failed={"Worker": "1"})
    view = view_of(found(status=status), [pod("job-worker-0", "Running")])
    assert states(view) == {"Chief 0": "Missing", "Worker 0": "Succeeded", "Worker 1": "Failed"}


def test_replicas_of_a_job_that_is_over_are_gone_and_not_missing() -> None:
    view = view_of(found(status=record("Succeeded", completed={"Chief": "0"})), [])
    assert states(view) == {"Chief 0": "Succeeded", "Worker 0": "Gone", "Worker 1": "Gone"}
    assert [role.pending for role in view.roles] == [0, 0]


@pytest.mark.parametrize(
    ("exit_code", "state"),
    [(0, "Succeeded"), (143, "Gone")],
)
def test_a_pod_that_has_ended_while_it_was_told_to_go_with_its_job_is_told_by_its_end(exit_code: int, state: str) -> None:
    moments = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"}
    ended = {"terminated": {"exitCode": exit_code, **moments}}
    phase = "Failed" if exit_code else "Succeeded"
    leaving = pod("job-worker-0", phase, ended, deletionTimestamp="2026-01-01T00:00:40Z", deletionGracePeriodSeconds=30)
    assert states(view_of(found(status=record("Succeeded")), [leaving]))["Worker 0"] == state
    assert states(view_of(found(status=record("Running")), [leaving]))["Worker 0"] == "Terminating"
    still_there = pod("job-worker-0", deletionTimestamp="2026-01-01T00:00:40Z")
    assert states(view_of(found(status=record("Succeeded")), [still_there]))["Worker 0"] == "Terminating"


@pytest.mark.parametrize(
    ("found_pod", "expected"),
    [
        (
            pod("job-worker-0", "Failed", {"terminated": {"exitCode": 3, "reason": "Error", "message": "no disk\n"}}),
            ("Failed", 3, "Error", "no disk"),
        ),
        (
            pod("job-worker-0", "Failed", status={"reason": "Evicted", "message": "low on memory"}),
            ("Disrupted", None, "Evicted", "low on memory"),
        ),
        (pod("job-worker-0", "Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed"}}), ("Succeeded", 0, "Completed", "")),
        (
            pod("job-worker-0", "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}),
            ("Pending", None, "ImagePullBackOff", "no"),
        ),
        (pod("job-worker-0", deletionTimestamp="2026-01-01T00:00:00Z"), ("Terminating", None, "", "")),
        (
            pod("job-worker-0", "Pending", status={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}),
            ("Pending", None, "Unschedulable", ""),
        ),
    ],
)
def test_a_pod_is_told_with_its_exit_code_and_its_reason(found_pod: Pod, expected: tuple[object, ...]) -> None:
    replica = view_of(found(status=record()), [found_pod]).replicas[1]
    assert (replica.state, replica.exit_code, replica.reason, replica.message) == expected


def test_pods_that_are_not_asked_for_any_more_come_last_with_their_place() -> None:
    view = view_of(found(status=record()), [pod("job-worker-7"), pod("stranger"), pod("job-worker-99999999999999999999")])
    assert [(each.role, each.index, each.pod) for each in view.replicas[3:]] == [
        ("Worker", 7, "job-worker-7"),
        ("", -1, "stranger"),
        ("", -1, "job-worker-99999999999999999999"),
    ]


def test_pods_of_others_are_left_out() -> None:
    other = pod("job-worker-0", ownerReferences=[{"kind": "CrewJob", "name": "job", "uid": "another", "controller": True}])
    assert states(view_of(found(status=record()), [other]))["Worker 0"] == "Missing"


def test_a_replica_that_waits_for_its_next_pod_still_tells_how_it_ended() -> None:
    failure = {"pod": "job-worker-1", "role": "Worker", "index": 1, "exitCode": 137, "reason": "OOMKilled"}
    view = view_of(found(status=record(lastFailure=failure, retries={"Worker/1": [3, "2026-01-01T00:00:00Z"]})), [])
    worker = view.replicas[2]
    assert (worker.state, worker.exit_code, worker.reason, worker.restarts) == ("Missing", 137, "OOMKilled", 3)
    assert view.failed_replica == worker


# --- what it waits for ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (found(), "no operator has looked at it yet"),
        (found(status=record(), runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}), "names another operator"),
        (found(status=record("Suspended")), "it is suspended; `dlop resume job` lets it go on"),
        (found(status={"dlop": {"phase": "Running", "observedGeneration": 1}}), "has not seen the last change of its spec"),
        (found(status=record(blocked={"message": "quota exceeded"})), "quota exceeded"),
        (
            found(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}),
            "it is being deleted, and waits for the finalizers a/b",
        ),
        (found(status=record("Invalid"), replicaSpecs={"Worker": {"replicas": -1}}), "spec.replicaSpecs.Worker.replicas: must be from 0"),
    ],
)
def test_what_is_in_the_way_is_told(job: JobHandle, sentence: str) -> None:
    assert sentence in view_of(job, []).waits_for[0]


def test_pods_with_the_same_trouble_are_told_together_and_once() -> None:
    stuck = [
        pod(f"job-worker-{number}", "Pending", {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}) for number in (0, 1)
    ]
    running = [pod("job-chief-0", "Running", {"running": {}})]
    view = view_of(found(status=record()), [*stuck, *running])
    assert view.waits_for == ("pods job-worker-0, job-worker-1: ErrImagePull: no such image",)


def test_what_the_operator_says_of_one_pod_is_not_repeated_beside_what_all_of_them_say() -> None:
    stuck = [pod(f"job-worker-{number}", "Pending", {"waiting": {"reason": "ErrImagePull", "message": "no"}}) for number in (0, 1)]
    said = {"object": "pod job-worker-0", "reason": "CannotStart", "message": "pod job-worker-0: it cannot start: ErrImagePull: no"}
    assert view_of(found(status=record(blocked=said)), stuck).waits_for == ("pods job-worker-0, job-worker-1: ErrImagePull: no",)
    other = {"object": "pod job-chief-0", "reason": "BackOff", "message": "pod job-chief-0: it is started again later"}
    assert len(view_of(found(status=record(blocked=other)), stuck).waits_for) == 2


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_that_is_over_waits_for_nothing(phase: str) -> None:
    assert view_of(found(status=record(phase)), [pod("job-worker-0", "Pending", {"waiting": {"reason": "ErrImagePull"}})]).waits_for == ()


def test_a_job_that_goes_on_as_it_should_waits_for_nothing() -> None:
    assert view_of(found(status=record()), [pod("job-chief-0", "Running", {"running": {}})]).waits_for == ()


# --- what happened -------------------------------------------------------------------------------------------------------


def event(reason: str, at: str, *, kind: str = "CrewJob", name: str = "job", uid: str = "u", message: str = "", **fields: Any) -> KubeEvent:
    body = {"involvedObject": {"kind": kind, "name": name, "uid": uid}, "reason": reason, "message": message, "eventTime": at, **fields}
    return msgspec.convert(body, KubeEvent)


def test_conditions_and_events_of_job_and_pods_are_one_story_oldest_first() -> None:
    condition = {
        "type": "Running",
        "status": "True",
        "reason": "CrewJobRunning",
        "message": "it runs",
        "lastTransitionTime": "2026-01-01T00:00:05Z",
    }
    same = {"type": "Failed", "status": "True", "reason": "X", "message": "said twice", "lastTransitionTime": "2026-01-01T00:00:09Z"}
    events = [
        event("Failed", "2026-01-01T00:00:09.500000Z", message="said twice", type="Warning"),
        event("Pulled", "2026-01-01T00:00:03.000000Z", kind="Pod", name="job-worker-0", uid="p"),
        event("CreatedPods", "2026-01-01T00:00:01.000000Z", series={"count": 4, "lastObservedTime": "2026-01-01T00:00:02.000000Z"}),
        event("Other", "2026-01-01T00:00:01.000000Z", kind="Pod", name="stranger", uid="s"),
        event("Earlier", "2026-01-01T00:00:01.000000Z", uid="a job of the same name"),
        event("Killed", "2025-12-31T00:00:00.000000Z", kind="Pod", name="job-worker-0", uid="of that job"),
    ]
    view = view_of(found(status={**record(), "conditions": [condition, same]}), [pod("job-worker-0")], events)
    assert [(each.reason, each.subject, each.times, each.is_warning) for each in view.history] == [
        ("Submitted", "job", 1, False),
        ("CreatedPods", "job", 4, False),
        ("Pulled", "pod job-worker-0", 1, False),
        ("CrewJobRunning", "job", 1, False),
        ("Failed", "job", 1, True),
    ]


def test_within_a_second_the_server_knows_the_order() -> None:
    second = "2026-01-01T00:00:00Z"
    condition = {"type": "Running", "status": "True", "reason": "CrewJobRunning", "message": "it runs", "lastTransitionTime": second}
    about_pod = {"kind": "Pod", "name": "job-worker-0", "uid": "p"}
    events = [
        event("Started", second, **about_pod, metadata={"resourceVersion": "12"}),
        event("Scheduled", second, **about_pod, metadata={"resourceVersion": "9"}),
        event("CreatedPods", "2026-01-01T00:00:00.700000Z", metadata={"resourceVersion": "8"}),
        event("Before", "2025-12-31T23:59:59.900000Z", metadata={"resourceVersion": "20"}),
    ]
    view = view_of(found(status={**record(), "conditions": [condition]}), [pod("job-worker-0")], events)
    assert [each.reason for each in view.history] == ["Before", "Submitted", "CreatedPods", "Scheduled", "Started", "CrewJobRunning"]


def test_without_numbered_versions_the_finer_clock_decides() -> None:
    events = [
        event("Second", "2026-01-01T00:00:01.700000Z", metadata={"resourceVersion": "a"}),
        event("First", "2026-01-01T00:00:01.200000Z", metadata={"resourceVersion": "b"}),
    ]
    assert [each.reason for each in view_of(found(), [], events).history] == ["Submitted", "First", "Second"]


@pytest.mark.parametrize("status", [{"dlop": 3}, {"dlop": {"phase": "Boat"}}, {"conditions": [None, 3, {"type": 5}]}, {"startTime": 7}])
def test_a_status_that_makes_no_sense_is_still_a_view(status: JsonObject) -> None:
    assert view_of(found(status=status), [pod("job-worker-0")]).phase in ("Unseen", "Running")
