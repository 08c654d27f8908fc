"""The place where chains of edits are run: namespaces, informers that see everything, and kubelets for the jobs whose pods run.

Each chain has a job of its own, and a twin: a fresh job of the same name in another namespace, made of the last spec.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from dlop.api.crd import definitions
from dlop.deploy.apply import apply
from dlop.kube.cache import CacheChange
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import InvalidError
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject
from dlop.kube.resources import NAMESPACES, PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import Kubelet
from tests.cluster.chain_kinds import KINDS
from tests.cluster.chain_views import differences, record_of, status_of, told_children, told_mistake, told_names, told_status
from tests.cluster.edit_chains import Chain, Sort, Step
from tests.cluster.ring_jobs import running

_ENDS = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Places:
    """The namespaces: for jobs that are edited and for their twins, each without and with a kubelet."""

    edited: str
    fresh: str
    edited_running: str
    fresh_running: str

    @classmethod
    def new(cls) -> Places:
        """Names that nobody has."""
        mark = uuid.uuid4().hex[:8]
        return cls(f"edited-{mark}", f"fresh-{mark}", f"edited-running-{mark}", f"fresh-running-{mark}")

    def all(self) -> tuple[str, ...]:
        """All four."""
        return self.edited, self.fresh, self.edited_running, self.fresh_running


@dataclass(frozen=True)
class Pair:
    """A chain and where its two jobs are."""

    chain: Chain
    name: str
    edited: str
    fresh: str


class World:
    """Everything that the API server has in these namespaces, as its watches tell."""

    def __init__(self, client: Client, places: Places) -> None:
        self.client = client
        self.places = places
        self._changes: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._informers: dict[tuple[Resource, str], Informer[CustomObject]] = {}
        for resource in (PODS, SERVICES, *(kind.framework.job_type.resource for kind in KINDS)):
            for namespace in places.all():
                self._informers[resource, namespace] = self._informer(resource, namespace)

    def _informer(self, resource: Resource, namespace: str) -> Informer[CustomObject]:
        return Informer(self.client, resource, CustomObject, rng=random.Random(0), namespace=namespace, handlers=[self._told])

    def _told(self, change: CacheChange[CustomObject]) -> None:
        """The jobs of a pair have one name, so news of either wakes whoever waits for the pair."""
        metadata = change.object.metadata
        self._changes[metadata.controller.name if metadata.controller else metadata.name].set()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch for as long as the block lasts, with kubelets at work."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(running(*self._informers.values()))
            for namespace in (self.places.edited_running, self.places.fresh_running):
                await stack.enter_async_context(Kubelet(self.client, namespace=namespace, time_scale=0.05))
            yield

    def pair(self, chain: Chain, number: int) -> Pair:
        """Where the two jobs of a chain are."""
        places = self.places
        edited, fresh = (places.edited_running, places.fresh_running) if chain.pods_run else (places.edited, places.fresh)
        return Pair(chain, f"chain-{number}", edited, fresh)

    # --- doing -------------------------------------------------------------------------------------------------------

    async def live_through(self, pair: Pair) -> None:
        """Make the job, edit it, and make its twin."""
        chain = pair.chain
        body = chain.kind.body(chain.start.wish, name=pair.name)
        made = await self.client.create(self._resource(chain), body, namespace=pair.edited)
        await self._seen(pair, chain.start, made)
        for step in chain.steps:
            await self._edit(pair, step)
        await self.client.create(self._resource(chain), chain.kind.body(chain.last.wish, name=pair.name), namespace=pair.fresh)

    async def _edit(self, pair: Pair, step: Step) -> None:
        patch = [{"op": "replace", "path": "/spec", "value": pair.chain.kind.spec_of(step.wish)}]
        refusal = ""
        try:
            resource = self._resource(pair.chain)
            edited = await self.client.patch(resource, pair.name, patch, namespace=pair.edited, patch_type=PatchType.JSON)
        except InvalidError as error:
            refusal = str(error)
        assert bool(refusal) == (step.sort is Sort.REFUSED), f"the API server is wrong about {step}: {refusal or 'taken'}"
        if refusal:
            assert step.done.field in refusal, f"{step.done.field} is not named for {step}: {refusal}"
        else:
            await self._seen(pair, step, edited)

    async def _seen(self, pair: Pair, step: Step, body: JsonObject) -> None:
        """Wait until the operator has seen an edit, if the chain is to wait for that. What is wrong with it is then told."""
        if not step.is_awaited:
            return
        generation = body["metadata"]["generation"]
        await self.until(pair, lambda: record_of(self._job(pair, pair.edited)).get("observedGeneration") == generation)
        if step.sort is Sort.ODD:
            job = self._job(pair, pair.edited)
            assert step.done.field in told_mistake(job), f"{step.done.field} is not named for {step}: {status_of(job)}"

    async def delete(self, pair: Pair) -> None:
        """Delete both jobs."""
        for namespace in (pair.edited, pair.fresh):
            await self.client.delete(self._resource(pair.chain), pair.name, namespace=namespace)

    # --- comparing ---------------------------------------------------------------------------------------------------

    def complaints(self, pair: Pair) -> list[str]:
        """Why the edited job and its twin cannot be called equal now. Empty when they can."""
        edited, fresh = self._find(pair, pair.edited), self._find(pair, pair.fresh)
        if edited is None or fresh is None:
            return ["there are not two jobs"]
        unseen = [job.metadata.namespace for job in (edited, fresh) if record_of(job).get("observedGeneration") != job.metadata.generation]
        if unseen:
            return [f"the operator has not seen the last spec in {unseen}"]
        phase = record_of(fresh).get("phase")
        if phase in _ENDS:
            return differences(record_of(edited).get("phase"), phase, path="phase")
        if phase == "Invalid":
            return differences(told_mistake(edited), told_mistake(fresh), path="what is wrong")
        found = differences(told_status(edited), told_status(fresh), path="status")
        return found + self._wrong_numbers(pair) + self._differing_children(pair, edited, fresh)

    def _wrong_numbers(self, pair: Pair) -> list[str]:
        """A twin is only worth comparing with when it has what was asked for."""
        wish = pair.chain.last.wish
        asked = 0 if wish["policy"].get("suspend") else sum(role["replicas"] for role in wish["roles"])
        if self.is_refused(pair):
            return []
        job = self._job(pair, pair.fresh)
        found = {resource.plural: len(self._children(resource, job)) for resource in (PODS, SERVICES)}
        return [f"the fresh job has {number} {name} and asks for {asked}" for name, number in found.items() if number != asked]

    def _differing_children(self, pair: Pair, edited: CustomObject, fresh: CustomObject) -> list[str]:
        """Pods that run keep the template that they were started with: then only the names have to be the same."""
        told = told_names if pair.chain.pods_run else told_children
        found = []
        for resource in (PODS, SERVICES):
            one, other = (told(job, self._children(resource, job)) for job in (edited, fresh))
            found += differences(one, other, path=resource.plural)
        return found

    async def until(self, pair: Pair, reached: Callable[[], bool]) -> None:
        """Wait until something is so. It is looked at again whenever anything of the pair has changed."""
        while not reached():
            self._changes[pair.name].clear()
            await self._changes[pair.name].wait()

    def is_refused(self, pair: Pair) -> bool:
        """Whether pods of the twin are refused. They are asked for again, ever more seldom, for ever."""
        return bool(record_of(self._job(pair, pair.fresh)).get("blocked", {}).get("reason") == "FailedCreate")

    def _resource(self, chain: Chain) -> Resource:
        return chain.kind.framework.job_type.resource

    def _find(self, pair: Pair, namespace: str) -> CustomObject | None:
        return self._informers[self._resource(pair.chain), namespace].cache.get(pair.name, namespace=namespace)

    def _job(self, pair: Pair, namespace: str) -> CustomObject:
        return self._find(pair, namespace) or CustomObject()

    def _children(self, resource: Resource, job: CustomObject) -> list[CustomObject]:
        return self._informers[resource, job.metadata.namespace].cache.owned_by(job.metadata.uid)


@asynccontextmanager
async def world_of_jobs(client: Client) -> AsyncIterator[World]:
    """Namespaces and definitions, and the watches on them."""
    places = Places.new()
    await apply(client, definitions([kind.framework for kind in KINDS]), say=lambda _: None)
    for name in places.all():
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    world = World(client, places)
    try:
        async with world.watched():
            yield world
    finally:
        for name in places.all():
            await client.delete(NAMESPACES, name)
