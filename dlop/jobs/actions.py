"""Changes jobs: suspends, resumes, scales and deletes them, in the dialect of each kind.

A change is a merge patch of the version that it was worked out from: when the job has changed meanwhile, it is worked out
anew, so that nobody's change is lost, also where the roles are a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from dlop.api.spec import SpecError
from dlop.jobs.errors import CannotChangeError
from dlop.jobs.lookup import JobHandle
from dlop.kube.client import Client, PatchType, Propagation
from dlop.kube.errors import ConflictError, NotFoundError

_MOST_TRIES = 10
Path = tuple[str | int, ...]


async def suspend(client: Client, found: JobHandle) -> bool:
    """Let a job have no pods until it is resumed. Says whether that is news to it.

    Raises:
        CannotChangeError: jobs of this kind cannot be suspended, or it is over.
        KubeError: the server refused.
    """
    return await _change(client, found, lambda job: _with_suspend(job, suspend=True))


async def resume(client: Client, found: JobHandle) -> bool:
    """Let a suspended job go on. Says whether that is news to it; raises as `suspend` does."""
    return await _change(client, found, lambda job: _with_suspend(job, suspend=False))


async def scale(client: Client, found: JobHandle, replicas: Mapping[str, int]) -> bool:
    """Give roles other numbers of replicas. Says whether that is news to the job.

    Raises:
        CannotChangeError: the job has no such role, the role cannot have so many, or the job is over.
        KubeError: the server refused.
    """
    return await _change(client, found, lambda job: _with_replicas(job, replicas))


async def delete(client: Client, found: JobHandle) -> None:
    """Delete a job, and its pods and services after it.

    Raises:
        KubeError: the server refused.
    """
    await client.delete(found.resource, found.name, namespace=found.namespace, uid=found.uid, propagation=Propagation.BACKGROUND)


async def _change(client: Client, found: JobHandle, new_spec: Callable[[JobHandle], Any]) -> bool:
    for _ in range(_MOST_TRIES):
        before, after = found.job().raw_spec, new_spec(found)
        if after == before:
            return False
        version = {"uid": found.uid, "resourceVersion": found.metadata.resource_version}
        patch = {"metadata": version, "spec": difference(before, after)}
        try:
            await client.patch(
                found.resource,
                found.name,
                patch,
                patch_type=PatchType.MERGE,
                namespace=found.namespace,
                # A field that the kind does not have would be dropped without a word, and nothing would happen.
                field_validation="Strict",
            )
        except ConflictError:
            found = await _again(client, found)
        else:
            return True
    raise CannotChangeError(f"{found} changes all the time, and could not be changed {_MOST_TRIES} times; try again.")


async def _again(client: Client, found: JobHandle) -> JobHandle:
    try:
        body = await client.get(found.resource, found.name, namespace=found.namespace)
    except NotFoundError as error:
        raise CannotChangeError(f"{found} was deleted meanwhile.") from error
    new = JobHandle.read(found.kind, msgspec.json.encode(body))
    if new.uid != found.uid:
        raise CannotChangeError(f"{found} was deleted meanwhile, and another one was made under its name.")
    return new


# --- what is to be written -----------------------------------------------------------------------------------------------


def _with_suspend(found: JobHandle, *, suspend: bool) -> Any:
    word = "suspended" if suspend else "resumed"
    _demand_unfinished(found, word)
    job = found.job()
    if job.suspend_path is None or not isinstance(job.raw_spec, dict):
        raise CannotChangeError(
            f"{found} cannot be {word}: the spec of a {found.kind.job_type} has no room for it. "
            f"`dlop scale {found.name} ROLE=0` ends the pods of a role, and `dlop delete {found.name}` all of them."
        )
    if not suspend and not value_at(job.raw_spec, job.suspend_path):
        return job.raw_spec
    return changed(job.raw_spec, job.suspend_path, suspend)


def _with_replicas(found: JobHandle, replicas: Mapping[str, int]) -> Any:
    _demand_unfinished(found, "scaled")
    job = found.job()
    after = job.raw_spec
    for role, count in replicas.items():
        after = changed(after, _path_of(found, role), count)
    new = JobHandle(found.kind, msgspec.structs.replace(found.stored, spec=msgspec.Raw(msgspec.json.encode(after))))
    try:
        new.job().spec  # noqa: B018 - asked only whether it makes sense
    except SpecError as error:
        raise CannotChangeError(f"{found} cannot be scaled to that: {error}.") from error
    return after


def _path_of(found: JobHandle, role: str) -> Path:
    spelled = {each.name.lower(): each.name for each in found.kind.replica_types}
    if role.lower() not in spelled:
        raise CannotChangeError(f"{found} has no role {role}; a {found.kind.job_type} has {', '.join(spelled.values())}.")
    path = found.job().replicas_path(spelled[role.lower()])
    if path is None:
        raise CannotChangeError(
            f"{found} has no {spelled[role.lower()]}: the role is not in its spec, where it needs a template. "
            f"`kubectl edit {found.reference}` can add it."
        )
    return path


def _demand_unfinished(found: JobHandle, word: str) -> None:
    phase = found.phase()
    if phase is not None and phase.is_end:
        raise CannotChangeError(f"{found} cannot be {word}, for it has {phase.lower()} already; `dlop submit` starts another one.")


def value_at(data: Any, path: Path) -> Any:
    """What stands at a path; None when nothing does."""
    for step in path:
        fits = isinstance(data, list) and isinstance(step, int) and step < len(data)
        data = data[step] if fits else data.get(step) if isinstance(data, dict) else None
    return data


def changed(data: Any, path: Path, value: Any) -> Any:
    """A copy in which something else stands at a path; objects on the way are made where they are missing."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [changed(each, rest, value) if place == step else each for place, each in enumerate(data)]
    found = data if isinstance(data, dict) else {}
    return {**found, step: changed(found.get(step), rest, value)}


def difference(before: Any, after: Any) -> Any:
    """The merge patch from one to the other, where nothing is taken away: what is new in objects, and lists as a whole."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    return {name: difference(before.get(name), value) for name, value in after.items() if name not in before or before[name] != value}
