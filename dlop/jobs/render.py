"""What a manifest would become: the pods, services and other objects of its jobs, without a cluster.

Names may depend on the job's uid, which only a cluster can give. Rendered objects have a uid of zeros in its place. So it is with
the end of a name that is generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from dlop.api.spec import SpecError
from dlop.api.types import Options
from dlop.frameworks.registry import Registry, RegistryError
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.types import JsonObject

NO_UID = "00000000-0000-0000-0000-000000000000"
NO_SUFFIX = "xxxxx"
# What the API server takes as the name of an object.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253


class RenderError(Exception):
    """A manifest cannot be rendered. The message has a line for each problem, with the path of the field."""


def render(manifest: Any, registry: Registry, *, namespace: str = "default", options: Options | None = None) -> list[JsonObject]:
    """The objects that a job would get, services before pods, as they are created.

    Raises:
        RenderError: the manifest is not one of a job, or its spec makes no sense.
    """
    job = job_of(manifest, registry, namespace=namespace, options=options)
    try:
        return list(_objects_of(job))
    except SpecError as error:
        raise RenderError("\n".join(f"{job.metadata.name}: {problem}" for problem in error.problems)) from error


def job_of(manifest: Any, registry: Registry, *, namespace: str = "default", options: Options | None = None) -> DLJob:
    """The job that a manifest describes, as if it had just been created.

    Raises:
        RenderError: the manifest is not one of a job.
    """
    if not isinstance(manifest, dict):
        raise RenderError("a manifest must be an object with apiVersion, kind, metadata and spec.")
    try:
        kind = registry.get(str(manifest.get("apiVersion", "")), str(manifest.get("kind", "")))
    except RegistryError as error:
        raise RenderError(str(error)) from error
    spec = msgspec.Raw(msgspec.json.encode(manifest.get("spec")))
    found = CustomObject(metadata=_metadata(manifest.get("metadata"), namespace), spec=spec)
    return kind(found, options=options)


def _metadata(given: Any, namespace: str) -> ObjectMeta:
    try:
        metadata = msgspec.convert(given or {}, ObjectMeta)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$")
        raise RenderError(f"metadata{place.rstrip('`')}: {said[:1].lower()}{said[1:]}.") from error
    if not metadata.name and isinstance(prefix := (given or {}).get("generateName"), str) and prefix:
        metadata = msgspec.structs.replace(metadata, name=f"{prefix}{NO_SUFFIX}")
    if not metadata.name:
        raise RenderError("metadata.name: is missing.")
    if len(metadata.name) > _LONGEST_NAME or not _NAME.fullmatch(metadata.name):
        raise RenderError(
            f"metadata.name: must be at most {_LONGEST_NAME} lower-case letters, digits, dashes and dots, not {metadata.name!r:.60}."
        )
    return msgspec.structs.replace(metadata, namespace=metadata.namespace or namespace, uid=metadata.uid or NO_UID)


def _objects_of(job: DLJob) -> Iterator[JsonObject]:
    replicas = list(job.all_replicas())
    yield from (creation.body for creation in job.other_objects())
    for replica in replicas:
        if (service := job.make_service(replica.spec, replica.index)) is not None:
            yield service
    for replica in replicas:
        yield job.make_pod(replica.spec, replica.index, attempt=0)
