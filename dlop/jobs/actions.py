"""Suspend, resume, scale and delete jobs of any kind.

An update is a merge patch with the resource version it was computed from. After a conflict it is computed again from the new
version, so that no concurrent update is lost, even where the roles are a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from dlop.api.schema import FieldPath
from dlop.api.spec import SpecError
from dlop.jobs.errors import JobUpdateError
from dlop.jobs.list_watch import ChangeSet, WatchScope, list_and_watch
from dlop.jobs.lookup import JobHandle
from dlop.kube.client import Client, PatchType, Propagation
from dlop.kube.errors import ConflictError, NotFoundError
from dlop.kube.merge_patch import merge_patch
from dlop.kube.objects import CustomObject
from dlop.policies.members import Members
from dlop.reconcile.scale_plans import PlanPhase, is_finished, plan_status

_MAX_ATTEMPTS = 10
_PLAN_TIMEOUT_SECONDS = 10.0
"""Time for the operator to execute a scale plan."""


async def suspend(client: Client, job: JobHandle) -> bool:
    """Suspend a job. Returns False if it is already suspended.

    Raises:
        JobUpdateError: jobs of this kind cannot be suspended, or the job has finished.
        KubeError: the API server rejected the request.
    """
    return await _update(client, job, lambda current: _with_suspend(current, suspend=True))


async def resume(client: Client, job: JobHandle) -> bool:
    """Resume a job. Returns False if it is not suspended. Raises the same errors as `suspend`."""
    return await _update(client, job, lambda current: _with_suspend(current, suspend=False))


async def scale(client: Client, job: JobHandle, replicas: Mapping[str, int]) -> bool:
    """Set the number of replicas by role. Returns False if the job already has these numbers.

    For a job whose master manages the pods, this writes a scale plan, waits for its execution and returns True.

    Raises:
        JobUpdateError: the job has no such role, the number is invalid for it, or the job has finished.
        KubeError: the API server rejected the request.
    """
    if job.kind.members is not None:
        return await _write_scale_plan(client, job, job.kind.members, replicas)
    return await _update(client, job, lambda current: _with_replicas(current, replicas))


async def delete(client: Client, job: JobHandle) -> None:
    """Delete a job. Its children are deleted in the background.

    Raises:
        KubeError: the API server rejected the request.
    """
    await client.delete(job.resource, job.name, namespace=job.namespace, uid=job.uid, propagation=Propagation.BACKGROUND)


async def _update(client: Client, job: JobHandle, new_spec: Callable[[JobHandle], Any]) -> bool:
    for _ in range(_MAX_ATTEMPTS):
        before, after = job.dl_job().raw_spec, new_spec(job)
        if after == before:
            return False
        version = {"uid": job.uid, "resourceVersion": job.metadata.resource_version}
        patch = {"metadata": version, **merge_patch({"spec": before}, {"spec": after})}
        try:
            await client.patch(
                job.resource,
                job.name,
                patch,
                patch_type=PatchType.MERGE,
                namespace=job.namespace,
                # Without it the server drops a field that the kind does not have, and the update has no effect.
                field_validation="Strict",
            )
        except ConflictError:
            job = await _reload(client, job)
        else:
            return True
    raise JobUpdateError(f"{job} could not be updated after {_MAX_ATTEMPTS} conflicts with other updates; try again.")


async def _write_scale_plan(client: Client, job: JobHandle, members: Members[Any], replicas: Mapping[str, int]) -> bool:
    _require_unfinished(job, "scaled")
    try:
        plan = members.manual_plan(job.dl_job(), replicas)
    except SpecError as error:
        raise JobUpdateError(f"{job} cannot be scaled: {error}.") from error
    resource = members.plan_type.resource
    created = await client.create(resource, plan, namespace=job.namespace)
    name = created["metadata"]["name"]
    scope = WatchScope(resource=resource, namespace=job.namespace, field_selector=f"metadata.name={name}")
    try:
        async with asyncio.timeout(_PLAN_TIMEOUT_SECONDS), aclosing(list_and_watch(client, scope, CustomObject)) as changes:
            async for change_set in changes:
                if _is_executed(change_set, job):
                    return True
    except TimeoutError:
        pass
    raise JobUpdateError(f"{job} is not scaled yet: the scale plan {name} waits; `dlop describe {job.name}` shows when it is executed.")


def _is_executed(change_set: ChangeSet[CustomObject], job: JobHandle) -> bool:
    """Whether a scale plan has succeeded. It is deleted then, maybe before it was listed."""
    for plan in change_set.upserted:
        status = plan_status(plan)
        if status.get("phase") == PlanPhase.FAILED:
            raise JobUpdateError(f"{job} cannot be scaled: {status.get('message') or 'the scale plan has failed'}.")
        if is_finished(plan):
            return True
    return not change_set.upserted


async def _reload(client: Client, job: JobHandle) -> JobHandle:
    try:
        body = await client.get(job.resource, job.name, namespace=job.namespace)
    except NotFoundError as error:
        raise JobUpdateError(f"{job} was deleted during the update.") from error
    current = JobHandle.decode(job.kind, msgspec.json.encode(body))
    if current.uid != job.uid:
        raise JobUpdateError(f"{job} was deleted and created again during the update.")
    return current


# --- the new spec --------------------------------------------------------------------------------------------------------


def _with_suspend(job: JobHandle, *, suspend: bool) -> Any:
    action = "suspended" if suspend else "resumed"
    _require_unfinished(job, action)
    dl_job = job.dl_job()
    path = dl_job.schema.suspend_path
    if path is None or not isinstance(dl_job.raw_spec, dict):
        raise JobUpdateError(
            f"{job} cannot be {action}: the spec of a {job.kind.job_type} has no field for it. "
            f"`dlop scale {job.name} ROLE=0` deletes the pods of a role, `dlop delete {job.name}` deletes the job."
        )
    if not suspend and not value_at(dl_job.raw_spec, path):
        return dl_job.raw_spec
    return with_value_at(dl_job.raw_spec, path, suspend)


def _with_replicas(job: JobHandle, replicas: Mapping[str, int]) -> Any:
    _require_unfinished(job, "scaled")
    dl_job = job.dl_job()
    spec = dl_job.raw_spec
    for role, count in replicas.items():
        further = job.kind.schema.further_replicas_paths(dl_job.spec_field, role.lower())
        for path in (_replicas_path(job, role), *further):
            spec = with_value_at(spec, path, count)
    scaled = JobHandle(job.kind, msgspec.structs.replace(job.custom_object, spec=msgspec.Raw(msgspec.json.encode(spec))))
    try:
        scaled.dl_job().spec  # noqa: B018 - parsed only to validate it
    except SpecError as error:
        raise JobUpdateError(f"{job} cannot be scaled: {error}.") from error
    return spec


def _replicas_path(job: JobHandle, role: str) -> FieldPath:
    names = {replica_type.name.lower(): replica_type.name for replica_type in job.kind.replica_types}
    if role.lower() not in names:
        raise JobUpdateError(f"{job} has no role {role}; a {job.kind.job_type} has {', '.join(names.values())}.")
    path = job.kind.schema.replicas_path(job.dl_job().spec_field, names[role.lower()])
    if path is None:
        raise JobUpdateError(
            f"{job} has no {names[role.lower()]}: the role is missing in its spec and needs a pod template. "
            f"`kubectl edit {job.reference}` can add it."
        )
    return path


def _require_unfinished(job: JobHandle, action: str) -> None:
    phase = job.phase()
    if phase is not None and phase.is_finished:
        raise JobUpdateError(f"{job} cannot be {action}: it has already {phase.lower()}. `dlop submit` starts a new job.")


def value_at(data: Any, path: FieldPath) -> Any:
    """The value at a path; None if there is none."""
    for step in path:
        is_item = isinstance(data, list) and isinstance(step, int) and step < len(data)
        data = data[step] if is_item else data.get(step) if isinstance(data, dict) else None
    return data


def with_value_at(data: Any, path: FieldPath, value: Any) -> Any:
    """A copy with `value` at a path. Missing objects on the path are created."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [with_value_at(item, rest, value) if index == step else item for index, item in enumerate(data)]
    fields = data if isinstance(data, dict) else {}
    return {**fields, step: with_value_at(fields.get(step), rest, value)}
