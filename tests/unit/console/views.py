"""Views of an example job for the tests of this folder."""

from __future__ import annotations

import msgspec

from dlop.jobs.replicas import ReplicaView
from dlop.jobs.view import JobView, RoleView


def replica(index: int, state: str, **fields: object) -> ReplicaView:
    return msgspec.structs.replace(ReplicaView(role="Worker", index=index, state=state, pod=f"demo-worker-{index}"), **fields)


def job_view(*replicas: ReplicaView, phase: str = "Running", reasons: tuple[str, ...] = ()) -> JobView:
    role = RoleView(
        name="Worker",
        desired=len(replicas),
        minimum=len(replicas),
        maximum=len(replicas),
        pending=0,
        running=0,
        succeeded=0,
        failed=0,
        restarts=0,
        disruptions=0,
    )
    return JobView(
        kind="RingJob",
        api_version="example.org/v1",
        reference="ringjobs.example.org/demo",
        namespace="default",
        name="demo",
        uid="1",
        phase=phase,
        message="",
        is_terminating=False,
        created_at="",
        started_at="",
        finished_at="",
        attempt=0,
        restarts=0,
        disruptions=0,
        roles=(role,),
        replicas=replicas,
        pending_reasons=reasons,
        pending_reason=reasons[0] if reasons else "",
        blocked=None,
        last_failure=None,
        history=(),
    )
