"""The master of an ElasticJob in a chaos test: the program of one master pod.

It keeps the number of members that the script of the job wants. On platform k8s it writes scale plans, one after another, and on platform
pyk8s it creates and deletes pods. It knows only what the API server shows, so a new master continues where the last one was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

import msgspec
from chaos_history import FINAL_POD_PHASES
from elastic_master import member_pod, scale_plan

from dlop.api.scale_plan import Member
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.dlrover.names import NAME_LABEL, member_name
from dlop.frameworks.dlrover.scale_plan import SCALE_PLAN
from dlop.kube.client import Client
from dlop.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from dlop.kube.objects import Pod, object_decoder
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.reconcile.scale_plans import PlanPhase

_POLL_SECONDS = 0.3
_EMPTY_PLANS = 0.3
"""How often an empty plan follows."""
_decode_pod = object_decoder(Pod)


@dataclass(slots=True)
class _Change:
    """What is to be created and removed."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Roles that get another number of members. The others only get replacements."""
    creates: list[Member] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    """Names of live pods that are too many."""
    finished: list[str] = field(default_factory=list)
    """Names of pods that have finished."""


class ScriptedMaster:
    """`client` must repeat requests until the API server answers. `sizes` returns the wanted number of members by role."""

    def __init__(self, client: Client, job: JsonObject, sizes: Callable[[], Mapping[str, int]], *, writes_plans: bool, rng: Random) -> None:
        self._client = client
        self._job = job
        self._name: str = job["metadata"]["name"]
        self._namespace: str = job["metadata"]["namespace"]
        self._sizes = sizes
        self._known_sizes = dict(sizes())
        self._writes_plans = writes_plans
        self._rng = rng
        self._numbers = itertools.count()
        self._settled = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            change = self._find_change(await self._list_pods())
            if change is None:
                self._settled.set()
            else:
                await (self._write_plan(change) if self._writes_plans else self._perform(change))
            await asyncio.sleep(_POLL_SECONDS)

    async def until_settled(self) -> None:
        """Wait until the members are those that the script wants."""
        self._settled.clear()
        await self._settled.wait()

    async def _list_pods(self) -> list[tuple[Member, Pod]]:
        items = (await self._client.list(PODS, namespace=self._namespace, label_selector=f"{NAME_LABEL}={self._name}"))["items"]
        pods = [_decode_pod(msgspec.json.encode(item)) for item in items]
        members = ((ElasticJob.members.identify(pod.metadata.labels), pod) for pod in pods)
        return [(member, pod) for member, pod in members if member is not None]

    def _find_change(self, pods: list[tuple[Member, Pod]]) -> _Change | None:
        sizes, known = dict(self._sizes()), self._known_sizes
        self._known_sizes = sizes
        live = [member for member, pod in pods if pod.metadata.deletion_timestamp is None and pod.status.phase not in FINAL_POD_PHASES]
        change = _Change()
        for role, size in sizes.items():
            ids = [member.id for member, _ in pods if member.role == role]
            own = sorted((member for member in live if member.role == role), key=lambda member: member.id)
            taken = {member.rank for member in own}
            ranks = [rank for rank in range(size + len(own)) if rank not in taken]
            missing = range(size - len(own))
            change.creates += [Member(role=role, id=max(ids, default=-1) + 1 + number, rank=ranks[number]) for number in missing]
            change.surplus += [member_name(self._name, role, member.id) for member in own[size:]]
            if not live or size != known.get(role) or len(own) > size:
                change.sizes[role] = size
        if not change.creates and not change.surplus:
            return None
        finished = (pod for _, pod in pods if pod.status.phase in FINAL_POD_PHASES and pod.metadata.deletion_timestamp is None)
        change.finished += [pod.metadata.name for pod in finished]
        return change

    # --- platform pyk8s ------------------------------------------------------------------------------------------------------

    async def _perform(self, change: _Change) -> None:
        for name in (*change.surplus, *change.finished):
            with contextlib.suppress(NotFoundError):
                await self._client.delete(PODS, name, namespace=self._namespace)
        for member in change.creates:
            with contextlib.suppress(ConflictError):  # created by the last master at the moment of its end
                await self._client.create(PODS, member_pod(self._job, member), namespace=self._namespace)

    # --- platform k8s --------------------------------------------------------------------------------------------------------

    async def _write_plan(self, change: _Change) -> None:
        """Write a plan, and wait until the operator has executed it."""
        creates = [member for member in change.creates if member.role not in change.sizes]
        plan = scale_plan(self._job, next(self._numbers), sizes=change.sizes, creates=creates, removes=change.finished)
        await self._create_plan(plan)
        if self._rng.random() < _EMPTY_PLANS:
            await self._create_plan(scale_plan(self._job, next(self._numbers), sizes={}))
        await self._until_finished(plan["metadata"]["name"])

    async def _create_plan(self, plan: JsonObject) -> None:
        """Numbers start at 0 again with each master. The plan waits until the name is free."""
        while True:
            try:
                await self._client.create(SCALE_PLAN.resource, plan, namespace=self._namespace)
            except AlreadyExistsError:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return

    async def _until_finished(self, name: str) -> None:
        """Wait until a plan is gone or has failed."""
        while True:
            try:
                plan = await self._client.get(SCALE_PLAN.resource, name, namespace=self._namespace)
            except NotFoundError:
                return
            if (plan.get("status") or {}).get("phase") == PlanPhase.FAILED:
                return
            await asyncio.sleep(_POLL_SECONDS)
