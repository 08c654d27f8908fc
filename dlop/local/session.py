"""One run of `dlop local`: a cluster comes up, the files are submitted, their jobs are followed to the end, and all is gone again."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing

import msgspec

from dlop.api.phase import Phase
from dlop.api.progress import ReplicaState
from dlop.console.plain_view import JobScreen
from dlop.embedded.kubelet.runtime.detect import Choice
from dlop.frameworks.registry import Registry
from dlop.jobs.errors import JobsError, OutOfReachError, SubmitError
from dlop.jobs.log_stream import follow_logs
from dlop.jobs.logs import LogChoice, read_logs
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import look_at_job
from dlop.jobs.replicas import LEAVING
from dlop.jobs.submit import submit
from dlop.jobs.view import JobView
from dlop.kube.errors import AlreadyExistsError, KubeError, StatusError
from dlop.kube.resources import NAMESPACES
from dlop.local.apply_order import in_order, namespaces_of
from dlop.local.cluster import LocalCluster
from dlop.local.job_updates import SETTLING_SECONDS, looks_at
from dlop.local.options import LocalError, RunOptions
from dlop.local.result import FAILED, MISTAKEN, SessionResult, judged
from dlop.local.validation import all_mistakes
from dlop.local.workdir import Folder, using_folder
from dlop.operator.gc import tune_garbage_collection
from dlop.operator.logging import set_up_logging
from dlop.operator.settings import LogFormat, LogLevel

NAMESPACE = "default"
_TAIL_LINES = 10
# Reading them should take no time at all.
_LAST_LINES_SECONDS = 2.0
# Long logs on a busy machine take their time.
_WHOLE_LOG_SECONDS = 60.0
_GOING_ON = (ReplicaState.PENDING, ReplicaState.RUNNING, LEAVING)


class Session:
    """Runs one order."""

    def __init__(
        self,
        order: RunOptions,
        registry: Registry,
        screen: JobScreen,
        *,
        choosing: Awaitable[Choice] | None = None,
        on_standing: Callable[[Folder, str], None] = lambda *_: None,
    ) -> None:
        """`choosing` is as in `LocalCluster`.

        `on_standing` is called when a cluster stands that only others use, with its folder and how pods are kept apart.
        """
        self._order = order
        self._registry = registry
        self._screen = screen
        self._choosing = choosing
        self._on_standing = on_standing
        self._views: dict[str, JobView] = {}
        self._submitted_at = 0.0
        self._took_seconds: dict[str, float] = {}
        self._kept_in = ""
        self._deleted = ""

    async def run(self) -> SessionResult:
        """The whole run. When it is cancelled everything is cleaned up all the same.

        Raises:
            FolderError, LaptopError: there can be no cluster like that here.
        """
        began = _now()
        with using_folder(self._order.folder, keep=self._order.keep) as folder, folder.open_log() as log:
            set_up_logging(LogFormat.JSON, LogLevel.INFO, stream=log)
            self._kept_in = str(folder.path) if self._order.keep else ""
            order = self._order
            async with LocalCluster(
                self._registry,
                folder=folder,
                machine=order.machine,
                choosing=self._choosing,
                keep_logs=order.keep,
                tell=self._screen.say,
            ) as laptop:
                tune_garbage_collection()
                return await self._work(laptop, start_seconds=_now() - began)

    async def _work(self, laptop: LocalCluster, *, start_seconds: float) -> SessionResult:
        documents = in_order(self._order.documents)
        await _make_namespaces(laptop, namespaces_of(documents))
        mistakes = await all_mistakes(
            documents, client=laptop.client, registry=self._registry, find=laptop.find_resource, namespace=NAMESPACE
        )
        if mistakes:
            return self._outcome(MISTAKEN, Phase.INVALID, start_seconds=start_seconds, mistakes=tuple(mistakes))
        try:
            made = await submit(laptop.client, documents, self._registry, namespace=NAMESPACE)
        except SubmitError as error:
            return self._outcome(MISTAKEN, Phase.INVALID, start_seconds=start_seconds, mistakes=tuple(str(error).split("\n  ")))
        except JobsError as error:
            raise LocalError(str(error)) from error
        jobs = [each.job for each in made if each.job is not None]
        if not jobs:
            return await self._stand(laptop, start_seconds)
        self._screen.say(f"the cluster is up after {start_seconds:.1f} s: {laptop.isolation}")
        self._screen.say(f"export KUBECONFIG={shlex.quote(str(laptop.folder.kubeconfig))}")
        return await self._see_through(laptop, jobs, start_seconds)

    async def _stand(self, laptop: LocalCluster, start_seconds: float) -> SessionResult:
        """Be there until told to end."""
        self._on_standing(laptop.folder, laptop.isolation)
        try:
            async with asyncio.timeout(self._order.timeout_seconds):
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        return self._outcome(0, Phase.SUCCEEDED, start_seconds=start_seconds)

    # --- jobs --------------------------------------------------------------------------------------------------------

    async def _see_through(self, laptop: LocalCluster, jobs: Sequence[JobHandle], start_seconds: float) -> SessionResult:
        self._submitted_at = _now()
        with contextlib.suppress(TimeoutError):
            async with self._screen, asyncio.timeout(self._order.timeout_seconds):
                await self._follow_all(laptop, jobs)
        are_over = len(self._took_seconds) == len(jobs)
        code, verdict, reason = self._verdict(are_over=are_over)
        # What comes after the last job's end is cleaning up.
        took = max(self._took_seconds.values()) if are_over else _now() - self._submitted_at
        if code and not self._order.logs:
            await self._tell_the_end_of_logs(laptop, jobs)
        if self._order.history:
            await self._add_history(laptop, jobs)
        return self._outcome(code, verdict, reason=reason, start_seconds=start_seconds, seconds=took)

    def _verdict(self, *, are_over: bool) -> tuple[int, str, str]:
        """Exit code, verdict and reason."""
        if self._deleted:
            return FAILED, "Deleted", self._deleted
        return judged(list(self._views.values())) if are_over else (FAILED, "TimedOut", self._why_not_in_time())

    async def _follow_all(self, laptop: LocalCluster, jobs: Sequence[JobHandle]) -> None:
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(self._follow(laptop, job)) for job in jobs]
            listening = [group.create_task(self._listen(laptop, job)) for job in jobs if self._order.logs]
            await asyncio.wait(following)
            if listening:
                # Pods that do not heed the signal to end would keep everybody waiting for as long as they may.
                _, still = await asyncio.wait(listening, timeout=self._seconds_left())
                for task in still:
                    task.cancel()

    async def _follow(self, laptop: LocalCluster, job: JobHandle) -> None:
        try:
            async with aclosing(looks_at(laptop.client, job)) as views:
                async for view in views:
                    self._views[view.uid] = view
                    self._screen.show(view, elapsed_seconds=self._elapsed_seconds(view))
        except OutOfReachError as error:
            self._deleted = str(error)

    def _elapsed_seconds(self, view: JobView) -> float:
        """Since the submission, until the verdict."""
        elapsed = _now() - self._submitted_at
        return self._took_seconds.setdefault(view.uid, elapsed) if view.is_over else elapsed

    def _seconds_left(self) -> float:
        """How long the last lines of pods may still take. What has ended is read to its end, however long that is."""
        if not any(replica.state in _GOING_ON for view in self._views.values() for replica in view.replicas):
            return _WHOLE_LOG_SECONDS
        over_at = self._submitted_at + max(self._took_seconds.values(), default=0.0)
        return max(0.0, over_at + SETTLING_SECONDS - _now())

    async def _listen(self, laptop: LocalCluster, job: JobHandle) -> None:
        """Hear the replicas of a job until it is over and they have nothing more to say."""
        async with follow_logs(laptop.client, job, LogChoice()) as lines, aclosing(lines):
            async for line in lines:
                self._screen.hear(line)

    async def _tell_the_end_of_logs(self, laptop: LocalCluster, jobs: Iterable[JobHandle]) -> None:
        """What the replica that failed wrote last: mostly it says why."""
        for job in jobs:
            view = self._views.get(job.uid)
            failed = view.failed_replica if view is not None else None
            if failed is None or not failed.pod_uid:
                continue
            choice = LogChoice(role=failed.role, index=failed.index, tail_lines=_TAIL_LINES)
            try:
                async with asyncio.timeout(_LAST_LINES_SECONDS), aclosing(read_logs(laptop.client, job, choice)) as lines:
                    async for line in lines:
                        self._screen.hear(line)
            except (KubeError, TimeoutError):
                continue

    async def _add_history(self, laptop: LocalCluster, jobs: Iterable[JobHandle]) -> None:
        """What happened, in order, beside how it ended."""
        for job in jobs:
            if view := self._views.get(job.uid):
                seen = await look_at_job(laptop.client, job)
                self._views[job.uid] = msgspec.structs.replace(view, history=seen.history)

    def _why_not_in_time(self) -> str:
        waits = [sentence for view in self._views.values() if not view.is_over for sentence in view.waits_for]
        return f"it was not over in time{f'; it waits: {waits[0]}' if waits else ''}"

    def _outcome(
        self,
        code: int,
        verdict: str,
        *,
        start_seconds: float,
        reason: str = "",
        seconds: float = 0.0,
        mistakes: tuple[str, ...] = (),
    ) -> SessionResult:
        return SessionResult(
            exit_code=code,
            verdict=verdict,
            reason=reason,
            start_seconds=round(start_seconds, 3),
            seconds=round(seconds, 3),
            kept_in=self._kept_in,
            mistakes=mistakes,
            jobs=tuple(self._views.values()),
        )


async def _make_namespaces(laptop: LocalCluster, names: Iterable[str]) -> None:
    """Those that the files take for granted. What is wrong with a name is told of the object that gives it."""
    for name in names:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            await laptop.client.create(NAMESPACES, body)
        except (AlreadyExistsError, StatusError):
            continue


def _now() -> float:
    return asyncio.get_running_loop().time()
