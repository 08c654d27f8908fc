"""Drift: pods and services that were rendered from an older spec.

A pod that has not started is replaced; a running pod keeps its spec. A service is replaced if its ports have changed. Drift
is computed only in passes that see a new generation. The record stores the generation that was seen last, and is written in
the pass that deletes the drifted pods.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlop.api.constants import TEMPLATE_HASH_ANNOTATION
from dlop.api.progress import Progress, ReplicaState
from dlop.api.spec import RoleSpec
from dlop.api.template_hash import parse_template_hash
from dlop.kube.objects import Pod, Service
from dlop.kube.types import JsonObject
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.pod_state import has_started


def drifted_pods(context: ReconcileContext, progress: Progress) -> tuple[Pod, ...]:
    """Pods that have not started and would be rendered differently now."""
    if not context.spec_changed:
        return ()
    return tuple(
        replica.pod
        for role in progress.roles
        for replica in role.replicas
        if replica.state is ReplicaState.PENDING and replica.pod is not None and _is_drifted(context, replica.pod, role.spec, replica.index)
    )


def drifted_services(context: ReconcileContext) -> Iterator[Service]:
    """Services that would have other ports now."""
    if not context.spec_changed:
        return
    for service in context.snapshot.services:
        replica = context.desired_services.get(service.metadata.name)
        body = None if replica is None else context.job.make_service(replica.role, replica.index)
        if body is not None and _ports(body) != {(port.name, port.port) for port in service.spec.ports}:
            yield service


def _ports(service: JsonObject) -> set[tuple[str, int]]:
    return {(port.get("name", ""), port["port"]) for port in service["spec"].get("ports") or ()}


def _is_drifted(context: ReconcileContext, pod: Pod, role: RoleSpec, index: int) -> bool:
    """A pod of a newer generation never counts as drifted: it was created by an instance whose cache is ahead of this one."""
    generation, digest = parse_template_hash(pod.metadata.annotations.get(TEMPLATE_HASH_ANNOTATION, ""))
    if not digest or generation >= context.job.metadata.generation or has_started(pod, role):
        return False
    body = context.job.make_pod(role, index, attempt=context.attempts[role.name])
    return parse_template_hash(body["metadata"]["annotations"][TEMPLATE_HASH_ANNOTATION])[1] != digest
