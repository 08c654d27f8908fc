"""How soon workers that fail at the same time are replaced, after the plan for their replacements was created."""

from __future__ import annotations

import time
from statistics import median

from bench_operator_load import BenchTarget
from bench_operator_process import Operator
from bench_plans_job import ELASTIC, OPERATOR_FLAGS, ElasticRun, replacement_plan
from bench_report import MeasureError, Row, log_progress

from dlop.api.scale_plan import Member
from dlop.kube.objects import Pod

_KILLED = 137


async def replacement_rows(target: BenchTarget, *, workers: int, lost: int, rounds: int) -> list[Row]:
    """In each round, the newest workers fail."""
    log_progress(f"{workers} workers lose {lost} pods at once: {rounds} rounds")
    namespace = await target.create_namespace("replacement")
    run, seconds, cpu = ElasticRun(target, namespace), [], []
    async with target.operator(namespace, *OPERATOR_FLAGS) as operator, run.watcher:
        await run.start(workers=workers)
        for number in range(rounds):
            round_seconds, round_cpu = await _measure(run, operator, lost=lost)
            seconds.append(round_seconds)
            cpu.append(round_cpu)
            log_progress(f"  round {number + 1}: {round_seconds:.3f} s, {round_cpu * 1e3:.1f} ms of CPU")
            if len(run.workers) != workers:
                raise MeasureError(f"the job has {len(run.workers)} workers after the replacement, expected {workers}")
    name = f"{workers} workers lose {lost} pods at once"
    return [
        Row(f"{name}: from the creation of the plan until all are replaced, p50", median(seconds), "s", at_most=2),
        Row(f"the same, the slowest of {rounds}", max(seconds), "s", at_most=2),
        Row(f"{name}: CPU of the operator per pod", median(cpu) / lost * 1e6, "µs of CPU"),
    ]


async def _measure(run: ElasticRun, operator: Operator, *, lost: int) -> tuple[float, float]:
    """Returns the seconds from the creation of the plan until the replacements exist, and the CPU seconds until the plan was executed."""
    await run.set_running()
    await operator.wait_quiet()
    members = {name: _member(pod) for name, pod in run.workers.items()}
    failed = sorted(members, key=lambda name: members[name].id)[-lost:]
    await run.set_failed([run.workers[name] for name in failed], exit_code=_KILLED)
    await operator.wait_quiet()
    lost_members = [(members[name].id, members[name].rank) for name in failed]
    plan = replacement_plan(lost_members, first_id=1 + max(member.id for member in members.values()))
    created, executed = len(run.created), run.executed
    cpu_before, started_at = operator.cpu_seconds, time.perf_counter()
    await run.create_plans([plan])
    replaced_at = await run.wait_created(created + lost)
    await run.wait_executed(executed + 1)
    cpu_seconds = operator.cpu_seconds - cpu_before
    await operator.wait_quiet()
    ranks = {member.rank for member in map(_member, run.workers.values())}
    if len(run.created) != created + lost or ranks != {member.rank for member in members.values()}:
        raise MeasureError(f"{len(run.created) - created} pods were created, expected {lost}; the ranks are {sorted(ranks)}")
    return replaced_at - started_at, cpu_seconds


def _member(pod: Pod) -> Member:
    policy = ELASTIC.job.members
    member = None if policy is None else policy.identify(pod.metadata.labels)
    if member is None:
        raise MeasureError(f"the pod {pod.metadata.name} is not a worker")
    return member
