"""JSON merge patches (RFC 7386)."""

from __future__ import annotations

from typing import Any

from dlop.kube.types import JsonObject


def merge_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    """The merge patch that turns `old` into `new`. Removed fields become null; lists are replaced as a whole."""
    patch: JsonObject = {name: None for name in old if name not in new}
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif old[name] != value:
            patch[name] = _patch_value(old[name], value)
    return patch


def _patch_value(old: Any, new: Any) -> Any:
    return merge_patch(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
