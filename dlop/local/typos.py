"""Fields that are most likely misspelt. Pure.

Kinds of the early operators take any field, as they always have, so no API server complains about `replica: 3`. It has no effect
there, which is not what its writer had in mind.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from dlop.kube.errors import JsonObject

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
