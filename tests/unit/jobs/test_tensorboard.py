"""Whether the TensorBoard of a job can be reached, and why not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop.jobs.errors import JobsError
from dlop.jobs.lookup import JobHandle
from dlop.jobs.tensorboard import TensorBoardState, tensorboard_of, tensorboard_state
from dlop.kube.objects import CustomObject, ObjectMeta, Pod, object_decoder
from dlop.kube.types import JsonObject
from tests.unit.job.jobs import UID, PairJob, pair_spec

LOGS: JsonObject = {"logDir": "/logs", "ttlSecondsAfterJobFinished": 60}
FINISHED = {"phase": "Succeeded", "finishedAt": "1970-01-01T00:16:40Z"}
_decode_pod = object_decoder(Pod)


def handle(tensorboard: JsonObject | None = LOGS, *, record: JsonObject | None = None) -> JobHandle:
    spec = pair_spec(run_policy={} if tensorboard is None else {"tensorBoard": tensorboard})
    encode = msgspec.json.encode
    status = {} if record is None else {"dlop": record}
    metadata = ObjectMeta(name="train", namespace="lab", uid=UID)
    return JobHandle(PairJob, CustomObject(metadata=metadata, spec=msgspec.Raw(encode(spec)), status=msgspec.Raw(encode(status))))


def pod(*, ready: bool = False, waiting: JsonObject | None = None, **metadata: Any) -> Pod:
    state = {"running": {}} if waiting is None else {"waiting": waiting}
    container = {"name": "tensorboard", "ready": ready, "state": state}
    body = {"metadata": {"name": "train-tensorboard-0", **metadata}, "status": {"phase": "Running", "containerStatuses": [container]}}
    return _decode_pod(msgspec.json.encode(body))


def message(job: JobHandle, of: Pod | None = None, *, now: float = 0.0) -> str:
    state = tensorboard_state(job, of, now=now)
    assert not state.is_ready
    return state.message


def test_a_pod_whose_container_is_ready_can_be_reached() -> None:
    assert tensorboard_state(handle(), pod(ready=True), now=0.0) == TensorBoardState(is_ready=True)


def test_the_message_says_what_is_missing() -> None:
    assert message(handle()) == "no operator has reconciled the job yet"
    assert message(handle(record={"phase": "Created"})) == "it starts when the job runs; the phase of the job is Created"
    assert message(handle(record={"phase": "Suspended"})) == "the job is suspended; `dlop resume train` resumes it"
    assert message(handle(), pod()) == "pod train-tensorboard-0 is not ready: it is starting"
    pull = {"reason": "ErrImagePull", "message": "no such image"}
    assert message(handle(), pod(waiting=pull)) == "pod train-tensorboard-0 is not ready: ImagePullBackOff: no such image"


def test_a_terminating_pod_is_not_ready() -> None:
    terminating = pod(ready=True, deletionTimestamp="2025-01-01T00:00:00Z")
    assert message(handle(record={"phase": "Running"}), terminating).startswith("it starts when the job runs")


def test_after_its_time_to_live_it_will_not_come_back() -> None:
    job = handle(record=FINISHED)
    assert message(job, now=1059.0) == "it starts when the job runs; the phase of the job is Succeeded"
    with pytest.raises(JobsError, match="was deleted 60 seconds after the end of the job; raise ttlSecondsAfterJobFinished"):
        tensorboard_state(job, None, now=1060.0)


def test_a_job_without_a_tensorboard_says_how_to_add_one() -> None:
    with pytest.raises(JobsError) as raised:
        tensorboard_of(handle(None))
    assert str(raised.value) == (
        "PairJob train has no TensorBoard; add one with the directory of its event files: "
        "kubectl patch pairjobs.example.org/train -n lab --type merge "
        """-p '{"spec": {"runPolicy": {"tensorBoard": {"logDir": "/logs"}}}}'"""
    )


def test_an_invalid_job_is_reported_with_the_field() -> None:
    with pytest.raises(JobsError, match=r"the spec of PairJob train is invalid: spec\.runPolicy\.tensorBoard\.logDir: is missing"):
        tensorboard_of(handle({}))
