"""The view of a job: the state of its replicas, its pending reasons and its history."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop.jobs.history import KubeEvent
from dlop.jobs.lookup import JobHandle
from dlop.jobs.view import JobView, build_view
from dlop.kube.objects import Pod, object_decoder
from dlop.kube.types import JsonObject
from tests.sim.crew_job import CrewJob, crew

_decode_pod = object_decoder(Pod)


def handle(*, status: JsonObject | None = None, metadata: JsonObject | None = None, **spec: Any) -> JobHandle:
    body = crew("job")
    body["metadata"] |= {"namespace": "ns", "uid": "u", "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z", **(metadata or {})}
    body["spec"] |= spec
    return JobHandle.decode(CrewJob, msgspec.json.encode({**body, "status": status or {}}))


def pod(name: str, phase: str = "Running", state: JsonObject | None = None, *, status: JsonObject | None = None, **metadata: Any) -> Pod:
    owner = {"apiVersion": "crew.dlop.dev/v1", "kind": "CrewJob", "name": "job", "uid": "u", "controller": True}
    main = {"name": "main", "restartCount": 0, "state": state or {}}
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": [owner], **metadata},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main"}], "nodeName": "node-1"},
        "status": {"phase": phase, "podIP": "10.0.0.1", "containerStatuses": [main], **(status or {})},
    }
    return _decode_pod(msgspec.json.encode(body))


def record(phase: str = "Running", **fields: Any) -> JsonObject:
    return {"dlop": {"phase": phase, "observedGeneration": 2, **fields}}


def states(view: JobView) -> dict[str, str]:
    return {f"{replica.role} {replica.index}": replica.state for replica in view.replicas}


# --- replicas ------------------------------------------------------------------------------------------------------------


def test_every_desired_replica_has_a_state_even_without_a_pod() -> None:
    view = build_view(handle(status=record()), [pod("job-chief-0"), pod("job-worker-1", "Pending")])
    assert states(view) == {"Chief 0": "Running", "Worker 0": "Missing", "Worker 1": "Pending"}
    worker = view.roles[1]
    assert (worker.name, worker.desired, worker.running, worker.pending) == ("Worker", 2, 0, 2)


def test_a_pod_with_another_name_is_matched_by_its_labels() -> None:
    labels = {"dlop.dev/job-name": "job", "dlop.dev/replica-type": "worker", "dlop.dev/replica-index": "1"}
    view = build_view(handle(status=record()), [pod("job-chief-0"), pod("another-name", labels=labels), pod("one-more", labels=labels)])
    assert states(view) == {"Chief 0": "Running", "Worker 0": "Missing", "Worker 1": "Running", " -1": "Running"}
    assert [replica.pod for replica in view.replicas] == ["job-chief-0", "job-worker-0", "another-name", "one-more"]


def test_recorded_results_override_the_state_of_the_pod() -> None:
    status = record(completedIndexes={"Worker": "0"}, failedIndexes={"Worker": "1"})
    view = build_view(handle(status=status), [pod("job-worker-0", "Running")])
    assert states(view) == {"Chief 0": "Missing", "Worker 0": "Succeeded", "Worker 1": "Failed"}


def test_replicas_of_a_finished_job_without_a_pod_are_gone() -> None:
    view = build_view(handle(status=record("Succeeded", completedIndexes={"Chief": "0"})), [])
    assert states(view) == {"Chief 0": "Succeeded", "Worker 0": "Gone", "Worker 1": "Gone"}
    assert [role.pending for role in view.roles] == [0, 0]


@pytest.mark.parametrize(
    ("exit_code", "state"),
    [(0, "Succeeded"), (143, "Gone")],
)
def test_the_exit_code_decides_the_state_of_a_terminating_pod_of_a_finished_job(exit_code: int, state: str) -> None:
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"}
    ended = {"terminated": {"exitCode": exit_code, **times}}
    phase = "Failed" if exit_code else "Succeeded"
    terminating = pod("job-worker-0", phase, ended, deletionTimestamp="2026-01-01T00:00:40Z", deletionGracePeriodSeconds=30)
    assert states(build_view(handle(status=record("Succeeded")), [terminating]))["Worker 0"] == state
    assert states(build_view(handle(status=record("Running")), [terminating]))["Worker 0"] == "Terminating"
    still_running = pod("job-worker-0", deletionTimestamp="2026-01-01T00:00:40Z")
    assert states(build_view(handle(status=record("Succeeded")), [still_running]))["Worker 0"] == "Terminating"


@pytest.mark.parametrize(
    ("worker_pod", "expected"),
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
def test_a_replica_has_the_exit_code_and_the_reason_of_its_pod(worker_pod: Pod, expected: tuple[object, ...]) -> None:
    replica = build_view(handle(status=record()), [worker_pod]).replicas[1]
    assert (replica.state, replica.exit_code, replica.reason, replica.message) == expected


def test_surplus_pods_come_last_with_their_role_and_index() -> None:
    view = build_view(handle(status=record()), [pod("job-worker-7"), pod("stranger"), pod("job-worker-99999999999999999999")])
    assert [(replica.role, replica.index, replica.pod) for replica in view.replicas[3:]] == [
        ("Worker", 7, "job-worker-7"),
        ("", -1, "stranger"),
        ("", -1, "job-worker-99999999999999999999"),
    ]


def test_pods_of_another_owner_are_ignored() -> None:
    other = pod("job-worker-0", ownerReferences=[{"kind": "CrewJob", "name": "job", "uid": "another", "controller": True}])
    assert states(build_view(handle(status=record()), [other]))["Worker 0"] == "Missing"


def test_a_replica_that_waits_for_its_next_pod_has_the_last_failure() -> None:
    failure = {"pod": "job-worker-1", "role": "Worker", "index": 1, "exitCode": 137, "reason": "OOMKilled"}
    view = build_view(handle(status=record(lastFailure=failure, replacements={"Worker": {"3": "1"}})), [])
    worker = view.replicas[2]
    assert (worker.state, worker.exit_code, worker.reason, worker.restarts) == ("Missing", 137, "OOMKilled", 3)
    assert view.failed_replica == worker


# --- pending reasons -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "reason", "message"),
    [
        (handle(), "NotReconciled: no operator has reconciled the job yet", "check that one is running"),
        (handle(status=record(), runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}), "ManagedByOther: ", "names another controller"),
        (handle(status=record("Suspended")), "Suspended: the job is suspended", "the job is suspended; `dlop resume job` resumes it"),
        (
            handle(status=record("Suspended", queue="research")),
            "Queued: the job waits in the queue research",
            "`kubectl describe workload crewjob-job-",
        ),
        (handle(status={"dlop": {"phase": "Running", "observedGeneration": 1}}), "SpecNotObserved: ", "has not observed the latest spec"),
        (
            handle(status=record(blocked={"reason": "Forbidden", "message": "quota exceeded. Ask"})),
            "Forbidden: quota exceeded",
            "exceeded. Ask",
        ),
        (
            handle(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}),
            "Terminating: the job is being deleted",
            "the job is being deleted; waiting for the finalizers a/b",
        ),
        (
            handle(status=record("Invalid"), replicaSpecs={"Worker": {"replicas": -1}}),
            "InvalidSpec: the spec is invalid: spec.replicaSpecs.Worker.",
            "spec.replicaSpecs.Worker.replicas: ",
        ),
    ],
)
def test_the_reason_why_a_job_does_not_make_progress(job: JobHandle, reason: str, message: str) -> None:
    view = build_view(job, [])
    assert message in view.pending_reasons[0]
    assert view.pending_reason.startswith(reason)


def test_pods_with_the_same_reason_are_grouped() -> None:
    stuck = [
        pod(f"job-worker-{number}", "Pending", {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}) for number in (0, 1)
    ]
    running = [pod("job-chief-0", "Running", {"running": {}})]
    view = build_view(handle(status=record()), [*stuck, *running])
    assert view.pending_reasons == ("pods job-worker-0, job-worker-1: ErrImagePull: no such image",)
    assert view.pending_reason == "ErrImagePull: no such image"


def test_a_blocked_condition_about_a_pod_is_not_repeated_with_the_reason_of_the_pods() -> None:
    stuck = [pod(f"job-worker-{number}", "Pending", {"waiting": {"reason": "ErrImagePull", "message": "no"}}) for number in (0, 1)]
    blocked = {"object": "pod job-worker-0", "reason": "ErrImagePull", "message": "pod job-worker-0: cannot start: ErrImagePull: no"}
    view = build_view(handle(status=record(blocked=blocked)), stuck)
    assert view.pending_reasons == ("pods job-worker-0, job-worker-1: ErrImagePull: no",)
    other = {"object": "pod job-chief-0", "reason": "BackOff", "message": "pod job-chief-0: back-off before the next restart"}
    assert len(build_view(handle(status=record(blocked=other)), stuck).pending_reasons) == 2


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_job_has_no_pending_reasons(phase: str) -> None:
    view = build_view(handle(status=record(phase)), [pod("job-worker-0", "Pending", {"waiting": {"reason": "ErrImagePull"}})])
    assert (view.pending_reasons, view.pending_reason) == ((), "")


def test_a_job_that_makes_progress_has_no_pending_reasons() -> None:
    assert build_view(handle(status=record()), [pod("job-chief-0", "Running", {"running": {}})]).pending_reasons == ()


# --- history -------------------------------------------------------------------------------------------------------------


def event(reason: str, at: str, *, kind: str = "CrewJob", name: str = "job", uid: str = "u", message: str = "", **fields: Any) -> KubeEvent:
    body = {"involvedObject": {"kind": kind, "name": name, "uid": uid}, "reason": reason, "message": message, "eventTime": at, **fields}
    return msgspec.convert(body, KubeEvent)


def test_conditions_and_events_are_merged_into_one_history_oldest_first() -> None:
    condition = {
        "type": "Running",
        "status": "True",
        "reason": "CrewJobRunning",
        "message": "the job is running",
        "lastTransitionTime": "2026-01-01T00:00:05Z",
    }
    same = {"type": "Failed", "status": "True", "reason": "X", "message": "same message", "lastTransitionTime": "2026-01-01T00:00:09Z"}
    events = [
        event("Failed", "2026-01-01T00:00:09.500000Z", message="same message", type="Warning"),
        event("Pulled", "2026-01-01T00:00:03.000000Z", kind="Pod", name="job-worker-0", uid="p"),
        event("CreatedPods", "2026-01-01T00:00:01.000000Z", series={"count": 4, "lastObservedTime": "2026-01-01T00:00:02.000000Z"}),
        event("Other", "2026-01-01T00:00:01.000000Z", kind="Pod", name="stranger", uid="s"),
        event("Earlier", "2026-01-01T00:00:01.000000Z", uid="a job of the same name"),
        event("Killed", "2025-12-31T00:00:00.000000Z", kind="Pod", name="job-worker-0", uid="of that job"),
    ]
    view = build_view(handle(status={**record(), "conditions": [condition, same]}), [pod("job-worker-0")], events)
    assert [(entry.reason, entry.subject, entry.count, entry.is_warning) for entry in view.history] == [
        ("Submitted", "job", 1, False),
        ("CreatedPods", "job", 4, False),
        ("Pulled", "pod job-worker-0", 1, False),
        ("CrewJobRunning", "job", 1, False),
        ("Failed", "job", 1, True),
    ]


def test_within_a_second_events_are_ordered_by_resource_version() -> None:
    second = "2026-01-01T00:00:00Z"
    condition = {
        "type": "Running",
        "status": "True",
        "reason": "CrewJobRunning",
        "message": "the job is running",
        "lastTransitionTime": second,
    }
    about_pod = {"kind": "Pod", "name": "job-worker-0", "uid": "p"}
    events = [
        event("Started", second, **about_pod, metadata={"resourceVersion": "12"}),
        event("Scheduled", second, **about_pod, metadata={"resourceVersion": "9"}),
        event("CreatedPods", "2026-01-01T00:00:00.700000Z", metadata={"resourceVersion": "8"}),
        event("Before", "2025-12-31T23:59:59.900000Z", metadata={"resourceVersion": "20"}),
    ]
    view = build_view(handle(status={**record(), "conditions": [condition]}), [pod("job-worker-0")], events)
    assert [entry.reason for entry in view.history] == ["Before", "Submitted", "CreatedPods", "Scheduled", "Started", "CrewJobRunning"]


def test_without_numeric_resource_versions_events_are_ordered_by_time() -> None:
    events = [
        event("Second", "2026-01-01T00:00:01.700000Z", metadata={"resourceVersion": "a"}),
        event("First", "2026-01-01T00:00:01.200000Z", metadata={"resourceVersion": "b"}),
    ]
    assert [entry.reason for entry in build_view(handle(), [], events).history] == ["Submitted", "First", "Second"]


@pytest.mark.parametrize("status", [{"dlop": 3}, {"dlop": {"phase": "Boat"}}, {"conditions": [None, 3, {"type": 5}]}, {"startTime": 7}])
def test_an_invalid_status_still_yields_a_view(status: JsonObject) -> None:
    assert build_view(handle(status=status), [pod("job-worker-0")]).phase in ("NotReconciled", "Running")
