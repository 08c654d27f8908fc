"""One run of `dlop local`: start a cluster, submit the files, follow the jobs until they finish, and clean up."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing

import msgspec

from dlop.api.phase import Phase
from dlop.api.progress import ReplicaState
from dlop.console.plain_view import ProgressView
from dlop.console.progress import job_labels
from dlop.embedded.kubelet.runtime.detect import DetectedRuntime
from dlop.frameworks.registry import Registry
from dlop.jobs.errors import InvalidManifestError, JobsError, WaitFailedError
from dlop.jobs.log_stream import follow_logs
from dlop.jobs.logs import LogSelector, read_logs
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import get_job_view
from dlop.jobs.replicas import TERMINATING
from dlop.jobs.submit import submit
from dlop.jobs.view import JobView
from dlop.kube.errors import AlreadyExistsError, KubeError, StatusError
from dlop.kube.resources import NAMESPACES
from dlop.local.apply_order import sort_for_creation, undeclared_namespaces
from dlop.local.cluster import LocalCluster
from dlop.local.job_updates import SETTLING_SECONDS, watch_job_updates
from dlop.local.options import LocalError, RunOptions
from dlop.local.result import FAILED, INVALID, SessionResult, evaluate_jobs
from dlop.local.validation import validate_documents
from dlop.local.workdir import WorkDir, open_workdir
from dlop.operator.gc import tune_garbage_collection
from dlop.operator.logging import set_up_logging
from dlop.operator.settings import LogFormat, LogLevel

NAMESPACE = "default"
_TAIL_LINES = 10
_TAIL_TIMEOUT_SECONDS = 2.0
# Long logs on a busy machine take a while.
_FULL_LOG_TIMEOUT_SECONDS = 60.0
_ACTIVE_STATES = (ReplicaState.PENDING, ReplicaState.RUNNING, TERMINATING)


class Session:
    def __init__(
        self,
        options: RunOptions,
        registry: Registry,
        progress: ProgressView,
        *,
        runtime_detection: Awaitable[DetectedRuntime] | None = None,
        on_ready: Callable[[WorkDir, str], None] = lambda *_: None,
    ) -> None:
        """`runtime_detection` is passed to `LocalCluster`.

        `on_ready` is called when a cluster without jobs is ready, with its working directory and a description of the isolation.
        """
        self._options = options
        self._registry = registry
        self._progress = progress
        self._runtime_detection = runtime_detection
        self._on_ready = on_ready
        self._views: dict[str, JobView] = {}
        self._labels: dict[str, str] = {}
        self._submitted_at = 0.0
        self._finished_after_seconds: dict[str, float] = {}
        self._isolation = ""
        self._kept_in = ""
        self._deletion_error = ""

    async def run(self) -> SessionResult:
        """Run the session. The cleanup also runs when the task is cancelled.

        Raises:
            WorkDirError, LocalError: the cluster cannot be started.
        """
        started_at, options = _now(), self._options
        with open_workdir(options.workdir, keep=options.keep) as workdir, workdir.open_log() as log:
            set_up_logging(LogFormat.JSON, LogLevel.INFO, stream=log)
            self._kept_in = str(workdir.path) if options.keep else ""
            async with LocalCluster(
                self._registry,
                workdir=workdir,
                node=options.node,
                runtime_detection=self._runtime_detection,
                keep_logs=options.keep,
                report=self._progress.print_message,
            ) as cluster:
                tune_garbage_collection()
                self._isolation = cluster.isolation
                return await self._run_on(cluster, start_seconds=_now() - started_at)

    async def _run_on(self, cluster: LocalCluster, *, start_seconds: float) -> SessionResult:
        documents = sort_for_creation(self._options.documents)
        await _create_namespaces(cluster, undeclared_namespaces(documents))
        errors = await validate_documents(
            documents, client=cluster.client, registry=self._registry, find=cluster.find_resource, namespace=NAMESPACE
        )
        if errors:
            return self._result(INVALID, Phase.INVALID, start_seconds=start_seconds, errors=tuple(errors))
        try:
            created = await submit(cluster.client, documents, self._registry, namespace=NAMESPACE)
        except InvalidManifestError as error:
            return self._result(INVALID, Phase.INVALID, start_seconds=start_seconds, errors=tuple(str(error).split("\n  ")))
        except JobsError as error:
            raise LocalError(str(error)) from error
        jobs = [item.job for item in created if item.job is not None]
        if not jobs:
            return await self._serve_forever(cluster, start_seconds)
        self._progress.print_message(f"the cluster is ready after {start_seconds:.1f} s: {cluster.isolation}")
        self._progress.print_message(f"export KUBECONFIG={shlex.quote(str(cluster.workdir.kubeconfig))}")
        return await self._wait_for_jobs(cluster, jobs, start_seconds)

    async def _serve_forever(self, cluster: LocalCluster, start_seconds: float) -> SessionResult:
        """Keep the cluster running until the timeout or until the task is cancelled."""
        self._on_ready(cluster.workdir, cluster.isolation)
        try:
            async with asyncio.timeout(self._options.timeout_seconds):
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        return self._result(0, Phase.SUCCEEDED, start_seconds=start_seconds)

    # --- jobs --------------------------------------------------------------------------------------------------------

    async def _wait_for_jobs(self, cluster: LocalCluster, jobs: Sequence[JobHandle], start_seconds: float) -> SessionResult:
        self._submitted_at = _now()
        self._labels = job_labels(jobs)
        with contextlib.suppress(TimeoutError):
            async with self._progress, asyncio.timeout(self._options.timeout_seconds):
                await self._follow_all(cluster, jobs)
        all_finished = len(self._finished_after_seconds) == len(jobs)
        code, verdict, reason = self._evaluate(all_finished=all_finished)
        # Without the cleanup after the last job has finished.
        elapsed = max(self._finished_after_seconds.values()) if all_finished else _now() - self._submitted_at
        if code and not self._options.logs:
            await self._show_log_tails(cluster, jobs)
        if self._options.history:
            await self._add_history(cluster, jobs)
        return self._result(code, verdict, reason=reason, start_seconds=start_seconds, seconds=elapsed)

    def _evaluate(self, *, all_finished: bool) -> tuple[int, str, str]:
        """Exit code, verdict and reason."""
        if self._deletion_error:
            return FAILED, "Deleted", self._deletion_error
        return evaluate_jobs(list(self._views.values())) if all_finished else (FAILED, "TimedOut", self._timeout_reason())

    async def _follow_all(self, cluster: LocalCluster, jobs: Sequence[JobHandle]) -> None:
        async with asyncio.TaskGroup() as group:
            job_tasks = [group.create_task(self._follow(cluster, job)) for job in jobs]
            log_tasks = [group.create_task(self._show_logs(cluster, job)) for job in jobs if self._options.logs]
            await asyncio.wait(job_tasks)
            if log_tasks:
                # Pods that ignore SIGTERM would delay the session for their whole grace period.
                _, pending = await asyncio.wait(log_tasks, timeout=self._remaining_log_seconds())
                for task in pending:
                    task.cancel()

    async def _follow(self, cluster: LocalCluster, job: JobHandle) -> None:
        try:
            async with aclosing(watch_job_updates(cluster.client, job)) as views:
                async for view in views:
                    self._views[view.uid] = view
                    self._progress.show_job(view, elapsed_seconds=self._elapsed_seconds(view), label=self._labels[job.uid])
        except WaitFailedError as error:
            self._deletion_error = str(error)

    def _elapsed_seconds(self, view: JobView) -> float:
        """From the submission to now, or to the end of a finished job."""
        elapsed = _now() - self._submitted_at
        return self._finished_after_seconds.setdefault(view.uid, elapsed) if view.is_finished else elapsed

    def _remaining_log_seconds(self) -> float:
        """Time to wait for the rest of the logs. The logs of terminated pods are read completely."""
        if not any(replica.state in _ACTIVE_STATES for view in self._views.values() for replica in view.replicas):
            return _FULL_LOG_TIMEOUT_SECONDS
        finished_at = self._submitted_at + max(self._finished_after_seconds.values(), default=0.0)
        return max(0.0, finished_at + SETTLING_SECONDS - _now())

    async def _show_logs(self, cluster: LocalCluster, job: JobHandle) -> None:
        """Print the logs of a job until it has finished and its logs are complete."""
        async with follow_logs(cluster.client, job, LogSelector()) as lines, aclosing(lines):
            async for line in lines:
                self._progress.show_log_line(line, job_label=self._labels[job.uid])

    async def _show_log_tails(self, cluster: LocalCluster, jobs: Iterable[JobHandle]) -> None:
        """Print the end of the failed replica's log, which usually has the cause."""
        for job in jobs:
            view = self._views.get(job.uid)
            failed = view.failed_replica if view is not None else None
            if failed is None or not failed.pod_uid:
                continue
            selector = LogSelector(role=failed.role, index=failed.index, tail_lines=_TAIL_LINES)
            try:
                async with asyncio.timeout(_TAIL_TIMEOUT_SECONDS), aclosing(read_logs(cluster.client, job, selector)) as lines:
                    async for line in lines:
                        self._progress.show_log_line(line, job_label=self._labels[job.uid])
            except (KubeError, TimeoutError):
                continue

    async def _add_history(self, cluster: LocalCluster, jobs: Iterable[JobHandle]) -> None:
        for job in jobs:
            if view := self._views.get(job.uid):
                current = await get_job_view(cluster.client, job)
                self._views[job.uid] = msgspec.structs.replace(view, history=current.history)

    def _timeout_reason(self) -> str:
        reasons = [reason for view in self._views.values() if not view.is_finished for reason in view.pending_reasons]
        return f"not finished within the timeout{f'; waiting: {reasons[0]}' if reasons else ''}"

    def _result(
        self,
        code: int,
        verdict: str,
        *,
        start_seconds: float,
        reason: str = "",
        seconds: float = 0.0,
        errors: tuple[str, ...] = (),
    ) -> SessionResult:
        return SessionResult(
            exit_code=code,
            verdict=verdict,
            reason=reason,
            start_seconds=round(start_seconds, 3),
            seconds=round(seconds, 3),
            isolation=self._isolation,
            kept_in=self._kept_in,
            errors=errors,
            jobs=tuple(self._views.values()),
        )


async def _create_namespaces(cluster: LocalCluster, names: Iterable[str]) -> None:
    """Create the namespaces that the files use but do not create. Invalid names are reported with the objects that use them."""
    for name in names:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            await cluster.client.create(NAMESPACES, body)
        except (AlreadyExistsError, StatusError):
            continue


def _now() -> float:
    return asyncio.get_running_loop().time()
