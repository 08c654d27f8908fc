"""Render the pods, services and other children of a job from its manifest, without a cluster.

The uid and the suffix of a generated name come from the API server, and the ports of the host network from the operator. Rendered
objects have placeholders for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from dlop.api.cron import CRONS, read_cron_spec
from dlop.api.record import AssignedPorts, Record
from dlop.api.spec import SpecError
from dlop.api.types import Options
from dlop.frameworks.registry import Registry, RegistryError
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.types import JsonObject
from dlop.policies.tensorboard import tensorboard_pod

PLACEHOLDER_UID = "00000000-0000-0000-0000-000000000000"
PLACEHOLDER_SUFFIX = "xxxxx"
PLACEHOLDER_PORT = 36000
"""The first port of a job in the host network, as if no other job had ports."""
# A DNS subdomain name, as the API server requires it.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME_LENGTH = 253


class RenderError(Exception):
    """A manifest cannot be rendered. The message has one line per error, with the path of the field."""


def render(manifest: Any, registry: Registry, *, namespace: str = "default", options: Options | None = None) -> list[JsonObject]:
    """The children of a job in the order of their creation.

    Raises:
        RenderError: the manifest is not a job of a known kind, or its spec is invalid.
    """
    job = parse_job(manifest, registry, namespace=namespace, options=options)
    try:
        return list(_render_children(_with_host_ports(job)))
    except SpecError as error:
        raise RenderError("\n".join(f"{job.metadata.name}: {problem}" for problem in error.problems)) from error


def parse_job(manifest: Any, registry: Registry, *, namespace: str = "default", options: Options | None = None) -> DLJob:
    """The job of a manifest, as if it had just been created.

    Raises:
        RenderError: the manifest is not a job of a known kind.
    """
    if not isinstance(manifest, dict):
        raise RenderError("a manifest must be an object with apiVersion, kind, metadata and spec.")
    try:
        kind = registry.get(str(manifest.get("apiVersion", "")), str(manifest.get("kind", "")))
    except RegistryError as error:
        raise RenderError(str(error)) from error
    spec = msgspec.Raw(msgspec.json.encode(manifest.get("spec")))
    custom_object = CustomObject(metadata=_parse_metadata(manifest.get("metadata"), namespace), spec=spec)
    return kind(custom_object, options=options)


def is_cron(manifest: Any) -> bool:
    return isinstance(manifest, dict) and (manifest.get("apiVersion"), manifest.get("kind")) == (CRONS.api_version, CRONS.kind)


def job_of_cron(manifest: JsonObject, *, namespace: str = "default") -> JsonObject:
    """A job that a Cron creates.

    Raises:
        RenderError: the spec of the Cron is invalid.
    """
    metadata = _parse_metadata(manifest.get("metadata"), namespace)
    try:
        template = read_cron_spec(manifest.get("spec"), namespace=metadata.namespace).template
    except SpecError as error:
        raise RenderError("\n".join(f"{metadata.name}: {problem}" for problem in error.problems)) from error
    name = template.name or f"{metadata.name}-{PLACEHOLDER_SUFFIX}"
    return template.manifest({"name": name, "namespace": metadata.namespace})


def _with_host_ports(job: DLJob) -> DLJob:
    count = job.spec.host_ports
    return job.with_record(Record(host_ports=AssignedPorts(PLACEHOLDER_PORT, count))) if count else job


def _parse_metadata(raw: Any, namespace: str) -> ObjectMeta:
    try:
        metadata = msgspec.convert(raw or {}, ObjectMeta)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise RenderError(f"metadata{path.rstrip('`')}: {message[:1].lower()}{message[1:]}.") from error
    if not metadata.name and isinstance(prefix := (raw or {}).get("generateName"), str) and prefix:
        metadata = msgspec.structs.replace(metadata, name=f"{prefix}{PLACEHOLDER_SUFFIX}")
    if not metadata.name:
        raise RenderError("metadata.name: is required.")
    if len(metadata.name) > _MAX_NAME_LENGTH or not _NAME.fullmatch(metadata.name):
        raise RenderError(
            f"metadata.name: must be at most {_MAX_NAME_LENGTH} lower-case letters, digits, dashes and dots, got {metadata.name!r:.60}."
        )
    return msgspec.structs.replace(metadata, namespace=metadata.namespace or namespace, uid=metadata.uid or PLACEHOLDER_UID)


def _render_children(job: DLJob) -> Iterator[JsonObject]:
    replicas = list(job.all_replicas())
    yield from (create.body for create in job.child_objects())
    yield from (service for service in (replica.service() for replica in replicas) if service is not None)
    yield from (replica.pod() for replica in replicas)
    tensorboard = tensorboard_pod(job)
    if tensorboard is not None:
        yield tensorboard.body
