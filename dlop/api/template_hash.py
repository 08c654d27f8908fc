"""The template hash annotation: the generation of the job that an object was rendered from, and a hash of its contents."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from dlop.api.constants import ATTEMPT_LABEL, JOB_UID_LABEL, TEMPLATE_HASH_ANNOTATION
from dlop.kube.types import JsonObject

# The order of the fields of a spec must not affect the hash.
_encoder = msgspec.json.Encoder(order="deterministic")


def with_template_hash(pod: JsonObject, *, generation: int) -> JsonObject:
    """A copy of a rendered pod with the annotation. The job's UID and the attempt do not affect the hash."""
    metadata = pod["metadata"]
    labels = {name: value for name, value in metadata["labels"].items() if name not in (ATTEMPT_LABEL, JOB_UID_LABEL)}
    contents = (labels, metadata.get("annotations"), metadata.get("finalizers"), pod["spec"])
    return with_annotation(pod, TEMPLATE_HASH_ANNOTATION, f"{generation}-{contents_hash(contents)}")


def child_with_template_hash(body: JsonObject, *, generation: int) -> JsonObject:
    """A copy of a rendered object other than a pod with the annotation. Its metadata does not affect the hash."""
    contents = {name: value for name, value in body.items() if name != "metadata"}
    return with_annotation(body, TEMPLATE_HASH_ANNOTATION, f"{generation}-{contents_hash(contents)}")


def parse_template_hash(annotation: str) -> tuple[int, str]:
    """Generation and hash. The hash is empty if the annotation is missing or malformed."""
    generation, _, digest = annotation.partition("-")
    return (int(generation), digest) if generation.isdecimal() and len(generation) < 19 else (0, "")


def with_annotation(body: JsonObject, name: str, value: str) -> JsonObject:
    """A copy of an object with one more annotation."""
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), name: value}}}


def contents_hash(contents: Any) -> str:
    """A hash of plain data."""
    return hashlib.blake2b(_encoder.encode(contents), digest_size=8).hexdigest()
