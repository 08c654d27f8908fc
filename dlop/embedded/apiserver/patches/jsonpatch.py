"""JSON patch (RFC 6902), as lenient as the library of kube-apiserver.

The first part of a path without a leading slash is ignored, `replace` adds a missing field, and `copy` and `test` treat
a missing field as null. Errors have no details.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import bad_request
from dlop.embedded.apiserver.field_validation import rejected_patch
from dlop.kube.types import JsonObject

_MISSING = object()


class JsonPatchOperation(msgspec.Struct, frozen=True):
    op: str = ""
    path: str | None = None
    source: str | None = msgspec.field(default=None, name="from")
    value: Any = None


def decode_operations(decoded: Any) -> Sequence[JsonPatchOperation]:
    """Decode the operations of a patch.

    Raises:
        BadRequestError: the patch is not a list of operations.
    """
    try:
        return msgspec.convert([] if decoded is None else decoded, list[JsonPatchOperation])
    except msgspec.ValidationError:
        raise bad_request(f"error decoding patch: json: {_type_error(decoded)}") from None


def _type_error(decoded: Any) -> str:
    json_types = {dict: "object", str: "string", bool: "bool", int: "number", float: "number", list: "array"}
    if not isinstance(decoded, list):
        return f"cannot unmarshal {json_types.get(decoded.__class__, 'null')} into Go value of type []handlers.jsonPatchOp"
    invalid_types = [json_types.get(item.__class__, "null") for item in decoded if not isinstance(item, dict)]
    if invalid_types:
        return f"cannot unmarshal {invalid_types[0]} into Go value of type handlers.jsonPatchOp"
    return "cannot unmarshal number into Go struct field jsonPatchOp.op of type string"


def apply_operations(body: JsonObject, operations: Sequence[JsonPatchOperation]) -> JsonObject:
    """The patched body. `body` is not modified.

    Raises:
        InvalidError: an operation cannot be applied.
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


def _add(body: Any, operation: JsonPatchOperation) -> Any:
    return _modify(body, _steps(operation.path), lambda parent, step: _insert(parent, step, operation.value))


def _remove(body: Any, operation: JsonPatchOperation) -> Any:
    return _modify(body, _steps(operation.path), _delete)


def _replace(body: Any, operation: JsonPatchOperation) -> Any:
    if operation.path == "":
        return operation.value
    return _modify(body, _steps(operation.path), lambda parent, step: _replace_value(parent, step, operation.value))


def _move(body: Any, operation: JsonPatchOperation) -> Any:
    source = _steps(operation.source)
    value = _get(body, source)
    if value is _MISSING:
        raise KeyError(operation.source)
    rest = _modify(body, source, _delete)
    return _modify(rest, _steps(operation.path), lambda parent, step: _insert(parent, step, value))


def _copy(body: Any, operation: JsonPatchOperation) -> Any:
    value = _get(body, _steps(operation.source))
    copied = None if value is _MISSING else value
    return _modify(body, _steps(operation.path), lambda parent, step: _insert(parent, step, copied))


def _test(body: Any, operation: JsonPatchOperation) -> Any:
    value = _get(body, _steps(operation.path))
    if (None if value is _MISSING else value) != operation.value:
        raise ValueError("the test failed")
    return body


_APPLY: dict[str, Callable[[Any, JsonPatchOperation], Any]] = {
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


def _get(body: Any, steps: list[str]) -> Any:
    """The value at a path; `_MISSING` if only the last step is missing."""
    value = body
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        if isinstance(value, list):
            value = value[_index(step, len(value))]
        elif last:
            value = value.get(step, _MISSING)
        else:
            value = value[step]
    return value


def _modify(value: Any, steps: list[str], operation: Callable[[Any, str], Any]) -> Any:
    """Apply `operation` to the parent of the value at `steps`. Only containers along the path are copied."""
    if not steps:
        raise ValueError("the whole object cannot be replaced")
    if len(steps) == 1:
        return operation(value, steps[0])
    step = steps[0]
    key: Any = _index(step, len(value)) if isinstance(value, list) else step
    child = _modify(value[key], steps[1:], operation)
    result = value.copy()
    result[key] = child
    return result


def _insert(parent: Any, step: str, value: Any) -> Any:
    if isinstance(parent, list):
        index = len(parent) if step == "-" else _index(step, len(parent) + 1)
        return [*parent[:index], value, *parent[index:]]
    return {**parent, step: value}


def _replace_value(parent: Any, step: str, value: Any) -> Any:
    if isinstance(parent, list):
        index = _index(step, len(parent))
        return [*parent[:index], value, *parent[index + 1 :]]
    return {**parent, step: value}


def _delete(parent: Any, step: str) -> Any:
    result = parent.copy()
    del result[_index(step, len(parent)) if isinstance(parent, list) else step]
    return result


def _index(step: str, size: int) -> int:
    index = int(step)
    index = index + size if index < 0 else index
    if not 0 <= index < size:
        raise IndexError(step)
    return index
