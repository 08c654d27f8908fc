"""Runs sequences of edits: namespaces, informers for all resources, and kubelets for the jobs whose pods run.

Each sequence has an edited job, and a fresh job with the same name in another namespace, created from the last spec.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.kube.cache import CacheChange
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import InvalidError
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject
from dlop.kube.resources import NAMESPACES, PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from tests.cluster.edit_sequences import EditSequence, Outcome, Step
from tests.cluster.edited_kinds import KINDS
from tests.cluster.job_views import child_names, comparable_children, comparable_status, differences, record_of, spec_error, status_of
from tests.cluster.ring_jobs import run_informers

_FINISHED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True)
class EditNamespaces:
    """The namespaces of edited and of fresh jobs, without and with a kubelet."""

    edited: str
    fresh: str
    edited_running: str
    fresh_running: str

    @classmethod
    def new(cls) -> EditNamespaces:
        """Unique names."""
        suffix = uuid.uuid4().hex[:8]
        return cls(f"edited-{suffix}", f"fresh-{suffix}", f"edited-running-{suffix}", f"fresh-running-{suffix}")

    def all(self) -> tuple[str, ...]:
        return self.edited, self.fresh, self.edited_running, self.fresh_running


@dataclass(frozen=True)
class JobPair:
    """A sequence, and the name and namespaces of its two jobs."""

    sequence: EditSequence
    name: str
    edited: str
    fresh: str


class EditRunner:
    """Edits and compares jobs, with informers for all resources of the namespaces."""

    def __init__(self, client: Client, namespaces: EditNamespaces) -> None:
        self.client = client
        self.namespaces = namespaces
        self._changes: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._informers: dict[tuple[Resource, str], Informer[CustomObject]] = {}
        for resource in (PODS, SERVICES, *(kind.framework.job_type.resource for kind in KINDS)):
            for namespace in namespaces.all():
                self._informers[resource, namespace] = self._informer(resource, namespace)

    def _informer(self, resource: Resource, namespace: str) -> Informer[CustomObject]:
        return Informer(self.client, resource, CustomObject, rng=random.Random(0), namespace=namespace, handlers=[self._on_change])

    def _on_change(self, change: CacheChange[CustomObject]) -> None:
        """The jobs of a pair have the same name, so a change of either wakes the waiter of the pair."""
        metadata = change.object.metadata
        self._changes[metadata.controller.name if metadata.controller else metadata.name].set()

    @asynccontextmanager
    async def running_informers(self) -> AsyncIterator[None]:
        """Run the informers and kubelets for the duration of the block."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(run_informers(*self._informers.values()))
            for namespace in (self.namespaces.edited_running, self.namespaces.fresh_running):
                await stack.enter_async_context(ScriptedKubelet(self.client, namespace=namespace, time_scale=0.05))
            yield

    def pair(self, sequence: EditSequence, number: int) -> JobPair:
        """The jobs of a sequence."""
        namespaces = self.namespaces
        edited, fresh = (
            (namespaces.edited_running, namespaces.fresh_running) if sequence.pods_run else (namespaces.edited, namespaces.fresh)
        )
        return JobPair(sequence, f"sequence-{number}", edited, fresh)

    # --- editing -----------------------------------------------------------------------------------------------------

    async def run_edits(self, pair: JobPair) -> None:
        """Create the job, edit it, and create the fresh job."""
        sequence = pair.sequence
        body = sequence.kind.body(sequence.start.draft, name=pair.name)
        created = await self.client.create(self._resource(sequence), body, namespace=pair.edited)
        await self._wait_observed(pair, sequence.start, created)
        for step in sequence.steps:
            await self._edit(pair, step)
        await self.client.create(self._resource(sequence), sequence.kind.body(sequence.last.draft, name=pair.name), namespace=pair.fresh)

    async def _edit(self, pair: JobPair, step: Step) -> None:
        patch = [{"op": "replace", "path": "/spec", "value": pair.sequence.kind.build_spec(step.draft)}]
        rejection = ""
        try:
            resource = self._resource(pair.sequence)
            edited = await self.client.patch(resource, pair.name, patch, namespace=pair.edited, patch_type=PatchType.JSON)
        except InvalidError as error:
            rejection = str(error)
        assert bool(rejection) == (step.outcome is Outcome.REJECTED), f"unexpected response to {step}: {rejection or 'accepted'}"
        if rejection:
            assert step.result.field in rejection, f"{step.result.field} is not named for {step}: {rejection}"
        else:
            await self._wait_observed(pair, step, edited)

    async def _wait_observed(self, pair: JobPair, step: Step, body: JsonObject) -> None:
        """Wait until the operator has observed an edit, if the step requires it, and check that an error is reported."""
        if not step.wait:
            return
        generation = body["metadata"]["generation"]
        await self.until(pair, lambda: record_of(self._job(pair, pair.edited)).get("observedGeneration") == generation)
        if step.outcome is Outcome.INVALID:
            job = self._job(pair, pair.edited)
            assert step.result.field in spec_error(job), f"{step.result.field} is not named for {step}: {status_of(job)}"

    async def delete(self, pair: JobPair) -> None:
        for namespace in (pair.edited, pair.fresh):
            await self.client.delete(self._resource(pair.sequence), pair.name, namespace=namespace)

    # --- comparing ---------------------------------------------------------------------------------------------------

    def compare(self, pair: JobPair) -> list[str]:
        """The current differences between the edited and the fresh job, one line each."""
        edited, fresh = self._find(pair, pair.edited), self._find(pair, pair.fresh)
        if edited is None or fresh is None:
            return ["a job does not exist"]
        stale = [job.metadata.namespace for job in (edited, fresh) if record_of(job).get("observedGeneration") != job.metadata.generation]
        if stale:
            return [f"the operator has not observed the last spec in {stale}"]
        phase = record_of(fresh).get("phase")
        if phase in _FINISHED_PHASES:
            return differences(record_of(edited).get("phase"), phase, path="phase")
        if phase == "Invalid":
            return differences(spec_error(edited), spec_error(fresh), path="spec error")
        status = differences(comparable_status(edited), comparable_status(fresh), path="status")
        return status + self._count_errors(pair) + self._child_differences(pair, edited, fresh)

    def _count_errors(self, pair: JobPair) -> list[str]:
        """Check that the fresh job has as many children as its spec requires."""
        draft = pair.sequence.last.draft
        expected = 0 if draft["policy"].get("suspend") else sum(role["replicas"] for role in draft["roles"])
        if self.has_rejected_pods(pair):
            return []
        job = self._job(pair, pair.fresh)
        counts = {resource.plural: len(self._children(resource, job)) for resource in (PODS, SERVICES)}
        return [f"the fresh job has {count} {name}, expected {expected}" for name, count in counts.items() if count != expected]

    def _child_differences(self, pair: JobPair, edited: CustomObject, fresh: CustomObject) -> list[str]:
        """Running pods keep their original template, so only their names are compared."""
        view = child_names if pair.sequence.pods_run else comparable_children
        lines = []
        for resource in (PODS, SERVICES):
            edited_view, fresh_view = (view(job, self._children(resource, job)) for job in (edited, fresh))
            lines += differences(edited_view, fresh_view, path=resource.plural)
        return lines

    async def until(self, pair: JobPair, reached: Callable[[], bool]) -> None:
        """Wait until `reached` is true. It is evaluated after each change of an object of the pair."""
        while not reached():
            self._changes[pair.name].clear()
            await self._changes[pair.name].wait()

    def has_rejected_pods(self, pair: JobPair) -> bool:
        """Whether the API server rejects pods of the fresh job. The operator retries with back-off indefinitely."""
        return bool(record_of(self._job(pair, pair.fresh)).get("blocked", {}).get("reason") == "FailedCreate")

    def _resource(self, sequence: EditSequence) -> Resource:
        return sequence.kind.framework.job_type.resource

    def _find(self, pair: JobPair, namespace: str) -> CustomObject | None:
        return self._informers[self._resource(pair.sequence), namespace].cache.get(pair.name, namespace=namespace)

    def _job(self, pair: JobPair, namespace: str) -> CustomObject:
        return self._find(pair, namespace) or CustomObject()

    def _children(self, resource: Resource, job: CustomObject) -> list[CustomObject]:
        return self._informers[resource, job.metadata.namespace].cache.owned_by(job.metadata.uid)


@asynccontextmanager
async def start_edit_runner(client: Client) -> AsyncIterator[EditRunner]:
    """Create the namespaces and CRDs, and run the informers."""
    namespaces = EditNamespaces.new()
    await apply(client, build_crds([kind.framework for kind in KINDS]), report=lambda _: None)
    for name in namespaces.all():
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    runner = EditRunner(client, namespaces)
    try:
        async with runner.running_informers():
            yield runner
    finally:
        for name in namespaces.all():
            await client.delete(NAMESPACES, name)
