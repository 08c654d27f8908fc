"""The scale plans of each job in the order of execution. Informer events keep them sorted, so a pass does not go through all of them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from itertools import islice
from typing import Any

from dlop.kube.cache import CacheChange
from dlop.kube.objects import CustomObject
from dlop.policies.members import Members
from dlop.reconcile.scale_plans import PlanPhase, plan_status

_MAX_PLANS = 64
"""Number of plans that one pass gets."""

Owner = tuple[str, str]
"""Namespace and name of a job."""
_Order = tuple[int, float, str]


class ScalePlanQueue:
    """The scale plans of all jobs of one kind, except those that are being deleted."""

    def __init__(self, members: Members[Any], *, on_change: Callable[[Owner], None]) -> None:
        """`on_change` is called with the job of a plan that has changed."""
        self._members = members
        self._on_change = on_change
        self._plans: dict[Owner, list[tuple[_Order, CustomObject]]] = {}
        self._failed: dict[Owner, dict[str, CustomObject]] = {}

    def on_plan(self, change: CacheChange[CustomObject]) -> None:
        if change.old is not None:
            self._remove(change.old)
        if change.new is not None:
            self._add(change.new)
        # The initial list of jobs causes a pass for each of them.
        if not change.initial:
            for owner in {self._owner(plan) for plan in (change.old, change.new) if plan is not None}:
                self._on_change(owner)

    def first(self, owner: Owner) -> tuple[CustomObject, ...]:
        """The first plans of a job that have not failed."""
        return tuple(plan for _, plan in self._plans.get(owner, ())[:_MAX_PLANS])

    def failed(self, owner: Owner) -> tuple[CustomObject, ...]:
        """Some of the plans of the master of a job that have failed."""
        return tuple(islice(self._failed.get(owner, {}).values(), _MAX_PLANS))

    def owners(self) -> tuple[Owner, ...]:
        """The jobs that have plans. They may not exist."""
        return tuple({**self._plans, **self._failed})

    def _add(self, plan: CustomObject) -> None:
        if plan.metadata.deletion_timestamp is not None:
            return
        owner = self._owner(plan)
        if plan_status(plan).get("phase") == PlanPhase.FAILED:
            if self._members.is_automatic(plan):
                self._failed.setdefault(owner, {})[plan.metadata.uid] = plan
        else:
            insort(self._plans.setdefault(owner, []), (self._order(plan), plan), key=lambda entry: entry[0])

    def _remove(self, plan: CustomObject) -> None:
        owner = self._owner(plan)
        plans, failed = self._plans.get(owner, []), self._failed.get(owner, {})
        failed.pop(plan.metadata.uid, None)
        index = bisect_left(plans, self._order(plan), key=lambda entry: entry[0])
        if index < len(plans) and plans[index][1].metadata.uid == plan.metadata.uid:
            del plans[index]
        if not plans:
            self._plans.pop(owner, None)
        if not failed:
            self._failed.pop(owner, None)

    def _owner(self, plan: CustomObject) -> Owner:
        return plan.metadata.namespace, self._members.plan_owner(plan)

    def _order(self, plan: CustomObject) -> _Order:
        created = plan.metadata.creation_timestamp
        return self._members.plan_order(plan), 0.0 if created is None else created.timestamp(), plan.metadata.uid
