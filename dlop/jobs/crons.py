"""Crons as people handle them: list, describe, suspend and delete.

A Cron is named `cron/NAME`. `NAME` alone is a Cron only if no job has this name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from dlop.api.cron import CRONS, SCHEDULED_TIME_ANNOTATION, SOURCE_ANNOTATION, CronSpec, read_cron_spec
from dlop.api.spec import SpecError
from dlop.jobs.errors import CronsNotServedError, JobNotFoundError, JobsError
from dlop.jobs.list_watch import ChangeSet, WatchScope, list_and_watch
from dlop.jobs.lookup import JobHandle, explain_not_found
from dlop.kube.client import Client, PatchType, Propagation
from dlop.kube.errors import ForbiddenError, NotFoundError
from dlop.kube.objects import CustomObject, object_decoder
from dlop.kube.timestamps import format_time, parse_time
from dlop.kube.types import JsonObject
from dlop.reconcile.cron import next_run, read_status

_WORDS = frozenset({"cron", "crons", f"cron.{CRONS.group}", CRONS.qualified_name})
_MAX_TIME_DIGITS = 11
"""Of a number of seconds before the year 9999."""
_decode = object_decoder(CustomObject)


class CronHistoryView(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    """Kind and name."""
    status: str
    created: str
    finished: str
    """Empty if the job has not finished."""


class CronView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a Cron. Times are RFC 3339 strings, empty if unknown."""

    namespace: str
    name: str
    schedule: str
    time_zone: str
    concurrency_policy: str
    job_kind: str
    """API version and kind of the jobs."""
    is_suspended: bool
    created_at: str
    last_scheduled_at: str
    next_scheduled_at: str
    """Empty if no more jobs will be created, or the spec is invalid."""
    deadline: str
    problem: str
    """Why no job is created; empty if nothing prevents it."""
    active: tuple[str, ...]
    """Kind and name of the jobs that have not finished."""
    history: tuple[CronHistoryView, ...]


class JobCronView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The Cron of a job: the one that created the job, or else the one that its `cronPolicy` asks for."""

    name: str
    has_created_job: bool
    scheduled_at: str = ""
    """The time for which it created the job; empty if unknown."""
    is_suspended: bool = False
    next_scheduled_at: str = ""
    """Empty if no more jobs will be created, or if the Cron cannot be read."""
    problem: str = ""
    """Why it creates no jobs, or cannot be read; empty if nothing prevents it."""


@dataclass(frozen=True, slots=True)
class CronHandle:
    custom_object: CustomObject

    @property
    def name(self) -> str:
        return self.custom_object.metadata.name

    @property
    def namespace(self) -> str:
        return self.custom_object.metadata.namespace

    def __str__(self) -> str:
        return f"{CRONS.kind} {self.name}"


def parse_cron_reference(text: str) -> str | None:
    """The name in `cron/NAME`, or an empty string for `crons`; None if the text does not refer to Crons.

    Raises:
        JobsError: the name after the slash is missing.
    """
    kind, slash, name = text.partition("/")
    if kind.lower() not in _WORDS:
        return None
    if slash and not name:
        raise JobsError(f"{kind} needs a name; use {kind}/NAME, or `dlop get crons` to list all Crons.")
    return name


async def list_crons(client: Client, *, namespace: str | None, name: str = "") -> list[CronHandle]:
    """The Crons of a namespace, or of all if it is None, sorted by name. With `name`, only those of this name.

    Raises:
        CronsNotServedError: the cluster does not serve Crons.
        ForbiddenError: the user may not list them.
    """
    selector = f"metadata.name={name}" if name else None
    pages = client.pages(CRONS, namespace=namespace, field_selector=selector)
    try:
        crons = [CronHandle(_decode(item)) async for page in pages for item in page.items]
    except NotFoundError as error:
        raise CronsNotServedError("the cluster does not serve Crons; `dlop install` installs the CRDs.") from error
    return sorted(crons, key=lambda cron: (cron.namespace, cron.name))


async def list_visible_crons(client: Client, *, namespace: str | None, name: str = "") -> list[CronHandle]:
    """The result of `list_crons`; empty where the cluster does not serve Crons or the user may not list them."""
    try:
        return await list_crons(client, namespace=namespace, name=name)
    except (CronsNotServedError, ForbiddenError):
        return []


async def watch_crons(client: Client, *, namespace: str | None, name: str = "") -> AsyncGenerator[ChangeSet[CustomObject], None]:
    """The Crons that `list_crons` returns, then every change.

    Raises:
        KubeError: the cluster does not serve Crons, or the user may not list or watch them.
    """
    scope = WatchScope(resource=CRONS, namespace=namespace, field_selector=f"metadata.name={name}" if name else None)
    async with aclosing(list_and_watch(client, scope, CustomObject)) as changes:
        async for change_set in changes:
            yield change_set


async def watch_visible_crons(client: Client, *, namespace: str | None) -> AsyncGenerator[ChangeSet[CustomObject], None]:
    """The Crons that `list_visible_crons` returns, then every change. Ends at once if they are not visible.

    Raises:
        KubeError: they are visible and cannot be watched.
    """
    is_visible = False
    try:
        async with aclosing(watch_crons(client, namespace=namespace)) as changes:
            async for change_set in changes:
                is_visible = True
                yield change_set
    except (NotFoundError, ForbiddenError):
        if is_visible:
            raise


async def find_cron(client: Client, name: str, *, namespace: str) -> CronHandle | None:
    """The Cron of this name; None if there is none, or if the cluster does not serve Crons."""
    try:
        return CronHandle(_decode(msgspec.json.encode(await client.get(CRONS, name, namespace=namespace))))
    except NotFoundError:
        return None


async def get_cron(client: Client, name: str, *, namespace: str) -> CronHandle:
    """The Cron of this name.

    Raises:
        JobNotFoundError: there is none; the message lists similar names.
        CronsNotServedError: the cluster does not serve Crons.
        ForbiddenError: the user may not read Crons.
    """
    cron = await find_cron(client, name, namespace=namespace)
    if cron is not None:
        return cron
    names = [other.name for other in await list_crons(client, namespace=namespace)]
    elsewhere = [other.namespace for other in await list_visible_crons(client, namespace=None, name=name)]
    raise JobNotFoundError(explain_not_found("Cron", name, namespace=namespace, names=names, elsewhere=elsewhere))


async def find_visible_cron(client: Client, name: str, *, namespace: str) -> CronHandle | None:
    """The result of `find_cron`; None also if the user may not read Crons."""
    try:
        return await find_cron(client, name, namespace=namespace)
    except ForbiddenError:
        return None


async def set_cron_suspended(client: Client, cron: CronHandle, *, suspend: bool) -> bool:
    """Suspend or resume a Cron. Returns False if it is in this state already. Its jobs are not affected."""
    spec = msgspec.json.decode(cron.custom_object.spec)
    if isinstance(spec, dict) and bool(spec.get("suspend")) is suspend:
        return False
    patch = {"metadata": {"uid": cron.custom_object.metadata.uid}, "spec": {"suspend": suspend}}
    await client.patch(CRONS, cron.name, patch, patch_type=PatchType.MERGE, namespace=cron.namespace)
    return True


async def delete_cron(client: Client, cron: CronHandle) -> None:
    """Delete a Cron. Its jobs are deleted in the background."""
    metadata = cron.custom_object.metadata
    await client.delete(CRONS, cron.name, namespace=cron.namespace, uid=metadata.uid, propagation=Propagation.BACKGROUND)


def build_cron_view(cron: CronHandle, *, now: float) -> CronView:
    """The view of a Cron. `now` is in seconds since the epoch."""
    stored, metadata = cron.custom_object, cron.custom_object.metadata
    spec, status = msgspec.json.decode(stored.spec), read_status(stored)
    raw = spec if isinstance(spec, dict) else {}
    template = raw.get("template")
    names = (_text(template, "apiVersion"), _text(template, "kind")) if isinstance(template, dict) else ()
    parsed, problem = _parse(stored)
    upcoming = None if parsed is None else next_run(stored, parsed, now=now)
    return CronView(
        namespace=cron.namespace,
        name=cron.name,
        schedule=_text(raw, "schedule"),
        time_zone=_text(raw, "timeZone"),
        concurrency_policy=_text(raw, "concurrencyPolicy") or "Allow" if parsed is None else parsed.effective_policy.value,
        job_kind=" ".join(filter(None, names)),
        is_suspended=raw.get("suspend") is True,
        created_at="" if metadata.creation_timestamp is None else format_time(metadata.creation_timestamp.timestamp()),
        last_scheduled_at=_text(status, "lastScheduleTime"),
        next_scheduled_at="" if upcoming is None else format_time(upcoming),
        deadline=_text(raw, "deadline"),
        problem=problem or _blocked_message(status),
        active=tuple(f"{_text(ref, 'kind')} {_text(ref, 'name')}" for ref in _objects(status, "active")),
        history=tuple(map(_history_view, _objects(status, "history"))),
    )


# --- the Cron of a job ---------------------------------------------------------------------------------------------------


async def get_job_cron_view(client: Client, job: JobHandle, *, now: float) -> JobCronView | None:
    """The Cron of a job; None if it has none. `now` is in seconds since the epoch.

    Raises:
        KubeError: the API server cannot be read. A Cron that the user may not read is no error.
    """
    owner = job.metadata.controller
    if owner is not None and owner.kind == CRONS.kind:
        view = JobCronView(name=owner.name, has_created_job=True, scheduled_at=_scheduled_time(job, cron_name=owner.name))
    elif _has_cron_policy(job):
        view, owner = JobCronView(name=job.name, has_created_job=False), None
    else:
        return None
    try:
        cron = await find_cron(client, view.name, namespace=job.namespace)
    except ForbiddenError as error:
        return msgspec.structs.replace(view, problem=f"you are not allowed to read it: {error}")
    state = None if cron is None else build_cron_view(cron, now=now)
    if owner is not None and (cron is None or cron.custom_object.metadata.uid != owner.uid):
        problem = "it was deleted"
    elif cron is None or state is None:
        problem = "it does not exist yet; an event in the history says so if something prevents it"
    elif owner is None and not (SOURCE_ANNOTATION in cron.custom_object.metadata.annotations and _creates_kind(state, job)):
        problem = "it exists and was not created for this job; delete or rename one of them"
    else:
        next_scheduled_at, problem = state.next_scheduled_at, state.problem
        return msgspec.structs.replace(view, is_suspended=state.is_suspended, next_scheduled_at=next_scheduled_at, problem=problem)
    return msgspec.structs.replace(view, problem=problem)


def _scheduled_time(job: JobHandle, *, cron_name: str) -> str:
    """Jobs that KubeDL has created have the time only in their name."""
    seconds = job.metadata.annotations.get(SCHEDULED_TIME_ANNOTATION) or job.name.removeprefix(f"{cron_name}-")
    return format_time(int(seconds)) if seconds.isascii() and seconds.isdecimal() and len(seconds) <= _MAX_TIME_DIGITS else ""


def _has_cron_policy(job: JobHandle) -> bool:
    try:
        return job.dl_job().spec.run_policy.cron_policy is not None
    except SpecError:
        return False


def _creates_kind(cron: CronView, job: JobHandle) -> bool:
    """Whether a Cron creates jobs of the kind of this one, in any version."""
    api_version, _, kind = cron.job_kind.partition(" ")
    return (api_version.rpartition("/")[0], kind) == (job.resource.group, job.resource.kind)


# --- fields --------------------------------------------------------------------------------------------------------------


def _parse(stored: CustomObject) -> tuple[CronSpec | None, str]:
    """The spec, or its errors."""
    try:
        return read_cron_spec(msgspec.json.decode(stored.spec), namespace=stored.metadata.namespace), ""
    except SpecError as error:
        return None, str(error)


def _blocked_message(status: JsonObject) -> str:
    messages = (_text(condition, "message") for condition in _objects(status, "conditions") if condition.get("type") == "Blocked")
    return next(messages, "")


def _history_view(entry: JsonObject) -> CronHistoryView:
    reference = entry.get("object")
    job = f"{_text(reference, 'kind')} {_text(reference, 'name')}" if isinstance(reference, dict) else ""
    finished = _text(entry, "finished")
    return CronHistoryView(
        job=job,
        status=_text(entry, "status"),
        created=_text(entry, "created"),
        finished=finished if parse_time(finished) is not None else "",
    )


def _objects(data: JsonObject, name: str) -> list[JsonObject]:
    items = data.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _text(data: JsonObject, name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
