"""Elastic roles: what the autoscaler has to know about a job, and how its decisions take effect.

A decision is stored in the record before any pod is created or deleted for it, so it survives a restart of the operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dlop.api.pod_resources import pod_requests
from dlop.api.progress import Progress, ReplicaState
from dlop.api.record import ScaleRecord
from dlop.api.spec import RoleSpec
from dlop.kube.objects import Pod
from dlop.kube.timestamps import format_time
from dlop.reconcile.autoscaler import Amounts, NodeSelector, WaitingPod, to_amounts
from dlop.reconcile.blocked import waiting_pods, waiting_reason
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.gang import awaits_admission

MAX_SCALE_RECORDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticRole:
    """The elastic role of a job, for the autoscaler."""

    minimum: int
    maximum: int
    replicas: int
    amounts: Amounts
    """Requests of one replica."""
    selector: NodeSelector
    optional_pods: tuple[str, ...]
    """The pods above the minimum, by index."""
    may_grow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDemand:
    """What a job needs from the cluster."""

    total: Amounts
    """Requests of all its pods, including those that do not exist yet, unless they are rejected."""
    elastic: ElasticRole | None
    """None while the autoscaler must not scale the job."""
    waiting: tuple[WaitingPod, ...]
    """Pods that the job needs and that could not be scheduled."""


def job_demand(context: ReconcileContext, progress: Progress) -> JobDemand | None:
    """What the autoscaler has to know about a job; None if it need not know it."""
    elastic, waiting = _elastic_role(context, progress), tuple(_waiting_pods(progress))
    if elastic is None and not waiting and not awaits_admission(context):
        return None
    return JobDemand(total=_total(context, progress), elastic=elastic, waiting=waiting)


def _elastic_role(context: ReconcileContext, progress: Progress) -> ElasticRole | None:
    """The role that the autoscaler may scale. A job that has started to finish is not scaled."""
    role = next((role for role in progress.roles if role.spec.elastic is not None), None)
    if role is None or role.spec.elastic is None or role.count(ReplicaState.SUCCEEDED):
        return None
    naming, spec, limits = context.job.naming, role.spec, role.spec.elastic
    return ElasticRole(
        minimum=limits.minimum,
        maximum=limits.maximum,
        replicas=spec.replicas,
        amounts=_amounts(spec),
        selector=_selector(spec),
        optional_pods=tuple(naming.pod_name(context.job, spec, index) for index in range(limits.minimum, spec.replicas)),
        # A failed replica that has not failed its job, such as a trainer of a fault-tolerant one, is not started again.
        may_grow=all(each.count(ReplicaState.RUNNING, ReplicaState.FAILED) == len(each.replicas) for each in progress.roles),
    )


def _waiting_pods(progress: Progress) -> Iterator[WaitingPod]:
    for role in progress.roles:
        for pod in waiting_pods(Progress(roles=(role,))):
            if waiting_reason(pod)[0] == "Unschedulable":
                yield WaitingPod(name=pod.metadata.name, amounts=_amounts(role.spec), selector=_selector(role.spec))


def _total(context: ReconcileContext, progress: Progress) -> Amounts:
    """Requests of all replicas that have not finished. No other job makes room for pods that the API server rejects."""
    is_rejected = bool(context.snapshot.rejected_writes)
    total = Amounts()
    for role in progress.roles:
        absent = sum(replica.pod is None for replica in role.replicas if replica.state is ReplicaState.MISSING) if is_rejected else 0
        total = total.plus(_amounts(role.spec), len(role.replicas) - absent - role.count(ReplicaState.SUCCEEDED, ReplicaState.FAILED))
    return total


def _amounts(role: RoleSpec) -> Amounts:
    return to_amounts(pod_requests(role.template.get("spec") or {}), pods=1)


def _selector(role: RoleSpec) -> NodeSelector:
    labels = (role.template.get("spec") or {}).get("nodeSelector")
    return tuple(sorted((name, str(value)) for name, value in labels.items())) if isinstance(labels, dict) else ()


# --- decisions -----------------------------------------------------------------------------------------------------------


def with_scale_decision(context: ReconcileContext) -> ReconcileContext:
    """The context of a job with the number of replicas that the autoscaler has chosen, and with a record of it.

    The same context if there is no decision, or if it is void: the number has changed, or the job has started to finish.
    """
    decision = context.snapshot.scale_decision
    role = next((role for role in context.spec.roles if role.elastic is not None), None)
    if decision is None or role is None or role.elastic is None:
        return context
    replicas = role.elastic.clamp(decision.replicas)
    if decision.previous != role.replicas or replicas == role.replicas or any(map(_has_succeeded, context.snapshot.pods)):
        return context
    record = context.stored.record
    change = replicas - role.replicas
    scale_record = ScaleRecord(time=format_time(context.now), role=role.name, replicas=replicas, change=change, reason=decision.reason)
    record = msgspec.structs.replace(
        record,
        elastic_replicas={**record.elastic_replicas, role.name: replicas},
        scale_records=[*record.scale_records, scale_record][-MAX_SCALE_RECORDS:],
    )
    return context.with_record(record, scaling=(scale_record,))


def _has_succeeded(pod: Pod) -> bool:
    return pod.status.phase == "Succeeded"
