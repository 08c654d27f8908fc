"""Suspended jobs: pods, also that of the TensorBoard, and services are deleted, and the record is kept."""

from __future__ import annotations

from dataclasses import replace

from dlop.api.progress import Progress, ReplicaProgress, ReplicaState
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.deletion import deletes_if_unchanged, deletes_of, ephemeral_deletes, force_deletes, retried_deletes, surplus_services
from dlop.reconcile.observe import Observation
from dlop.reconcile.plan import Delete

_FINISHED = (ReplicaState.SUCCEEDED, ReplicaState.FAILED)


def suspend(observation: Observation) -> Progress:
    """Release the claims on all pods, and return the progress of the suspended job. Failures found in this pass are ignored."""
    observation.builder.release_claims()
    return Progress(roles=tuple(replace(role, replicas=tuple(map(_suspended, role.replicas))) for role in observation.progress.roles))


def suspend_deletes(context: ReconcileContext) -> tuple[Delete, ...]:
    """Deletes for all pods, all services of replicas, and ephemeral children.

    A pod is deleted only if it is unchanged: the cache may be stale, and the result of a finished pod would be lost with it.
    """
    pods = context.snapshot.all_pods
    running = (pod for pod in pods if pod.metadata.deletion_timestamp is None)
    desired = (service for service in context.snapshot.services if service.metadata.name in context.desired_services)
    overdue = retried_deletes(context) + force_deletes(context, pods)
    services = deletes_of((), (*desired, *surplus_services(context)))
    return deletes_if_unchanged(running) + services + overdue + ephemeral_deletes(context)


def _suspended(replica: ReplicaProgress) -> ReplicaProgress:
    return replica if replica.state in _FINISHED else replace(replica, state=ReplicaState.MISSING, failure=None)
