"""Finds all mistakes of manifests at once, before anything is created: what cannot run is told now, and not by a pod that never comes.

Besides what the manifest itself shows, the laptop's own API server is asked what it would say, about each object and about the pods
that a job would get. A mistake in a pod is told where the user wrote it, in the template.

Fields that are most likely misspelt. Pure.

Kinds of the early operators take any field, as they always have, so no API server complains about `replica: 3`. It has no effect
there, which is not what its writer had in mind.

Takes fields out of an object, so that the rest of it can be judged. Pure.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import yaml

from dlop.api.crd import definitions
from dlop.api.spec import SpecError
from dlop.frameworks.registry import Registry
from dlop.job import DLJob
from dlop.jobs.manifest_files import Document
from dlop.jobs.render import RenderError, job_of
from dlop.jobs.submit import mistakes_in
from dlop.kube.client import Client
from dlop.kube.errors import BadRequestError, StatusError
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.local.status_errors import Complaint, read_refusal

_MOST_QUESTIONS = 20

FindResource = Callable[[str, str], Resource | None]
"""Where objects of an API version and kind live; None: nowhere."""


async def all_mistakes(
    documents: Sequence[Document], *, client: Client, registry: Registry, find: FindResource, namespace: str
) -> list[str]:
    """What is wrong with manifests, a line for each field: its file and line, its path, and what to write instead."""
    found: dict[tuple[str, ...], str] = {}
    for document in documents:
        async for line in _mistakes(document, client=client, registry=registry, find=find, namespace=namespace):
            # Several may complain about the same field; the first one is enough.
            found.setdefault(tuple(line.split(": ")[:2]), line)
    return sorted((*found.values(), *_same_again(documents, namespace=namespace)), key=_place)


def _way_out(api_version: str) -> str:
    """Kinds of Kubernetes have a group of its own, or none."""
    is_own = "." in api_version and not api_version.partition("/")[0].endswith(".k8s.io")
    return "; --framework MODULE:CLASS brings a kind of your own" if is_own else ""


def _place(line: str) -> tuple[str, int]:
    """The file and the line that a mistake is in."""
    name, _, number = line.partition(": ")[0].rpartition(":")
    return name, int(number)


async def _mistakes(document: Document, *, client: Client, registry: Registry, find: FindResource, namespace: str) -> AsyncIterator[str]:
    for number, path in _written_twice(document.node, ""):
        yield f"{document.name}:{number}: {path}: stands there twice"
    own = list(mistakes_in(document, registry))
    body = document.content
    is_readable = isinstance(body, dict) and all(isinstance(body.get(name), str) and body[name] for name in ("apiVersion", "kind"))
    resource = find(body["apiVersion"], body["kind"]) if is_readable else None
    if resource is not None:
        for line in await _refused(document, client, resource, namespace=namespace):
            yield line
    elif is_readable and not own:
        yield f"{document.place('kind')}: kind: there is no {body['apiVersion']} {body['kind']} here{_way_out(body['apiVersion'])}"
    for line in own:
        yield line
    if resource is not None and (kind := registry.find(body["apiVersion"], body["kind"])):
        for path, message in misspelt(body.get("spec"), _schema(kind), "spec"):
            yield _line(document, path, message)
        for line in await _refused_pods(document, client, registry, namespace=namespace):
            yield line


async def _refused(document: Document, client: Client, resource: Resource, *, namespace: str) -> list[str]:
    """What the server says about an object."""
    try:
        return [_line(document, *each) for each in await _judged(client, resource, document.content, namespace=namespace)]
    except (TypeError, ValueError, RecursionError) as error:
        return [f"{document.place()}: this cannot be said in JSON: {error or type(error).__name__}"]


def _schema(kind: type[DLJob]) -> JsonObject:
    """What a spec of a kind looks like."""
    (definition,) = definitions([kind])
    (version,) = definition["spec"]["versions"]
    found: JsonObject = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def _line(document: Document, path: str, message: str) -> str:
    return f"{document.place(path)}: {path}: {message}" if path else f"{document.place()}: {message}"


async def _judged(client: Client, resource: Resource, body: JsonObject, *, namespace: str) -> list[Complaint]:
    """Paths and what is wrong with them.

    A server that meets a field which it cannot read, or does not know, looks no further. So what it complains about is taken
    out, and it is asked about the rest.
    """
    found: list[Complaint] = []
    for _ in range(_MOST_QUESTIONS):
        error = await _refusal(client, resource, body, namespace=namespace)
        if error is None:
            break
        told = read_refusal(error, body)
        # That something is missing which was taken out is no news.
        found += [each for each in told if not any(is_within(path, each[0]) for path, _ in found)]
        rest = without(body, [path for path, _ in told])
        if not isinstance(error, BadRequestError) or rest == body:
            break
        body = rest
    return found


async def _refusal(client: Client, resource: Resource, body: JsonObject, *, namespace: str) -> StatusError | None:
    try:
        await _try(client, resource, body, namespace=namespace)
    except StatusError as error:
        return error
    return None


async def _try(client: Client, resource: Resource, body: JsonObject, *, namespace: str) -> None:
    metadata = body.get("metadata")
    where = (metadata.get("namespace") if isinstance(metadata, dict) else None) or namespace
    await client.create(
        resource,
        body,
        namespace=str(where) if resource.namespaced else None,
        dry_run=True,
        field_validation="Strict",
    )


# --- what a job would become ---------------------------------------------------------------------------------------------


async def _refused_pods(document: Document, client: Client, registry: Registry, *, namespace: str) -> list[str]:
    found: list[str] = []
    for prefix, resource, body in _children(document.content, registry, namespace=namespace):
        for path, message in await _judged(client, resource, body, namespace=namespace):
            # A name is made of the job's; everything else stands in the template.
            place = path if not path or path == "metadata.name" else f"{prefix}.{path}"
            found.append(_line(document, place, message))
    return found


def _children(body: JsonObject, registry: Registry, *, namespace: str) -> Iterator[tuple[str, Resource, JsonObject]]:
    """Of each role the first pod and service, with the path of the template that they are made of."""
    try:
        job = job_of(_named(body), registry, namespace=namespace)
        replicas = [replica for replica in job.all_replicas() if replica.index == 0]
    except (RenderError, SpecError):
        yield from ((path, PODS, pod) for path, pod in _templates(body.get("spec"), "spec"))
        return
    for replica in replicas:
        prefix = _template_path(job, replica.role)
        if (service := job.make_service(replica.spec, replica.index)) is not None:
            yield prefix, SERVICES, service
        yield prefix, PODS, job.make_pod(replica.spec, replica.index, attempt=0)


def _templates(value: Any, path: str) -> Iterator[tuple[str, JsonObject]]:
    """Pods of the templates in a spec that makes no sense as a whole."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _templates(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            if name == "template" and isinstance(item, dict) and isinstance(item.get("spec"), dict):
                # What stands there about restarts is for the kind to judge.
                spec = {field: part for field, part in item["spec"].items() if field != "restartPolicy"}
                yield f"{path}.template", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, "spec": spec}
            else:
                yield from _templates(item, f"{path}.{name}")


def _named(body: JsonObject) -> JsonObject:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name"):
        return body
    return {**body, "metadata": {**metadata, "name": f"{metadata.get('generateName', '')}xxxxx"}}


def _template_path(job: DLJob, role: str) -> str:
    steps = (job.replicas_path(role) or ())[:-1]
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps) + ".template"


# --- what can be seen in the files alone ---------------------------------------------------------------------------------


def _written_twice(node: yaml.Node, path: str, around: frozenset[int] = frozenset()) -> Iterator[tuple[int, str]]:
    """Fields that an object has more than once: readers of YAML drop all but one without a word."""
    if id(node) in around:
        return
    around |= {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _written_twice(item, f"{path}[{index}]", around)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            place = f"{path}.{name}" if path else name
            if name in seen:
                yield key.start_mark.line + 1, place
            seen.add(name)
            yield from _written_twice(value, place, around)


def _same_again(documents: Sequence[Document], *, namespace: str) -> Iterator[str]:
    """Objects that stand in the files more than once."""
    places: dict[tuple[Any, ...], str] = {}
    for document in documents:
        body = document.content
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            continue
        kind, name, where = str(body.get("kind")), metadata["name"], str(metadata.get("namespace") or namespace)
        key = (str(body.get("apiVersion")), kind, where, name)
        if key in places:
            yield f"{document.place('metadata.name')}: metadata.name: the {kind} {name} stands at {places[key]} already"
        else:
            places[key] = document.place()


_CLOSE_ENOUGH = 0.8
# The API server's own kind, and strict about its fields where pods are made of it.
_TEMPLATE = "template"


def misspelt(value: Any, schema: JsonObject, path: str) -> Iterator[tuple[str, str]]:
    """Paths of fields that a schema does not have but nearly has, and what is meant, most likely."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from misspelt(item, schema.get("items") or {}, f"{path}[{index}]")
    elif isinstance(value, dict):
        known: JsonObject = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for name, item in value.items():
            if name in known:
                yield from misspelt(item, {} if name == _TEMPLATE else known[name], f"{path}.{name}")
            elif isinstance(others, dict):
                yield from misspelt(item, others, f"{path}.{name}")
            elif near := difflib.get_close_matches(str(name), known, n=1, cutoff=_CLOSE_ENOUGH):
                yield f"{path}.{name}", f"the kind has no such field; did you mean {near[0]}?"


# `a.b`, `a[0]`, and for names with dots `limits[nvidia.com/gpu]`.
_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def without(body: JsonObject, paths: Iterable[str]) -> JsonObject:
    """A copy of an object without what stands at these paths.

    Of a list that has something wrong in it nothing stays: what comes after would have other indexes.
    """
    rest = copy.deepcopy(body)
    for path in paths:
        _remove(rest, _steps(path))
    return rest


def is_within(path: str, whole: str) -> bool:
    """Whether a path is that of a whole, or of a part of it."""
    return _steps(path)[: len(_steps(whole))] == _steps(whole)


def _steps(path: str) -> list[str]:
    return [index or name for index, name in _STEP.findall(path)]


def _remove(body: JsonObject, steps: list[str]) -> None:
    """The last field on the way that is not an item of a list goes."""
    value: Any = body
    last: tuple[JsonObject, str] | None = None
    for step in steps:
        if isinstance(value, dict) and step in value:
            last, value = (value, step), value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            # It is not there as a whole: nothing above it is wrong for that.
            return
    if last is not None:
        del last[0][last[1]]
