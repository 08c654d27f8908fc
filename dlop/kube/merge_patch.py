"""The difference between two statuses, as a merge patch."""

from __future__ import annotations

from typing import Any

from dlop.kube.types import JsonObject


def merge_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    """What turns `old` into `new` when it is merged in: what is gone becomes null, lists are given whole."""
    patch: JsonObject = {name: None for name in old if name not in new}
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif old[name] != value:
            patch[name] = _change(old[name], value)
    return patch


def _change(old: Any, new: Any) -> Any:
    return merge_patch(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
