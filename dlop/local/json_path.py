"""Takes fields out of an object, so that the rest of it can be judged. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any

from dlop.kube.errors import JsonObject

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
