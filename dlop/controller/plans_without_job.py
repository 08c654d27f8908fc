"""Scale plans whose job does not exist: reported, or deleted if the job existed when they were written."""

from __future__ import annotations

import structlog

from dlop.controller.informer_set import InformerSet
from dlop.controller.kinds import JobKey, ManagedKind
from dlop.controller.scale_plan_queue import ScalePlanQueue
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import ConflictError, NotFoundError
from dlop.kube.objects import CustomObject
from dlop.kube.resources import Resource
from dlop.kube.timestamps import format_time
from dlop.reconcile.scale_plans import is_finished, job_uids, plan_status

log = structlog.get_logger(__name__)


async def finish_plans_without_job(client: Client, informers: InformerSet, kind: ManagedKind, key: JobKey, *, now: float) -> None:
    """Does nothing if there are no plans for the job, or if it exists and only the cache does not show it yet.

    Raises:
        KubeError: the API server could not be reached.
    """
    plans = [
        (resource, plan)
        for resource in kind.plan_resources
        if resource in informers.scale_plans
        for plan in _plans_of(informers.scale_plans[resource], key)
    ]
    if not plans or await _exists(client, key):
        return
    for resource, plan in plans:
        try:
            await _finish(client, resource, plan, key, now=now)
        except (NotFoundError, ConflictError) as error:
            log.info("scale plan was changed or deleted", plan=plan.metadata.name, error=str(error))


def _plans_of(queue: ScalePlanQueue, key: JobKey) -> tuple[CustomObject, ...]:
    """Plans that wait, and failed ones of a deleted job. Others that have failed are kept for their message."""
    owner = (key.namespace, key.name)
    return (*queue.first(owner), *(plan for plan in queue.failed(owner) if _is_of_deleted_job(plan, key)))


def _is_of_deleted_job(plan: CustomObject, key: JobKey) -> bool:
    return bool(job_uids(plan, kind=key.resource.kind, name=key.name))


async def _exists(client: Client, key: JobKey) -> bool:
    if not key.name:
        return False
    try:
        await client.get(key.resource, key.name, namespace=key.namespace)
    except NotFoundError:
        return False
    return True


async def _finish(client: Client, resource: Resource, plan: CustomObject, key: JobKey, *, now: float) -> None:
    """Delete a plan that has succeeded or whose job was deleted. Other plans wait, because their job may be created later."""
    if is_finished(plan) or _is_of_deleted_job(plan, key):
        await client.delete(resource, plan.metadata.name, namespace=key.namespace, uid=plan.metadata.uid)
        return
    message = f"spec.ownerJob: {key.resource.kind} {key.name!r} does not exist in namespace {key.namespace}; create it, or delete this plan"
    known = plan_status(plan)
    if known.get("message") == message:
        return
    status = {"phase": "Pending", "createTime": known.get("createTime") or format_time(now), "message": message}
    body = {"metadata": {"uid": plan.metadata.uid}, "status": status}
    await client.patch(resource, plan.metadata.name, body, patch_type=PatchType.MERGE, namespace=key.namespace, subresource="status")
