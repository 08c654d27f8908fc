"""Finds jobs by name, over all kinds that the cluster serves.

A job is named `JOB` or `KIND/JOB`, as kubectl has it. Kinds that the cluster does not know are passed over, and so are those
that the user may not read as long as another one can be read. What is missing or ambiguous is told with the choices.

One job as the server has it, with the class of its kind.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import msgspec

from dlop.api.phase import Phase
from dlop.api.record import Record, record_in
from dlop.frameworks.registry import Registry, RegistryError
from dlop.job import DLJob
from dlop.jobs.errors import AmbiguousJobError, JobsError, NoSuchJobError
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, KubeError, NotFoundError
from dlop.kube.objects import Buffer, CustomObject, ObjectMeta, reader
from dlop.kube.resources import Resource

_MOST_CHOICES = 8


@dataclass(frozen=True, slots=True)
class Search:
    """What was found, and which kinds the user may not read."""

    jobs: tuple[JobHandle, ...]
    unreadable: tuple[str, ...] = ()
    served: tuple[type[DLJob], ...] = ()
    """The kinds that the cluster knows and the user may read."""


@dataclass(frozen=True, slots=True)
class Reference:
    """How a user names a job, or all jobs of a kind."""

    kinds: tuple[type[DLJob], ...]
    name: str | None


def read_reference(text: str, registry: Registry) -> Reference:
    """`KIND`, `KIND/JOB` or `JOB`: a word that is no kind is the name of a job.

    Raises:
        JobsError: there is no such kind.
    """
    kind, slash, name = text.partition("/")
    try:
        kinds = tuple(registry.select([kind]))
    except RegistryError as error:
        if slash:
            raise JobsError(str(error)) from error
        return Reference(tuple(registry), kind)
    if slash and not name:
        raise JobsError(f"{text!r} names no job; write it as {kind}/NAME.")
    return Reference(kinds, name or None)


def read_job_reference(text: str, registry: Registry) -> Reference:
    """`KIND/JOB` or `JOB`: here a word alone is the name of a job, also when a kind is called like it.

    Raises:
        JobsError: there is no such kind.
    """
    return read_reference(text, registry) if "/" in text else Reference(tuple(registry), text)


async def list_jobs(client: Client, kinds: Iterable[type[DLJob]], *, namespace: str | None, name: str | None = None) -> Search:
    """All jobs of these kinds, in one namespace or in all; with a `name`, those that are called so.

    Raises:
        KubeError: the server cannot be read, or the user may read none of the kinds.
    """
    selector = None if name is None else f"metadata.name={name}"

    async def listed(kind: type[DLJob]) -> list[JobHandle]:
        pages = client.pages(kind.job_type.resource, namespace=namespace, field_selector=selector)
        return [JobHandle.read(kind, item) async for page in pages for item in page.items]

    return await _search(kinds, listed)


async def find_job(client: Client, reference: Reference, *, namespace: str) -> JobHandle:
    """The one job of a name.

    Raises:
        NoSuchJobError: there is none; the message tells which there are.
        AmbiguousJobError: there are several; the message tells how to name each.
        KubeError: the server cannot be read.
    """
    name = reference.name or ""

    async def got(kind: type[DLJob]) -> list[JobHandle]:
        body = await client.get(kind.job_type.resource, name, namespace=namespace)
        return [JobHandle.read(kind, msgspec.json.encode(body))]

    found = (await _search(reference.kinds, got)).jobs
    if len(found) == 1:
        return found[0]
    if found:
        choices = " or ".join(job.reference for job in found)
        raise AmbiguousJobError(f"{len(found)} jobs in the namespace {namespace} are named {name}: write {choices}.")
    raise NoSuchJobError(await _explained(client, reference, namespace=namespace))


async def _search(kinds: Iterable[type[DLJob]], look: Callable[[type[DLJob]], Awaitable[list[JobHandle]]]) -> Search:
    """Look at each kind at once."""

    async def looked(kind: type[DLJob]) -> list[JobHandle] | KubeError:
        try:
            return await look(kind)
        except KubeError as error:
            return error

    chosen = list(kinds)
    answers = dict(zip(chosen, await asyncio.gather(*map(looked, chosen)), strict=True))
    forbidden = {kind: error for kind, error in answers.items() if isinstance(error, ForbiddenError)}
    _raise_unless_harmless(list(answers.values()), is_any_readable=any(map(_was_read, answers.values())))
    return Search(
        jobs=tuple(job for answer in answers.values() if isinstance(answer, list) for job in answer),
        unreadable=tuple(kind.job_type.resource.qualified_name for kind in forbidden),
        served=tuple(kind for kind, answer in answers.items() if isinstance(answer, list)),
    )


def _was_read(answer: list[JobHandle] | KubeError) -> bool:
    """Whether a kind could be read, if only to find that it has no such job. A kind that is not served has no name to tell."""
    return isinstance(answer, list) or (isinstance(answer, NotFoundError) and bool(answer.details.get("name")))


def _raise_unless_harmless(answers: list[list[JobHandle] | KubeError], *, is_any_readable: bool) -> None:
    for answer in answers:
        harmless = (NotFoundError, ForbiddenError) if is_any_readable else NotFoundError
        if isinstance(answer, KubeError) and not isinstance(answer, harmless):
            raise answer


def unknown_kinds(kinds: Iterable[type[DLJob]]) -> str:
    """What is said where the cluster has none of the definitions."""
    known = ", ".join(kind.job_type.resource.qualified_name for kind in kinds)
    return f"the cluster does not know {known}; `dlop install` brings the definitions."


# --- why there is none ---------------------------------------------------------------------------------------------------


async def _explained(client: Client, reference: Reference, *, namespace: str) -> str:
    here = await list_jobs(client, reference.kinds, namespace=namespace)
    if not here.served and not here.unreadable:
        return unknown_kinds(reference.kinds)
    missing = f"there is no job {reference.name} in the namespace {namespace}"
    elsewhere = await _other_namespaces(client, reference)
    if elsewhere:
        return f"{missing}, but there is one in {' and '.join(elsewhere)}: add -n {elsewhere[0]}."
    unreadable = f" You may not read {', '.join(here.unreadable)} there." if here.unreadable else ""
    return f"{missing}. {_choices([job.name for job in here.jobs], near=reference.name or '')}{unreadable}"


async def _other_namespaces(client: Client, reference: Reference) -> list[str]:
    try:
        found = await list_jobs(client, reference.kinds, namespace=None, name=reference.name)
    except ForbiddenError:
        return []
    return sorted({job.namespace for job in found.jobs})


def _choices(names: list[str], *, near: str) -> str:
    if not names:
        return "It has no jobs at all."
    guesses = difflib.get_close_matches(near, names, n=1)
    if guesses:
        return f"Did you mean {guesses[0]}?"
    shown, more = sorted(names)[:_MOST_CHOICES], len(names) - _MOST_CHOICES
    return f"It has {', '.join(shown)}{f' and {more} more' if more > 0 else ''}."


_read = reader(CustomObject)


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job, and what its kind knows of it."""

    kind: type[DLJob]
    stored: CustomObject

    @classmethod
    def read(cls, kind: type[DLJob], data: Buffer) -> JobHandle:
        """The job that the server has sent."""
        return cls(kind, _read(data))

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the custom resource."""
        return self.stored.metadata

    @property
    def name(self) -> str:
        """Its name."""
        return self.stored.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.stored.metadata.namespace

    @property
    def uid(self) -> str:
        """What tells it from other jobs that had its name."""
        return self.stored.metadata.uid

    @property
    def resource(self) -> Resource:
        """Where it lives in the API."""
        return self.kind.job_type.resource

    @property
    def reference(self) -> str:
        """`plural.group/name`: what fits this job and no other one of its namespace."""
        return f"{self.resource.qualified_name}/{self.name}"

    def job(self) -> DLJob:
        """The job, as its kind reads it."""
        return self.kind(self.stored)

    def record(self) -> Record:
        """What the operator has noted about it; empty before it has."""
        return record_in(self.job().stored_status) or Record()

    def phase(self) -> Phase | None:
        """Where it stands; None when no operator has looked at it."""
        record = self.record()
        return Phase(record.phase) if record.phase in list(Phase) else self.job().phase_in(self.job().stored_status)

    def __str__(self) -> str:
        return f"{self.kind.job_type.kind} {self.name}"
