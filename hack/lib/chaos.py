"""Chaos test of the operator on a real API server.

Jobs of all kinds run while operators are killed and paused, the API server is restarted, etcd is compacted, pods fail, are evicted and
deleted, and jobs are edited, suspended and deleted. Each job has a script that implies its end. A watch of etcd records all changes, and
the rules of chaos_judge.py are applied to them. The seed determines scripts and faults; the order of concurrent changes differs
between runs. The exit code is 1 if a rule is violated.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import random
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from bench_report import log_progress
from chaos_crons import CRON_RESOURCE, CronHistories, ScheduleScript, cron_of, draw_crons, end_cron, judge_crons, run_cron
from chaos_faults import LEASE_NAMESPACE, ClusterFaults, Operators
from chaos_job_crons import JobCronRun, draw_job_crons, judge_job_crons
from chaos_judge import Violation, judge, judge_host_ports
from chaos_pods import NODE_NAME, PersistentClient, PodRunner
from chaos_report import format_summary, format_violation
from chaos_scripts import End, JobScript, draw_scripts
from chaos_watch import STORAGE_FLAGS, Change, EtcdWatch, Histories
from kubernetes_build import AssetsError, ensure_assets
from real_cluster import ClusterError, RealCluster

from dlop.api.crd import build_crds, build_cron_crd
from dlop.api.cron import CRONS
from dlop.deploy.apply import apply
from dlop.frameworks.registry import BUILT_IN, load
from dlop.job import DLJob
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, NODES

NAMESPACE = "chaos"
KINDS = tuple(map(load, BUILT_IN))

_UNFINISHED_JOBS = 24
"""New jobs are created while fewer jobs than this have not ended."""
_UNFINISHED_SCHEDULES = 4
"""New jobs with a `cronPolicy` are created while fewer schedules than this have not ended."""
_CREATE_INTERVAL_SECONDS = 0.5
_END_SECONDS = 25.0
"""The last part of the test, without new jobs and faults of the cluster, so that all jobs can end."""
_END_TIMEOUT_SECONDS = 120.0
_LEADER_TIMEOUT_SECONDS = 30.0
_SETTLE_SECONDS = 3.0
_SETTLE_TIMEOUT_SECONDS = 40.0
_REST_SECONDS = 5.0
_PROGRESS_SECONDS = 5.0
_POLL_INTERVAL_SECONDS = 0.2


class Chaos:
    """One run on a cluster."""

    def __init__(self, cluster: RealCluster, client: PersistentClient, *, seed: int, folder: Path, group: asyncio.TaskGroup) -> None:
        self.seed = seed
        self._cluster = cluster
        self._client = client
        self._group = group
        self.histories = Histories({_resource_key(kind): kind for kind in KINDS}, namespace=NAMESPACE, others=(CRON_RESOURCE,))
        self.crons = draw_crons(seed=seed)
        self.job_crons: list[JobCronRun] = []
        self.cron_histories = CronHistories()
        self.operators = Operators(cluster.kubeconfig_path, folder, namespace=NAMESPACE)
        self.watch = EtcdWatch(cluster.etcd_url)
        self.pods = PodRunner(client, self.histories, self.watch, seed=seed, start=self._start)
        handlers = (self.histories.add, self.operators.on_change, self.cron_histories.add, self._add_cron_job, self.pods.on_change)
        self.watch.handlers += handlers
        self.faults = ClusterFaults(cluster, self.operators, self.histories, self.watch, report=self.report)
        self.scripts: list[JobScript] = []
        self.violations: list[Violation] = []
        self._calm = asyncio.Event()
        """Set when there are no more faults of the cluster."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, *, seconds: float) -> None:
        """Run for this time, or longer if jobs have not ended, and list the violations."""
        try:
            self._start(self.watch.run())
            await self.watch.opened.wait()
            await self._install()
            self._start(self.operators.run())
            self._start(self._log_progress())
            self.report(f"installed; seed {self.seed}")
            await self._cause_chaos(seconds=seconds)
            await self._wait(
                lambda: not (self._unfinished() or self.cron_histories.unfinished() or self.histories.orphans),
                timeout_seconds=_END_TIMEOUT_SECONDS,
            )
            await self._rest()
            self.report(f"jobs of Crons: {', '.join(f'{name} {count}' for name, count in self.cron_histories.job_counts().items())}")
            for cron in self._schedules():
                self.scripts += [cron.job_script(name) for name in sorted(self.cron_histories.finished_jobs(cron.name))]
            for script in self.scripts:
                self.violations += judge(script, self.histories.entries[script.name])
            self._judge_crons()
            self.violations += judge_host_ports(self.scripts, self.histories.entries)
            self.violations += [Violation("error in the log", "operator", line[:2000]) for line in self.operators.errors()]
        finally:
            for task in self._tasks:
                task.cancel()

    def _schedules(self) -> list[ScheduleScript]:
        return [*self.crons, *(run.script for run in self.job_crons)]

    def _judge_crons(self) -> None:
        uncertain = {run.script.name for run in self.job_crons if not run.is_certain}
        self.violations += judge_crons(self._schedules(), self.cron_histories, uncertain=uncertain)
        scripts, others = [run.script for run in self.job_crons], {script.name for script in self.crons}
        self.violations += judge_job_crons(scripts, self.cron_histories, others=others, ended_at=self.watch.seconds)

    async def _cause_chaos(self, *, seconds: float) -> None:
        await self._wait(lambda: self.operators.has_leader, timeout_seconds=_LEADER_TIMEOUT_SECONDS)
        ends_at = max(self.watch.seconds, seconds - _END_SECONDS)
        jobs, faults = self._start(self._create_jobs()), self._start(self.faults.run(seed=self.seed))
        crons = [self._start(run_cron(self._client, script, namespace=NAMESPACE)) for script in self.crons]
        crons.append(self._start(self._create_job_crons()))
        await asyncio.sleep(ends_at - self.watch.seconds)
        for task in (jobs, faults, *crons):
            task.cancel()
        await asyncio.wait([jobs, faults, *crons])
        self._calm.set()
        self.report("no more faults and new jobs; waiting until all jobs have ended")
        async with asyncio.TaskGroup() as group:
            for script in self.crons:
                group.create_task(end_cron(self._client, script, namespace=NAMESPACE), name=f"end of {script.name}")
        await self._wait(lambda: all(run.is_done for run in self.job_crons), timeout_seconds=_END_TIMEOUT_SECONDS)

    def _start(self, work: Coroutine[Any, Any, None], *, name: str = "") -> asyncio.Task[None]:
        task = self._group.create_task(work, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def report(self, line: str) -> None:
        log_progress(f"{self.watch.seconds:6.1f} s  {line}")

    async def _install(self) -> None:
        await apply(self._client, [*build_crds(KINDS), build_cron_crd()], report=lambda _: None)
        for name in (NAMESPACE, LEASE_NAMESPACE):
            await self._client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        # Without a node, the pods would be deleted.
        await self._client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}})
        plans = [kind.members.plan_type for kind in KINDS if kind.members is not None]
        for resource in (*(job_type.resource for job_type in (*(kind.job_type for kind in KINDS), *plans)), CRONS):
            await self._client.list(resource)  # the client retries until the new resource is served
        # Started last, because the garbage collector discovers new kinds only every 30 seconds.
        await asyncio.to_thread(self._cluster.add_controllers)
        await asyncio.to_thread(self._cluster.wait_until_ready)

    async def _create_jobs(self) -> None:
        for script in draw_scripts(KINDS, seed=self.seed):
            await self._wait(lambda: len(self._unfinished()) < _UNFINISHED_JOBS)
            self.scripts.append(script)
            self._start(self.pods.run_job(script), name=script.name)
            await asyncio.sleep(_CREATE_INTERVAL_SECONDS)

    async def _create_job_crons(self) -> None:
        for script in draw_job_crons(seed=self.seed):
            await self._wait(lambda: sum(not run.is_done for run in self.job_crons) < _UNFINISHED_SCHEDULES)
            run = JobCronRun(self._client, self.pods, self.cron_histories, script, namespace=NAMESPACE, calm=self._calm)
            self.job_crons.append(run)
            self.scripts.append(script.job)
            self._start(run.run(), name=script.name)
            await asyncio.sleep(_CREATE_INTERVAL_SECONDS)

    def _add_cron_job(self, change: Change) -> None:
        """Run the pods of a job that a Cron creates."""
        script = next((script for script in self._schedules() if change.created and script.name == cron_of(change.body)), None)
        if script is not None:
            self.pods.add_job(script.job_script(change.name)).edits_done.set()

    def _unfinished(self) -> list[JobScript]:
        return [script for script in self.scripts if script.name not in self.histories.ended]

    async def _wait(self, reached: Callable[[], bool], *, timeout_seconds: float = math.inf) -> None:
        """Wait until `reached` is true, or until the timeout."""
        deadline = self.watch.seconds + timeout_seconds
        while self.watch.seconds < deadline:
            if reached():
                return
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    async def _rest(self) -> None:
        """Wait until nothing changes any more. After that, every write is a violation."""
        quiet_at = self.watch.seconds + _SETTLE_SECONDS
        await self._wait(
            lambda: self.watch.seconds > max(quiet_at, self.histories.quiet_since + _SETTLE_SECONDS),
            timeout_seconds=_SETTLE_TIMEOUT_SECONDS,
        )
        self.report("at rest; waiting for writes")
        late_changes = self.histories.late_changes = []
        await asyncio.sleep(_REST_SECONDS)
        for change in late_changes:
            owner = self.histories.job_of(change.body) or change.name
            verb = "deleted" if change.deleted else "created" if change.created else "changed"
            history = tuple(self.histories.entries.get(owner, ()))
            self.violations.append(Violation("write at rest", change.key, f"{verb} at revision {change.revision}", history))

    async def _log_progress(self) -> None:
        """Print a line every few seconds, and each violation as soon as its job has ended."""
        judged: set[str] = set()
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            unfinished = {script.name for script in self._unfinished()}
            for script in self.scripts:
                if script.name in unfinished | judged or script.end is End.DELETED:
                    continue
                judged.add(script.name)
                for violation in judge(script, self.histories.entries[script.name], is_over=False):
                    self.report(f"VIOLATION {violation.rule}: {violation.job}: {violation.description}")
            faults = f"{self.faults.counts.total()} faults of the cluster, {self.pods.faults.total()} of jobs and pods"
            self.report(f"{len(self.scripts)} jobs, {len(self.scripts) - len(unfinished)} ended; {faults}")


def _resource_key(kind: type[DLJob]) -> str:
    return f"{kind.job_type.group}/{kind.job_type.plural}"


async def run_chaos(cluster: RealCluster, *, seconds: float, seed: int, folder: Path) -> int:
    """Run the test, print its results and return the exit code."""
    client = PersistentClient(await connect(cluster.kubeconfig_path))
    try:
        async with asyncio.TaskGroup() as group:
            chaos = Chaos(cluster, client, seed=seed, folder=folder, group=group)
            await chaos.run(seconds=seconds)
    finally:
        await client.close()
    scripts = {script.title: script for script in chaos.scripts}
    for violation in chaos.violations:
        print(format_violation(violation, scripts.get(violation.job), seed=seed), end="\n\n")
    print(format_summary(chaos.scripts, chaos.violations, chaos.faults, chaos.pods.faults, chaos.operators, seed=seed))
    return 1 if chaos.violations else 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack/chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="duration of the test, without the start of the cluster; default 1")
    parser.add_argument("--seed", type=int, help="of scripts and faults; random by default")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep the logs of the operators in this folder")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = build_parser().parse_args(arguments)
    seed = random.randrange(10**6) if options.seed is None else options.seed
    try:
        ensure_assets()
        with contextlib.ExitStack() as stack:
            folder = options.logs or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dlop-chaos-")))
            folder.mkdir(parents=True, exist_ok=True)
            cluster = stack.enter_context(RealCluster.started(extra_flags=STORAGE_FLAGS))
            return asyncio.run(run_chaos(cluster, seconds=60 * options.minutes, seed=seed, folder=folder))
    except (AssetsError, ClusterError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
