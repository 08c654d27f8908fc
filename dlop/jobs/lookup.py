"""Find jobs by name among all kinds that the cluster serves.

A job is named `JOB` or `KIND/JOB`. Kinds that the cluster does not serve are skipped. Kinds that the user may not read are skipped
too, unless no kind can be read. Errors about missing or ambiguous names list the choices.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import msgspec

from dlop.api.phase import Phase
from dlop.api.record import Record, parse_record
from dlop.frameworks.registry import Registry, RegistryError
from dlop.job import DLJob
from dlop.jobs.errors import AmbiguousJobError, JobNotFoundError, JobsError
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, KubeError, NotFoundError
from dlop.kube.objects import Buffer, CustomObject, ObjectMeta, object_decoder
from dlop.kube.resources import Resource

_MAX_CHOICES = 8


@dataclass(frozen=True, slots=True)
class JobList:
    jobs: tuple[JobHandle, ...]
    forbidden: tuple[str, ...] = ()
    """Resources that the user may not list."""
    readable: tuple[type[DLJob], ...] = ()
    """Kinds that the cluster serves and the user may list."""


@dataclass(frozen=True, slots=True)
class JobReference:
    """A job by name, or all jobs of these kinds if the name is None."""

    kinds: tuple[type[DLJob], ...]
    name: str | None


def parse_reference(text: str, registry: Registry) -> JobReference:
    """Parse `KIND`, `KIND/JOB` or `JOB`. A word that is not a kind is the name of a job.

    Raises:
        JobsError: the kind is unknown, or the name is missing.
    """
    kind, slash, name = text.partition("/")
    try:
        kinds = tuple(registry.select([kind]))
    except RegistryError as error:
        if slash:
            raise JobsError(str(error)) from error
        return JobReference(tuple(registry), kind)
    if slash and not name:
        raise JobsError(f"{text!r} has no job name; use {kind}/NAME.")
    return JobReference(kinds, name or None)


def parse_job_reference(text: str, registry: Registry) -> JobReference:
    """Parse `KIND/JOB` or `JOB`. A single word is the name of a job, even if a kind has the same name.

    Raises:
        JobsError: the kind is unknown, or the name is missing.
    """
    if not text:
        raise JobsError("the name of the job is empty; use JOB or KIND/JOB.")
    return parse_reference(text, registry) if "/" in text else JobReference(tuple(registry), text)


async def list_jobs(client: Client, kinds: Iterable[type[DLJob]], *, namespace: str | None, name: str | None = None) -> JobList:
    """All jobs of these kinds in one namespace, or in all if it is None. With `name`, only jobs of this name.

    Raises:
        KubeError: the server cannot be read, or the user may list none of the kinds.
    """
    selector = None if name is None else f"metadata.name={name}"

    async def list_kind(kind: type[DLJob]) -> list[JobHandle]:
        pages = client.pages(kind.job_type.resource, namespace=namespace, field_selector=selector)
        return [JobHandle.decode(kind, item) async for page in pages for item in page.items]

    return await _read_kinds(kinds, list_kind)


async def find_job(client: Client, reference: JobReference, *, namespace: str) -> JobHandle:
    """The job of this name.

    Raises:
        JobNotFoundError: there is none; the message lists similar names.
        AmbiguousJobError: several kinds have one; the message lists them.
        KubeError: the server cannot be read.
    """
    name = reference.name or ""

    async def get_from_kind(kind: type[DLJob]) -> list[JobHandle]:
        body = await client.get(kind.job_type.resource, name, namespace=namespace)
        return [JobHandle.decode(kind, msgspec.json.encode(body))]

    jobs = (await _read_kinds(reference.kinds, get_from_kind)).jobs
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        choices = " or ".join(job.reference for job in jobs)
        raise AmbiguousJobError(f"{len(jobs)} jobs in the namespace {namespace} are named {name}; use {choices}.")
    raise JobNotFoundError(await _explain_not_found(client, reference, namespace=namespace))


async def _read_kinds(kinds: Iterable[type[DLJob]], read: Callable[[type[DLJob]], Awaitable[list[JobHandle]]]) -> JobList:
    """Read all kinds concurrently."""

    async def try_read(kind: type[DLJob]) -> list[JobHandle] | KubeError:
        try:
            return await read(kind)
        except KubeError as error:
            return error

    kinds = list(kinds)
    results = dict(zip(kinds, await asyncio.gather(*map(try_read, kinds)), strict=True))
    forbidden = {kind: error for kind, error in results.items() if isinstance(error, ForbiddenError)}
    _raise_unexpected(list(results.values()), is_any_readable=any(map(_is_readable, results.values())))
    return JobList(
        jobs=tuple(job for result in results.values() if isinstance(result, list) for job in result),
        forbidden=tuple(kind.job_type.resource.qualified_name for kind in forbidden),
        readable=tuple(kind for kind, result in results.items() if isinstance(result, list)),
    )


def _is_readable(result: list[JobHandle] | KubeError) -> bool:
    """Whether the kind is served and readable. The NotFound error for a missing job names it; for a missing kind it does not."""
    return isinstance(result, list) or (isinstance(result, NotFoundError) and bool(result.details.get("name")))


def _raise_unexpected(results: list[list[JobHandle] | KubeError], *, is_any_readable: bool) -> None:
    for result in results:
        expected = (NotFoundError, ForbiddenError) if is_any_readable else NotFoundError
        if isinstance(result, KubeError) and not isinstance(result, expected):
            raise result


def kinds_not_installed(kinds: Iterable[type[DLJob]]) -> str:
    """The error message if the cluster serves none of the kinds."""
    names = ", ".join(kind.job_type.resource.qualified_name for kind in kinds)
    return f"the cluster does not serve {names}; `dlop install` installs the CRDs."


# --- a missing job -------------------------------------------------------------------------------------------------------


async def _explain_not_found(client: Client, reference: JobReference, *, namespace: str) -> str:
    in_namespace = await list_jobs(client, reference.kinds, namespace=namespace)
    if not in_namespace.readable and not in_namespace.forbidden:
        return kinds_not_installed(reference.kinds)
    elsewhere = await _other_namespaces(client, reference)
    names = [job.name for job in in_namespace.jobs]
    message = explain_not_found("job", reference.name or "", namespace=namespace, names=names, elsewhere=elsewhere)
    forbidden = in_namespace.forbidden if not elsewhere else ()
    return f"{message} You are not allowed to list {', '.join(forbidden)} there." if forbidden else message


def explain_not_found(what: str, name: str, *, namespace: str, names: list[str], elsewhere: list[str]) -> str:
    """The error message for a missing `job` or `Cron`, given the names in its namespace and the other namespaces that have this name."""
    not_found = f"{what} {name} not found in the namespace {namespace}"
    if elsewhere:
        return f"{not_found}, but it exists in {' and '.join(elsewhere)}: add -n {elsewhere[0]}."
    return f"{not_found}. {_choices(names, near=name, what=what)}"


async def _other_namespaces(client: Client, reference: JobReference) -> list[str]:
    try:
        matches = await list_jobs(client, reference.kinds, namespace=None, name=reference.name)
    except ForbiddenError:
        return []
    return sorted({job.namespace for job in matches.jobs})


def _choices(names: list[str], *, near: str, what: str) -> str:
    if not names:
        return f"The namespace has no {what}s."
    guesses = difflib.get_close_matches(near, names, n=1)
    if guesses:
        return f"Did you mean {guesses[0]}?"
    shown, more = sorted(names)[:_MAX_CHOICES], len(names) - _MAX_CHOICES
    return f"Existing {what}s: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}."


_decode = object_decoder(CustomObject)


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A custom resource together with the class of its kind."""

    kind: type[DLJob]
    custom_object: CustomObject

    @classmethod
    def decode(cls, kind: type[DLJob], data: Buffer) -> JobHandle:
        return cls(kind, _decode(data))

    @property
    def metadata(self) -> ObjectMeta:
        return self.custom_object.metadata

    @property
    def name(self) -> str:
        return self.custom_object.metadata.name

    @property
    def namespace(self) -> str:
        return self.custom_object.metadata.namespace

    @property
    def uid(self) -> str:
        return self.custom_object.metadata.uid

    @property
    def resource(self) -> Resource:
        return self.kind.job_type.resource

    @property
    def reference(self) -> str:
        """`plural.group/name`, unique in the namespace."""
        return f"{self.resource.qualified_name}/{self.name}"

    def dl_job(self) -> DLJob:
        return self.kind(self.custom_object)

    def record(self) -> Record:
        """The operator's record in the status; empty if there is none."""
        return parse_record(self.dl_job().stored_status) or Record()

    def phase(self) -> Phase | None:
        """None if no operator has reconciled the job."""
        record = self.record()
        return Phase(record.phase) if record.phase in list(Phase) else self.kind.status.read_phase(self.dl_job().stored_status)

    def __str__(self) -> str:
        return f"{self.kind.job_type.kind} {self.name}"
