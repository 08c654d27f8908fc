"""JSON patch (RFC 6902), with the leniencies of the library that the real server uses.

A path that does not begin with a slash loses its first part, `replace` adds a field that is not there, `copy` from such
a field copies null, and `test` takes it for null. Patches that do not fit are refused without saying why, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import bad_request
from dlop.embedded.apiserver.field_validation import rejected_patch
from dlop.kube.types import JsonObject

_NOTHING = object()


class Operation(msgspec.Struct, frozen=True):
    """One step of a patch."""

    op: str = ""
    path: str | None = None
    source: str | None = msgspec.field(default=None, name="from")
    value: Any = None


def read_operations(decoded: Any) -> Sequence[Operation]:
    """The steps of a patch.

    Raises:
        BadRequestError: when this is no list of steps.
    """
    try:
        return msgspec.convert([] if decoded is None else decoded, list[Operation])
    except msgspec.ValidationError:
        raise bad_request(f"error decoding patch: json: {_type_sentence(decoded)}") from None


def _type_sentence(decoded: Any) -> str:
    names = {dict: "object", str: "string", bool: "bool", int: "number", float: "number", list: "array"}
    if not isinstance(decoded, list):
        return f"cannot unmarshal {names.get(decoded.__class__, 'null')} into Go value of type []handlers.jsonPatchOp"
    wrong = [names.get(step.__class__, "null") for step in decoded if not isinstance(step, dict)]
    if wrong:
        return f"cannot unmarshal {wrong[0]} into Go value of type handlers.jsonPatchOp"
    return "cannot unmarshal number into Go struct field jsonPatchOp.op of type string"


def apply_operations(body: JsonObject, operations: Sequence[Operation]) -> JsonObject:
    """The body after all steps; the given one stays as it is.

    Raises:
        InvalidError: when a step does not fit.
    """
    result: Any = body
    for operation in operations:
        try:
            result = _APPLY[operation.op](result, operation)
        except (KeyError, IndexError, ValueError, TypeError):
            raise rejected_patch() from None
    if not isinstance(result, dict):
        raise rejected_patch()
    return result


def _add(body: Any, operation: Operation) -> Any:
    return _changed(body, _steps(operation.path), lambda parent, step: _inserted(parent, step, operation.value))


def _remove(body: Any, operation: Operation) -> Any:
    return _changed(body, _steps(operation.path), _without)


def _replace(body: Any, operation: Operation) -> Any:
    if operation.path == "":
        return operation.value
    return _changed(body, _steps(operation.path), lambda parent, step: _replaced(parent, step, operation.value))


def _move(body: Any, operation: Operation) -> Any:
    source = _steps(operation.source)
    value = _found(body, source)
    if value is _NOTHING:
        raise KeyError(operation.source)
    rest = _changed(body, source, _without)
    return _changed(rest, _steps(operation.path), lambda parent, step: _inserted(parent, step, value))


def _copy(body: Any, operation: Operation) -> Any:
    value = _found(body, _steps(operation.source))
    copied = None if value is _NOTHING else value
    return _changed(body, _steps(operation.path), lambda parent, step: _inserted(parent, step, copied))


def _test(body: Any, operation: Operation) -> Any:
    found = _found(body, _steps(operation.path))
    if (None if found is _NOTHING else found) != operation.value:
        raise ValueError("the test failed")
    return body


_APPLY: dict[str, Callable[[Any, Operation], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _steps(path: str | None) -> list[str]:
    if path is None:
        raise ValueError("no path")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _found(body: Any, steps: list[str]) -> Any:
    """The value at a path; `_NOTHING` when only the last step leads nowhere."""
    value = body
    for place, step in enumerate(steps):
        last = place == len(steps) - 1
        if isinstance(value, list):
            value = value[_index(step, len(value))]
        elif last:
            value = value.get(step, _NOTHING)
        else:
            value = value[step]
    return value


def _changed(value: Any, steps: list[str], change: Callable[[Any, str], Any]) -> Any:
    """The value with its part at `steps` changed, copying only what lies on the way."""
    if not steps:
        raise ValueError("the whole object cannot be replaced")
    if len(steps) == 1:
        return change(value, steps[0])
    step = steps[0]
    key: Any = _index(step, len(value)) if isinstance(value, list) else step
    below = _changed(value[key], steps[1:], change)
    result = value.copy()
    result[key] = below
    return result


def _inserted(parent: Any, step: str, value: Any) -> Any:
    if isinstance(parent, list):
        index = len(parent) if step == "-" else _index(step, len(parent) + 1)
        return [*parent[:index], value, *parent[index:]]
    return {**parent, step: value}


def _replaced(parent: Any, step: str, value: Any) -> Any:
    if isinstance(parent, list):
        index = _index(step, len(parent))
        return [*parent[:index], value, *parent[index + 1 :]]
    return {**parent, step: value}


def _without(parent: Any, step: str) -> Any:
    result = parent.copy()
    del result[_index(step, len(parent)) if isinstance(parent, list) else step]
    return result


def _index(step: str, size: int) -> int:
    index = int(step)
    index = index + size if index < 0 else index
    if not 0 <= index < size:
        raise IndexError(step)
    return index
