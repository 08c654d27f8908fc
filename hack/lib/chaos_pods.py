"""The kubelet and the users of a chaos test: runs the pods of each job by its script, and edits the jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import msgspec
from chaos_history import ReplicaKey, is_companion
from chaos_master import ScriptedMaster
from chaos_scripts import (
    PERMANENT_EXIT_CODE,
    RETRYABLE_EXIT_CODE,
    End,
    JobEdit,
    JobScript,
    PodFault,
    SpecDraft,
    finishing_roles,
    member_sizes,
    spec_of,
)
from chaos_watch import Change, EtcdWatch, Histories

from dlop.api.record import parse_indexes, parse_record
from dlop.api.tensorboard import COMPANION_LABEL
from dlop.kube.client import Body, Client, Propagation
from dlop.kube.errors import AmbiguousWriteError, ConflictError, NotFoundError, ServerError, TransportError
from dlop.kube.objects import Pod, object_decoder
from dlop.kube.resources import PODS
from dlop.kube.transport import JSON, Response
from dlop.kube.types import JsonObject
from dlop.testing.pod_lifecycle import PodEnvironment, PodLifecycle, StartTask
from dlop.testing.pod_steps import ContainerExit, Evict, PodControl, RunContainers

NODE_NAME = "chaos-node"
_RETRY_SECONDS = 0.1
_FINISHED_POD_POLLS = 60
"""A job may have no pod that finishes before its decisive one."""
_TIME_SCALE = 0.2
_TENSORBOARD = ("TensorBoard", 0)
_decode_pod = object_decoder(Pod)


class PersistentClient(Client):
    """Repeats each request until the API server answers."""

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: tuple[tuple[str, str], ...] = (),
        body: Body | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float | None = None,
    ) -> Response:
        """A request that may have succeeded before its repetition failed counts as successful; the response is then empty."""
        is_repeated = False
        while True:
            try:
                return await super().call(
                    method, path, query=query, body=body, content_type=content_type, accept=accept, timeout_seconds=timeout_seconds
                )
            except (TransportError, AmbiguousWriteError, ServerError) as error:
                is_repeated = is_repeated or not isinstance(error, TransportError)
                await asyncio.sleep(_RETRY_SECONDS)
            except ConflictError:
                if method != "POST" or not is_repeated:
                    raise
                return Response(200, {}, b"{}")
            except NotFoundError:
                if method != "DELETE" or not is_repeated:
                    raise
                return Response(200, {}, b"{}")


class JobRun:
    """One job: what is left of its script."""

    def __init__(self, script: JobScript) -> None:
        self.script = script
        self.edits_done = asyncio.Event()
        """The decisive replica waits for it."""
        self.member_sizes = member_sizes(script.kind, script.draft)
        """The number of members by role that the master wants."""
        tensorboard = script.draft.features.tensorboard
        self.deletes_tensorboard = tensorboard is not None and tensorboard.is_deleted
        """Whether a user is going to delete the next pod of the TensorBoard."""
        self._faults = {replica: list(faults) for replica, faults in script.faults.items()}
        self._finishing = finishing_roles(script.kind, script.draft)
        self._pods: Counter[ReplicaKey] = Counter()

    def rng(self, replica: ReplicaKey, *, seed: int) -> Random:
        """For the next pod of a replica."""
        self._pods[replica] += 1
        return Random(f"{seed}/{self.script.name}/{replica}/{self._pods[replica]}")

    def next_fault(self, replica: ReplicaKey) -> PodFault | None:
        faults = self._faults.get(replica)
        if faults:
            return faults.pop(0)
        return self.script.culprit_fault if replica == self.script.culprit else None

    def succeeds(self, replica: ReplicaKey) -> bool:
        """Whether the pods of a replica succeed after their faults. Otherwise they run until they are deleted."""
        return self.script.end is End.SUCCEEDED and (replica == self.script.decisive or replica[0] in self._finishing)


class PodRunner:
    """Runs the pods of all jobs."""

    def __init__(self, client: Client, histories: Histories, watch: EtcdWatch, *, seed: int, start: StartTask) -> None:
        self._client = client
        self._histories = histories
        self._watch = watch
        self._seed = seed
        self._start = start
        self._environment = PodEnvironment(client, clock=time.time, time_scale=_TIME_SCALE, stop_seconds=1.0, node=NODE_NAME)
        self._lifecycles: dict[str, PodLifecycle] = {}
        self.runs: dict[str, JobRun] = {}
        self.faults: Counter[str] = Counter()

    # --- pods --------------------------------------------------------------------------------------------------------

    def on_change(self, change: Change) -> None:
        """To be called after the histories have the change."""
        if change.resource != "pods" or change.namespace != self._histories.namespace:
            return
        pod, job = _decode_pod(msgspec.json.encode(change.body)), self._histories.job_of(change.body)
        uid = pod.metadata.uid
        if change.deleted:
            if uid in self._lifecycles:
                self._lifecycles.pop(uid).interrupt()
            return
        if uid not in self._lifecycles and job in self.runs:
            lifecycle = self._lifecycles[uid] = PodLifecycle(pod, self._environment, asyncio.Semaphore(0), start=self._start)
            replica = None if is_companion(change.body) else self._histories.replica_of(job, pod.metadata.name)
            lifecycle.run_script([_PodScript(self, self.runs[job], replica)])
        if uid in self._lifecycles:
            self._lifecycles[uid].update(pod)

    async def follow_script(self, control: PodControl, run: JobRun, replica: ReplicaKey) -> None:
        rng = run.rng(replica, seed=self._seed)
        await control.pause(rng.uniform(0.0, 5.0))
        await RunContainers().perform(control)
        with self._master(run, replica, rng) as master:
            while control.pod.status.phase == "Running":
                await control.pause(rng.uniform(0.5, 8.0))
                fault = None if run.script.name in self._histories.ended else run.next_fault(replica)
                if fault is None:
                    break
                if not await self._inject(control, run, fault):
                    return
            if control.pod.status.phase != "Running":
                return
            if run.succeeds(replica):
                if replica == run.script.decisive:
                    await run.edits_done.wait()
                    await control.pause(rng.uniform(5.0, 15.0))
                if master is not None:
                    await master.until_settled()
                await ContainerExit(0).perform(control)
            elif master is not None:
                await asyncio.Event().wait()  # until the pod is deleted

    async def run_tensorboard(self, control: PodControl, run: JobRun) -> None:
        rng = run.rng(_TENSORBOARD, seed=self._seed)
        await control.pause(rng.uniform(0.0, 5.0))
        await RunContainers().perform(control)
        if run.deletes_tensorboard:
            run.deletes_tensorboard = False
            await control.pause(rng.uniform(0.0, 20.0))
            self.faults["delete a TensorBoard"] += 1
            self.inject(run, f"delete: pod {control.pod.metadata.name} ({control.pod.metadata.uid[:8]})")
            await control.delete()

    @contextlib.contextmanager
    def _master(self, run: JobRun, replica: ReplicaKey, rng: Random) -> Iterator[ScriptedMaster | None]:
        """The program of a pod that manages the members of its job. It runs as long as its pod."""
        if not run.member_sizes or replica[0] in run.member_sizes:
            yield None
            return
        job, script = self._histories.bodies[run.script.name], run.script
        master = ScriptedMaster(
            self._client,
            job,
            lambda: run.member_sizes,
            writes_plans=script.writes_plans,
            rng=Random(rng.random()),
        )
        program = self._start(master.run(), name=f"master of {script.name}")
        try:
            yield master
        finally:
            program.cancel()

    async def _inject(self, control: PodControl, run: JobRun, fault: PodFault) -> bool:
        """Perform a fault. Returns whether the pod may still be running."""
        metadata = control.pod.metadata
        self.faults[fault] += 1
        deletes = fault in (PodFault.DELETE, PodFault.DELETE_AND_FAIL, PodFault.EVICT_BY_API)
        self.inject(run, f"{fault}: pod {metadata.name} ({metadata.uid[:8]})", deleted_uid=metadata.uid if deletes else "")
        match fault:
            case PodFault.FAIL:
                await ContainerExit(RETRYABLE_EXIT_CODE).perform(control)
            case PodFault.FAIL_PERMANENTLY:
                await ContainerExit(PERMANENT_EXIT_CODE).perform(control)
            case PodFault.EVICT:
                await Evict().perform(control)
            case PodFault.EVICT_BY_API:
                await self._evict(metadata.name)
            case PodFault.DELETE:
                await control.delete()
            case PodFault.DELETE_AND_FAIL:
                await asyncio.gather(control.delete(), ContainerExit(RETRYABLE_EXIT_CODE).perform(control))
        return not deletes

    async def _evict(self, pod: str) -> None:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        while True:
            try:
                await self._client.create(PODS, eviction, namespace=self._histories.namespace, name=pod, subresource="eviction")
            except ConflictError:  # the pod has changed
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    def inject(self, run: JobRun, description: str, *, deleted_uid: str = "") -> None:
        self._histories.inject(run.script.name, description, seconds=self._watch.seconds, deleted_uid=deleted_uid)

    # --- jobs --------------------------------------------------------------------------------------------------------

    def add_job(self, script: JobScript) -> JobRun:
        """Run the pods of a job that this class does not create. The caller sets `edits_done`."""
        run = self.runs[script.name] = JobRun(script)
        return run

    async def run_job(self, script: JobScript) -> None:
        """Create a job and perform its edits."""
        run = self.add_job(script)
        resource, namespace = script.kind.job_type.resource, self._histories.namespace
        await self._client.create(resource, script.body(namespace), namespace=namespace)
        created_at, draft = self._watch.seconds, script.draft
        for seconds, edit in script.edits:
            await asyncio.sleep(max(0.0, created_at + seconds - self._watch.seconds))
            try:
                draft = await self._edit(run, edit, draft)
            except NotFoundError:
                break  # deleted after its TTL
        run.edits_done.set()

    async def _edit(self, run: JobRun, edit: JobEdit, draft: SpecDraft) -> SpecDraft:
        script = run.script
        if edit is JobEdit.DELETE_FINISHED_POD:
            for _ in range(_FINISHED_POD_POLLS):
                if await self._delete_finished_pod(run):
                    break
                await asyncio.sleep(_RETRY_SECONDS)
            return draft
        new = _edited(script, edit, draft)
        if new == draft and edit is not JobEdit.DELETE:
            return draft
        self.faults[edit] += 1
        self.inject(run, edit.value)
        resource, namespace = script.kind.job_type.resource, self._histories.namespace
        if run.member_sizes and edit in (JobEdit.SCALE_UP, JobEdit.SCALE_DOWN):
            run.member_sizes = member_sizes(script.kind, new)
        elif edit is JobEdit.DELETE:
            await self._client.delete(resource, script.name, namespace=namespace, propagation=Propagation.BACKGROUND)
        else:
            await self._client.patch(resource, script.name, {"spec": spec_of(script.kind, new)}, namespace=namespace)
        return new

    async def _delete_finished_pod(self, run: JobRun) -> bool:
        """Delete a pod whose index the record lists as completed. The index must not run again. Returns whether there was one."""
        body: JsonObject = self._histories.bodies.get(run.script.name, {})
        record = parse_record(body.get("status") or {})
        for lifecycle in list(self._lifecycles.values()):
            pod = lifecycle.pod
            owner = pod.metadata.controller
            if (
                record is None
                or COMPANION_LABEL in pod.metadata.labels
                or owner is None
                or owner.name != run.script.name
                or pod.status.phase != "Succeeded"
            ):
                continue
            role, index = self._histories.replica_of(owner.name, pod.metadata.name)
            if index in parse_indexes(record.completed_indexes.get(role, "")):
                self.faults[JobEdit.DELETE_FINISHED_POD] += 1
                self.inject(run, f"{JobEdit.DELETE_FINISHED_POD}: {pod.metadata.name}", deleted_uid=pod.metadata.uid)
                with contextlib.suppress(NotFoundError, ConflictError):  # the operator has deleted it
                    await self._client.delete(PODS, pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.metadata.uid)
                return True
        return False


class _PodScript:
    """The script of one pod, as a step of its lifecycle."""

    def __init__(self, runner: PodRunner, run: JobRun, replica: ReplicaKey | None) -> None:
        """`replica` is None for the pod of a TensorBoard."""
        self._runner = runner
        self._run = run
        self._replica = replica

    async def perform(self, control: PodControl) -> None:
        if self._replica is None:
            await self._runner.run_tensorboard(control, self._run)
        else:
            await self._runner.follow_script(control, self._run, self._replica)


def _edited(script: JobScript, edit: JobEdit, draft: SpecDraft) -> SpecDraft:
    match edit:
        case JobEdit.SUSPEND | JobEdit.RESUME:
            return draft.with_policy(suspend=edit is JobEdit.SUSPEND)
        case JobEdit.SCALE_UP:
            return draft.scaled(script.scaled_role, 1)
        case JobEdit.SCALE_DOWN:
            size = next(role.replicas for role in draft.roles if role.name == script.scaled_role)
            return draft.scaled(script.scaled_role, -1) if size > 1 else draft
        case JobEdit.CHANGE_TEMPLATE:
            return replace(draft, image=f"{draft.image}1")
        case _:
            return draft
