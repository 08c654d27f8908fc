"""The CPU time of `find_changes` by the number of members, without a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import msgspec
from bench_plans_job import ELASTIC, JOB, RESOURCES
from bench_report import Row, log_progress

from dlop.api.record import Record
from dlop.api.scale_plan import Member, MemberRequest, MembersRecord, Migration, RoleTarget, ScaleRequest
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.dlrover.members import ElasticJobMembers
from dlop.frameworks.dlrover.names import PLATFORM_ANNOTATION, WORKER, member_name
from dlop.kube.objects import CustomObject, Pod, object_decoder
from dlop.reconcile.context import PersistedState, ReconcileContext
from dlop.reconcile.member_changes import find_changes
from dlop.reconcile.snapshot import Snapshot

_MEMBERS_PER_BATCH = 1_000
_NAMESPACE = "default"
_read_job, _read_pod = object_decoder(CustomObject), object_decoder(Pod)


def changes_rows(sizes: Sequence[int], *, runs: int) -> list[Row]:
    """`sizes` are numbers of members in ascending order."""
    rows = []
    for title, build, limited in (
        ("one worker is added", _add_one, False),
        ("all workers are replaced", _replace_all, False),
        ("all workers are replaced, after a manual plan", _replace_all, True),
        ("all workers are migrated", _migrate_all, False),
    ):
        log_progress(f"find_changes: {title}")
        costs = [_microseconds(size, build(size), limited=limited, runs=runs) for size in sizes]
        name = f"find_changes, {title}"
        rows += [Row(f"{name}: {size:,} members", cost, "µs per member") for size, cost in zip(sizes, costs, strict=True)]
        rows.append(Row(f"the same, {sizes[-1]:,} members relative to {sizes[0]:,}", costs[-1] / costs[0], "ratio", at_most=1.5))
    return rows


def _microseconds(size: int, request: ScaleRequest, *, limited: bool, runs: int) -> float:
    """CPU time per member, median of several batches."""
    record = MembersRecord(limits={WORKER: size} if limited else {})
    context, calls, seconds = _context(size), max(_MEMBERS_PER_BATCH // size, 1), []
    find_changes(context, ElasticJobMembers(), record, request)  # the context identifies the members once
    for _ in range(runs):
        started_at = time.process_time()
        for _ in range(calls):
            find_changes(context, ElasticJobMembers(), record, request)
        seconds.append(time.process_time() - started_at)
    return median(seconds) / calls / size * 1e6


def _context(size: int) -> ReconcileContext:
    """A job with running workers."""
    body = ELASTIC.body(JOB, namespace=_NAMESPACE, pods=size)
    body["metadata"] |= {"uid": "uid-job", "annotations": {PLATFORM_ANNOTATION: "k8s"}}
    job = ElasticJob(_read_job(msgspec.json.encode(body)))
    pods = tuple(_worker(job, number) for number in range(size))
    return ReconcileContext(job, job.spec, Snapshot(pods=pods), PersistedState(None, Record(), started_at=None, finished_at=None), 0.0)


def _worker(job: ElasticJob, number: int) -> Pod:
    replica = job.member(Member(role=WORKER, id=number, rank=number, resources=RESOURCES))
    assert replica is not None
    return _read_pod(msgspec.json.encode({**replica.pod(), "status": {"phase": "Running"}}))


def _add_one(size: int) -> ScaleRequest:
    return ScaleRequest(targets={WORKER: RoleTarget(replicas=size + 1, resources=RESOURCES)})


def _replace_all(size: int) -> ScaleRequest:
    creates = (MemberRequest(role=WORKER, id=size + number, rank=number, resources=RESOURCES) for number in range(size))
    return ScaleRequest(creates=tuple(creates), removes=tuple(member_name(JOB, WORKER, number) for number in range(size)))


def _migrate_all(size: int) -> ScaleRequest:
    migrations = (Migration(pod=member_name(JOB, WORKER, number), resources=RESOURCES) for number in range(size))
    return ScaleRequest(migrations=tuple(migrations), is_manual=True)
