"""Validate all manifests of a session before anything is created.

Each object, and the pods and services of each job, are created with a dry run on the local API server. Errors in a pod are reported
at the template in the manifest. Likely typos are reported too, because some legacy kinds accept unknown fields, and a field such as
`replica: 3` would have no effect.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import yaml

from dlop.api.crd import build_crd
from dlop.api.spec import SpecError
from dlop.frameworks.registry import Registry
from dlop.job import DLJob
from dlop.jobs.manifest_files import Document
from dlop.jobs.render import RenderError, parse_job
from dlop.jobs.submit import validate_document
from dlop.kube.client import Client
from dlop.kube.errors import BadRequestError, StatusError
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.local.options import NodeOptions
from dlop.local.status_errors import PathError, parse_status_error

_MAX_DRY_RUNS = 20

FindResource = Callable[[str, str], Resource | None]
"""The resource of an API version and kind; None if it is not served."""


async def validate_documents(
    documents: Sequence[Document], *, client: Client, registry: Registry, find: FindResource, namespace: str
) -> list[str]:
    """All errors, one line per field: file and line, path, and message."""
    errors: dict[tuple[str, ...], str] = {}
    for document in documents:
        async for line in _validate(document, client=client, registry=registry, find=find, namespace=namespace):
            # Several checks may report the same field. Keep the first error.
            errors.setdefault(tuple(line.split(": ")[:2]), line)
    return sorted((*errors.values(), *_duplicate_objects(documents, namespace=namespace)), key=_location_of)


def _framework_hint(api_version: str) -> str:
    # The groups of Kubernetes end with .k8s.io or have no dot.
    is_custom = "." in api_version and not api_version.partition("/")[0].endswith(".k8s.io")
    return "; use --framework MODULE:CLASS to add a kind" if is_custom else ""


def _location_of(line: str) -> tuple[str, int]:
    """File and line number of an error."""
    name, _, number = line.partition(": ")[0].rpartition(":")
    return name, int(number)


async def _validate(document: Document, *, client: Client, registry: Registry, find: FindResource, namespace: str) -> AsyncIterator[str]:
    for line_number, path in _duplicate_keys(document.node, ""):
        yield f"{document.name}:{line_number}: {path}: is duplicated"
    static_errors = list(validate_document(document, registry))
    body = document.content
    has_kind = isinstance(body, dict) and all(isinstance(body.get(name), str) and body[name] for name in ("apiVersion", "kind"))
    resource = find(body["apiVersion"], body["kind"]) if has_kind else None
    if resource is not None:
        for line in await _validate_object(document, client, resource, namespace=namespace):
            yield line
    elif has_kind and not static_errors:
        yield f"{document.location('kind')}: kind: {body['apiVersion']} {body['kind']} is not served{_framework_hint(body['apiVersion'])}"
    for line in static_errors:
        yield line
    if resource is not None and (kind := registry.find(body["apiVersion"], body["kind"])):
        for path, message in find_typos(body.get("spec"), _schema(kind), "spec"):
            yield _line(document, path, message)
        for line in await _validate_children(document, client, registry, namespace=namespace):
            yield line


async def _validate_object(document: Document, client: Client, resource: Resource, *, namespace: str) -> list[str]:
    try:
        return [_line(document, *error) for error in await _dry_run_errors(client, resource, document.content, namespace=namespace)]
    except (TypeError, ValueError, RecursionError) as error:
        return [f"{document.location()}: cannot be encoded as JSON: {error or type(error).__name__}"]


def _schema(kind: type[DLJob]) -> JsonObject:
    """The schema of the spec. It is the same in all versions."""
    crd = build_crd(kind)
    version, *_ = crd["spec"]["versions"]
    spec_schema: JsonObject = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec_schema


def _line(document: Document, path: str, message: str) -> str:
    return f"{document.location(path)}: {path}: {message}" if path else f"{document.location()}: {message}"


async def _dry_run_errors(client: Client, resource: Resource, body: JsonObject, *, namespace: str) -> list[PathError]:
    """The field errors of an object.

    The server stops at the first fields that it cannot decode or does not know. They are removed, and the rest is validated again.
    """
    errors: list[PathError] = []
    for _ in range(_MAX_DRY_RUNS):
        error = await _dry_run_error(client, resource, body, namespace=namespace)
        if error is None:
            break
        new_errors = parse_status_error(error, body)
        # Do not report removed fields as missing.
        errors += [each for each in new_errors if not any(is_within(path, each[0]) for path, _ in errors)]
        rest = without(body, [path for path, _ in new_errors])
        if not isinstance(error, BadRequestError) or rest == body:
            break
        body = rest
    return errors


async def _dry_run_error(client: Client, resource: Resource, body: JsonObject, *, namespace: str) -> StatusError | None:
    try:
        await _dry_run(client, resource, body, namespace=namespace)
    except StatusError as error:
        return error
    return None


async def _dry_run(client: Client, resource: Resource, body: JsonObject, *, namespace: str) -> None:
    metadata = body.get("metadata")
    object_namespace = (metadata.get("namespace") if isinstance(metadata, dict) else None) or namespace
    await client.create(
        resource,
        body,
        namespace=str(object_namespace) if resource.namespaced else None,
        dry_run=True,
        field_validation="Strict",
    )


# --- children of a job ---------------------------------------------------------------------------------------------------


async def _validate_children(document: Document, client: Client, registry: Registry, *, namespace: str) -> list[str]:
    lines: list[str] = []
    for prefix, resource, body in _rendered_children(document.content, registry, namespace=namespace):
        for path, message in await _dry_run_errors(client, resource, body, namespace=namespace):
            # The name is derived from the job's. Everything else comes from the template.
            job_path = path if not path or path == "metadata.name" else f"{prefix}.{path}"
            lines.append(_line(document, job_path, message))
    return lines


def _rendered_children(body: JsonObject, registry: Registry, *, namespace: str) -> Iterator[tuple[str, Resource, JsonObject]]:
    """The first pod and service of each role, with the path of their template."""
    try:
        job = parse_job(_with_name(body), registry, namespace=namespace, options=NodeOptions().operator_options)
        replicas = [replica for replica in job.all_replicas() if replica.index == 0]
    except (RenderError, SpecError):
        yield from ((path, PODS, pod) for path, pod in _templates(body.get("spec"), "spec"))
        return
    for replica in replicas:
        prefix = job.schema.template_path(job.spec_field, replica.role)
        if (service := replica.service()) is not None:
            yield prefix, SERVICES, service
        yield prefix, PODS, replica.pod()


def _templates(value: Any, path: str) -> Iterator[tuple[str, JsonObject]]:
    """Pods of all templates in an invalid spec."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _templates(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            if name == "template" and isinstance(item, dict) and isinstance(item.get("spec"), dict):
                # The kind validates the restartPolicy.
                spec = {field: part for field, part in item["spec"].items() if field != "restartPolicy"}
                yield f"{path}.template", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "validation"}, "spec": spec}
            else:
                yield from _templates(item, f"{path}.{name}")


def _with_name(body: JsonObject) -> JsonObject:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name"):
        return body
    return {**body, "metadata": {**metadata, "name": f"{metadata.get('generateName', '')}xxxxx"}}


# --- static checks -------------------------------------------------------------------------------------------------------


def _duplicate_keys(node: yaml.Node, path: str, ancestors: frozenset[int] = frozenset()) -> Iterator[tuple[int, str]]:
    """Line and path of duplicate keys. YAML parsers silently keep only one of them."""
    if id(node) in ancestors:
        return
    ancestors |= {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicate_keys(item, f"{path}[{index}]", ancestors)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            key_path = f"{path}.{name}" if path else name
            if name in seen:
                yield key.start_mark.line + 1, key_path
            seen.add(name)
            yield from _duplicate_keys(value, key_path, ancestors)


def _duplicate_objects(documents: Sequence[Document], *, namespace: str) -> Iterator[str]:
    """Objects that occur more than once."""
    locations: dict[tuple[Any, ...], str] = {}
    for document in documents:
        body = document.content
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            continue
        kind, name, object_namespace = str(body.get("kind")), metadata["name"], str(metadata.get("namespace") or namespace)
        key = (str(body.get("apiVersion")), kind, object_namespace, name)
        if key in locations:
            yield f"{document.location('metadata.name')}: metadata.name: {kind} {name} is already defined at {locations[key]}"
        else:
            locations[key] = document.location()


_SIMILARITY = 0.8
# Pod templates are validated strictly by the dry run of their pods.
_TEMPLATE = "template"


def find_typos(value: Any, schema: JsonObject, path: str) -> Iterator[tuple[str, str]]:
    """Unknown fields with a name similar to a field of the schema."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_typos(item, schema.get("items") or {}, f"{path}[{index}]")
    elif isinstance(value, dict):
        known: JsonObject = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        for name, item in value.items():
            if name in known:
                yield from find_typos(item, {} if name == _TEMPLATE else known[name], f"{path}.{name}")
            elif isinstance(additional, dict):
                yield from find_typos(item, additional, f"{path}.{name}")
            elif similar := difflib.get_close_matches(str(name), known, n=1, cutoff=_SIMILARITY):
                yield f"{path}.{name}", f"unknown field; did you mean {similar[0]}?"


# `a.b`, `a[0]`, and `limits[nvidia.com/gpu]` for names with dots.
_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def without(body: JsonObject, paths: Iterable[str]) -> JsonObject:
    """A copy without the fields at these paths.

    For a path into a list, the whole list is removed, because the indexes of the remaining items would change.
    """
    rest = copy.deepcopy(body)
    for path in paths:
        _remove(rest, _steps(path))
    return rest


def is_within(path: str, parent: str) -> bool:
    """Whether a path is equal to `parent` or below it."""
    return _steps(path)[: len(_steps(parent))] == _steps(parent)


def _steps(path: str) -> list[str]:
    return [index or name for index, name in _STEP.findall(path)]


def _remove(body: JsonObject, steps: list[str]) -> None:
    """Remove the last field on the path that is not a list item."""
    value: Any = body
    last: tuple[JsonObject, str] | None = None
    for step in steps:
        if isinstance(value, dict) and step in value:
            last, value = (value, step), value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            # The path does not exist, so there is nothing to remove.
            return
    if last is not None:
        del last[0][last[1]]
