"""Create the jobs and other objects of manifest files.

All files are validated before the first object is created. The server validates fields strictly, so that an unknown field is an
error. Every error has its file and line.
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
from dlop.jobs.errors import CreateFailedError, InvalidManifestError
from dlop.jobs.lookup import JobHandle
from dlop.jobs.manifest_files import Document
from dlop.jobs.render import RenderError, parse_job
from dlop.kube.client import Client
from dlop.kube.errors import AlreadyExistsError, BadRequestError, InvalidError, NotFoundError, StatusError
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

_UNKNOWN_FIELD = re.compile(r'(unknown|duplicate) field "([^"]+)"')


@dataclass(frozen=True, slots=True)
class CreatedObject:
    title: str
    """`MXJob demo`."""
    namespace: str
    job: JobHandle | None
    """None if the object is not a job."""


async def submit(
    client: Client,
    documents: Sequence[Document],
    registry: Registry,
    *,
    namespace: str,
    only_namespace: str | None = None,
    on_created: Callable[[CreatedObject], None] = lambda _: None,
) -> list[CreatedObject]:
    """Create the objects in order. `on_created` is called after each.

    `namespace` is the default namespace. With `only_namespace`, a document with another namespace is an error.

    Raises:
        InvalidManifestError: a manifest is invalid. If the server found the error, the objects before it exist.
        CreateFailedError: the cluster rejected an object; the objects before it exist.
        KubeError: the server cannot be reached.
    """
    errors = [line for document in documents for line in validate_document(document, registry, only_namespace=only_namespace)]
    if errors:
        raise InvalidManifestError("\n  ".join(errors))
    created: list[CreatedObject] = []
    for document in documents:
        created.append(await _create(client, document, registry, namespace=namespace))
        on_created(created[-1])
    return created


def validate_document(document: Document, registry: Registry, *, only_namespace: str | None = None) -> Iterator[str]:
    """The errors that can be found without a server, one line each."""
    body = document.content
    if not isinstance(body, dict):
        yield f"{document.location()}: a manifest must be an object with apiVersion, kind and metadata."
        return
    missing = [name for name in ("apiVersion", "kind") if not isinstance(body.get(name), str) or not body[name]]
    yield from (f"{document.location(name)}: {name}: is required." for name in missing)
    metadata = body.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    if only_namespace is not None and namespace not in (None, only_namespace):
        location = document.location("metadata.namespace")
        yield f"{location}: metadata.namespace: is {namespace}, but the flag --namespace is {only_namespace}; remove one of them."
    kind = None if missing else registry.find(body["apiVersion"], body["kind"])
    if kind is not None:
        yield from _validate_job(document, registry)
    elif not missing:
        yield from _validate_other(document, registry)


def _validate_job(document: Document, registry: Registry) -> Iterator[str]:
    body = document.content
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and metadata.get("generateName") and not metadata.get("name"):
        body = {**body, "metadata": {**metadata, "name": f"{metadata['generateName']}xxxxx"}}
    try:
        parse_job(body, registry).spec  # noqa: B018 - parsed only to validate it
    except RenderError as error:
        path = str(error).partition(":")[0]
        yield f"{document.location(path)}: {error}"
    except SpecError as error:
        yield from (f"{document.location(problem.path)}: {problem}." for problem in error.problems)


def _validate_other(document: Document, registry: Registry) -> Iterator[str]:
    """Other kinds are allowed. An unknown version of a job kind is most likely a typo."""
    body = document.content
    namesakes = [kind.job_type for kind in registry if kind.job_type.kind.lower() == body["kind"].lower()]
    if namesakes:
        known = " or ".join(map(str, namesakes))
        yield f"{document.location('apiVersion')}: {body['apiVersion']} {body['kind']} is not supported; did you mean {known}?"
    elif not isinstance(body.get("metadata"), dict) or not (body["metadata"].get("name") or body["metadata"].get("generateName")):
        yield f"{document.location('metadata')}: metadata.name: is required."


async def _create(client: Client, document: Document, registry: Registry, *, namespace: str) -> CreatedObject:
    body: JsonObject = document.content
    kind = registry.find(body["apiVersion"], body["kind"])
    resource = kind.job_type.resource_in(body["apiVersion"]) if kind is not None else await _find_resource(client, document)
    object_namespace = (body["metadata"].get("namespace") or namespace) if resource.namespaced else None
    try:
        created = await client.create(resource, body, namespace=object_namespace, field_validation="Strict")
    except AlreadyExistsError as error:
        raise CreateFailedError(_describe_conflict(document, kind, object_namespace)) from error
    except NotFoundError as error:
        raise CreateFailedError(_describe_not_found(document, kind, error)) from error
    except (BadRequestError, InvalidError) as error:
        raise InvalidManifestError("\n  ".join(format_status_error(document, error))) from error
    except StatusError as error:
        raise CreateFailedError(f"{document.location()}: {error}") from error
    job = None if kind is None else JobHandle.decode(kind, msgspec.json.encode(created))
    return CreatedObject(f"{body['kind']} {created['metadata']['name']}", object_namespace or "", job)


async def _find_resource(client: Client, document: Document) -> Resource:
    """The resource of a kind that is not a job, found by API discovery."""
    body = document.content
    group, slash, version = body["apiVersion"].rpartition("/")
    try:
        response = await client.call("GET", f"/apis/{group}/{version}" if slash else f"/api/{version}")
        resources: list[Any] = msgspec.json.decode(response.body).get("resources") or []
    except NotFoundError:
        resources = []
    for resource in resources:
        if resource.get("kind") == body["kind"] and "/" not in resource["name"]:
            return Resource(group, version, resource["name"], body["kind"], namespaced=resource["namespaced"])
    raise InvalidManifestError(f"{document.location('kind')}: the cluster does not serve {body['apiVersion']} {body['kind']}.")


def _describe_conflict(document: Document, kind: type[DLJob] | None, namespace: str | None) -> str:
    body = document.content
    name = body["metadata"].get("name")
    where = f" in the namespace {namespace}" if namespace else ""
    hint = f"delete it (`dlop delete {name}`) or choose another name" if kind is not None else "delete it or remove it from the file"
    return f"{document.location('metadata.name')}: {body['kind']} {name} already exists{where}; {hint}."


def _describe_not_found(document: Document, kind: type[DLJob] | None, error: NotFoundError) -> str:
    # The server names a missing namespace. Otherwise it does not serve the kind.
    if error.details.get("kind") == "namespaces" or kind is None:
        return f"{document.location('metadata')}: {error}."
    return f"{document.location('kind')}: the cluster does not serve {kind.job_type}; `dlop install` installs the CRD."


def format_status_error(document: Document, error: StatusError) -> Iterable[str]:
    """The errors of the server about a manifest, one line each."""
    lines = [f"{document.location(path)}: {path}: {message}" for path, message in field_errors(error)]
    return lines or [f"{document.location()}: {error}"]


def field_errors(error: StatusError) -> list[tuple[str, str]]:
    """Pairs of field path and message; empty if the server names no field."""
    errors = [(path, _describe_field_error(problem)) for problem, path in _UNKNOWN_FIELD.findall(str(error))]
    errors += [(cause.get("field", ""), cause.get("message", "")) for cause in error.causes]
    return list(dict.fromkeys((path, message) for path, message in errors if path and path != "<nil>"))


def _describe_field_error(problem: str) -> str:
    return "unknown field; check the spelling and the nesting" if problem == "unknown" else "is duplicated"
