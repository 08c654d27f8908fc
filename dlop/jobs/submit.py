"""Brings manifests into the cluster: jobs, and whatever else stands in the same files.

All mistakes that can be seen without the server are told before anything is created. The server judges strictly: a field
that the kind does not have is a mistake, and not dropped without a word. Every mistake has its file and line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dlop.api.spec import SpecError
from dlop.frameworks.registry import Registry
from dlop.job import DLJob
from dlop.jobs.errors import NotCreatedError, SubmitError
from dlop.jobs.lookup import JobHandle
from dlop.jobs.manifest_files import Document
from dlop.jobs.render import RenderError, job_of
from dlop.kube.client import Client
from dlop.kube.errors import AlreadyExistsError, BadRequestError, InvalidError, NotFoundError, StatusError
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

_UNKNOWN_FIELD = re.compile(r'(unknown|duplicate) field "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Created:
    """One object that was made."""

    title: str
    """`MXJob demo`."""
    namespace: str
    job: JobHandle | None
    """None for what is no job."""


async def submit(
    client: Client,
    documents: Sequence[Document],
    registry: Registry,
    *,
    namespace: str,
    only_namespace: str | None = None,
    tell: Callable[[Created], None] = lambda _: None,
) -> list[Created]:
    """Create what the documents describe, in their order, and `tell` of each as it is made.

    What names no namespace goes into `namespace`. With `only_namespace`, what names another one is a mistake.

    Raises:
        SubmitError: something is wrong with them. What the server finds, it finds one by one: those before are there.
        NotCreatedError: the cluster will not have one; those before are there.
        KubeError: the server cannot be reached.
    """
    mistakes = [line for document in documents for line in mistakes_in(document, registry, only_namespace=only_namespace)]
    if mistakes:
        raise SubmitError("\n  ".join(mistakes))
    made: list[Created] = []
    for document in documents:
        made.append(await _create(client, document, registry, namespace=namespace))
        tell(made[-1])
    return made


def mistakes_in(document: Document, registry: Registry, *, only_namespace: str | None = None) -> Iterator[str]:
    """What is wrong with a manifest, as far as it can be seen without a server: a line each."""
    body = document.content
    if not isinstance(body, dict):
        yield f"{document.place()}: a manifest must be an object with apiVersion, kind and metadata."
        return
    missing = [name for name in ("apiVersion", "kind") if not isinstance(body.get(name), str) or not body[name]]
    yield from (f"{document.place(name)}: {name}: is missing." for name in missing)
    metadata = body.get("metadata")
    given = metadata.get("namespace") if isinstance(metadata, dict) else None
    if only_namespace is not None and given not in (None, only_namespace):
        place = document.place("metadata.namespace")
        yield f"{place}: metadata.namespace: is {given}, but the command names {only_namespace}; leave one of them out."
    kind = None if missing else registry.find(body["apiVersion"], body["kind"])
    if kind is not None:
        yield from _mistakes_of_job(document, registry)
    elif not missing:
        yield from _mistakes_of_other(document, registry)


def _mistakes_of_job(document: Document, registry: Registry) -> Iterator[str]:
    body = document.content
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and metadata.get("generateName") and not metadata.get("name"):
        body = {**body, "metadata": {**metadata, "name": f"{metadata['generateName']}xxxxx"}}
    try:
        job_of(body, registry).spec  # noqa: B018 - asked only whether it makes sense
    except RenderError as error:
        path = str(error).partition(":")[0]
        yield f"{document.place(path)}: {error}"
    except SpecError as error:
        yield from (f"{document.place(problem.path)}: {problem}." for problem in error.problems)


def _mistakes_of_other(document: Document, registry: Registry) -> Iterator[str]:
    """A kind that dlop does not know may be any other; one that is called like a job is most likely a slip."""
    body = document.content
    namesakes = [kind.job_type for kind in registry if kind.job_type.kind.lower() == body["kind"].lower()]
    if namesakes:
        known = " or ".join(map(str, namesakes))
        yield f"{document.place('apiVersion')}: {body['apiVersion']} {body['kind']} is not a kind that dlop knows; did you mean {known}?"
    elif not isinstance(body.get("metadata"), dict) or not (body["metadata"].get("name") or body["metadata"].get("generateName")):
        yield f"{document.place('metadata')}: metadata.name: is missing."


async def _create(client: Client, document: Document, registry: Registry, *, namespace: str) -> Created:
    body: JsonObject = document.content
    kind = registry.find(body["apiVersion"], body["kind"])
    resource = kind.job_type.resource if kind is not None else await _served(client, document)
    where = (body["metadata"].get("namespace") or namespace) if resource.namespaced else None
    try:
        made = await client.create(resource, body, namespace=where, field_validation="Strict")
    except AlreadyExistsError as error:
        raise NotCreatedError(_exists_already(document, kind, where)) from error
    except NotFoundError as error:
        raise NotCreatedError(_unknown(document, kind, error)) from error
    except (BadRequestError, InvalidError) as error:
        raise SubmitError("\n  ".join(refusals(document, error))) from error
    except StatusError as error:
        raise NotCreatedError(f"{document.place()}: {error}") from error
    job = None if kind is None else JobHandle.read(kind, msgspec.json.encode(made))
    return Created(f"{body['kind']} {made['metadata']['name']}", where or "", job)


async def _served(client: Client, document: Document) -> Resource:
    """Where objects of some other kind live, as the server tells."""
    body = document.content
    group, slash, version = body["apiVersion"].rpartition("/")
    try:
        answer = await client.call("GET", f"/apis/{group}/{version}" if slash else f"/api/{version}")
        served: list[Any] = msgspec.json.decode(answer.body).get("resources") or []
    except NotFoundError:
        served = []
    for each in served:
        if each.get("kind") == body["kind"] and "/" not in each["name"]:
            return Resource(group, version, each["name"], body["kind"], namespaced=each["namespaced"])
    raise SubmitError(f"{document.place('kind')}: the cluster does not know {body['apiVersion']} {body['kind']}.")


def _exists_already(document: Document, kind: type[DLJob] | None, namespace: str | None) -> str:
    body = document.content
    name = body["metadata"].get("name")
    place = f" in the namespace {namespace}" if namespace else ""
    way_out = f"`dlop delete {name}` makes room, or give this one another name" if kind is not None else "delete it, or leave it out here"
    return f"{document.place('metadata.name')}: there is a {body['kind']} {name}{place} already; {way_out}."


def _unknown(document: Document, kind: type[DLJob] | None, error: NotFoundError) -> str:
    """A namespace that is not there is named by the server; else it does not serve the kind."""
    if error.details.get("kind") == "namespaces" or kind is None:
        return f"{document.place('metadata')}: {error}."
    return f"{document.place('kind')}: the cluster does not know {kind.job_type}; `dlop install` brings the definition."


def refusals(document: Document, error: StatusError) -> Iterable[str]:
    """What the server has against a manifest: a line for each mistake."""
    found = [f"{document.place(path)}: {path}: {message}" for path, message in complaints(error)]
    return found or [f"{document.place()}: {error}"]


def complaints(error: StatusError) -> list[tuple[str, str]]:
    """The paths that the server complains about, and what it says of each; empty when it names none."""
    found = [(path, _words(problem)) for problem, path in _UNKNOWN_FIELD.findall(str(error))]
    found += [(cause.get("field", ""), cause.get("message", "")) for cause in error.causes]
    return list(dict.fromkeys((path, message) for path, message in found if path and path != "<nil>"))


def _words(problem: str) -> str:
    return "the kind has no such field; is it misspelt, or in the wrong place?" if problem == "unknown" else "stands there twice"
