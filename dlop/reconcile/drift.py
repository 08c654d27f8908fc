"""What was made from an older spec.

A pod that has not started is made anew; one that runs keeps what it was made of. A service is made anew when its ports are
others. The spec is compared only in passes that see a new generation: the record tells which one was seen last, and that is written
when the pods that had to go are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlop.api.constants import RENDERED_ANNOTATION
from dlop.api.progress import Progress, ReplicaState
from dlop.api.spec import RoleSpec
from dlop.api.template_hash import read_stamp
from dlop.kube.objects import Pod, Service
from dlop.kube.types import JsonObject
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.pod_state import has_begun


def outdated_by_edits(case: ReconcileContext, progress: Progress) -> tuple[Pod, ...]:
    """Pods that have not started, and would be made of something else today."""
    return tuple(_outdated(case, progress)) if case.is_edited else ()


def services_outdated_by_edits(case: ReconcileContext) -> Iterator[Service]:
    """Services that would have other ports today."""
    if not case.is_edited:
        return
    for service in case.snapshot.services:
        replica = case.service_names.get(service.metadata.name)
        body = None if replica is None else case.job.make_service(replica.role, replica.index)
        if body is not None and _ports(body) != {(port.name, port.port) for port in service.spec.ports}:
            yield service


def _ports(service: JsonObject) -> set[tuple[str, int]]:
    return {(port.get("name", ""), port["port"]) for port in service["spec"].get("ports") or ()}


def _outdated(case: ReconcileContext, progress: Progress) -> Iterator[Pod]:
    for role in progress.roles:
        for replica in role.replicas:
            pod = replica.pod if replica.state is ReplicaState.PENDING else None
            if pod is not None and _is_outdated(case, pod, role.spec, replica.index):
                yield pod


def _is_outdated(case: ReconcileContext, pod: Pod, role: RoleSpec, index: int) -> bool:
    """Only an older spec is worth a look: one that is newer than the job was read by somebody who knows more."""
    generation, digest = read_stamp(pod.metadata.annotations.get(RENDERED_ANNOTATION, ""))
    if not digest or generation >= case.job.metadata.generation or has_begun(pod, role):
        return False
    body = case.job.make_pod(role, index, attempt=case.attempts[role.name])
    return read_stamp(body["metadata"]["annotations"][RENDERED_ANNOTATION])[1] != digest
