"""What an object was made from, as it is noted on it: the generation of its job, and a hash of what it is made of."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from dlop.api.constants import ATTEMPT_LABEL, JOB_UID_LABEL, RENDERED_ANNOTATION
from dlop.kube.types import JsonObject

# The same spec may come with its fields in another order.
_encoder = msgspec.json.Encoder(order="deterministic")


def stamped(pod: JsonObject, *, generation: int) -> JsonObject:
    """A rendered pod with its stamp."""
    return _with_stamp(pod, f"{generation}-{_hash_of(pod)}")


def stamped_object(body: JsonObject, *, generation: int) -> JsonObject:
    """Any other rendered object with its stamp."""
    made_of = {name: value for name, value in body.items() if name != "metadata"}
    return _with_stamp(body, f"{generation}-{_digest(made_of)}")


def read_stamp(stamp: str) -> tuple[int, str]:
    """The generation and the hash; the hash is empty where there is no stamp, or none that makes sense."""
    generation, _, digest = stamp.partition("-")
    return (int(generation), digest) if generation.isdecimal() and len(generation) < 19 else (0, "")


def _hash_of(pod: JsonObject) -> str:
    """Of all that the spec has a say in. Which job, and which attempt of it, makes no difference."""
    metadata = pod["metadata"]
    labels = {name: value for name, value in metadata["labels"].items() if name not in (ATTEMPT_LABEL, JOB_UID_LABEL)}
    made_of = (labels, metadata.get("annotations"), metadata.get("finalizers"), pod["spec"])
    return _digest(made_of)


def _with_stamp(body: JsonObject, stamp: str) -> JsonObject:
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), RENDERED_ANNOTATION: stamp}}}


def _digest(made_of: Any) -> str:
    return hashlib.blake2b(_encoder.encode(made_of), digest_size=8).hexdigest()
