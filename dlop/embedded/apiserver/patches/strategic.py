"""Strategic merge patch, which merges lists by key or as sets according to a schema.

Supported directives: `$patch` (replace, delete, merge), `$retainKeys`, `$deleteFromPrimitiveList/<field>` and
`$setElementOrder/<field>`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import bad_request, error_without_reason
from dlop.embedded.apiserver.resource_type import MergeList, MergeSchema
from dlop.kube.types import JsonObject

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_NO_SCHEMA: MergeSchema = {}


def merge_strategically(body: JsonObject, patch: JsonObject, *, schema: MergeSchema) -> JsonObject:
    """The patched body. `body` is not modified.

    Raises:
        StatusError: a directive is invalid.
    """
    result = _merge_map(body, patch, schema)
    return result if result is not None else {}


def _merge_map(body: JsonObject, patch: JsonObject, schema: MergeSchema) -> JsonObject | None:
    """The merged map; None if the patch deletes it."""
    directive = patch.get(_PATCH, "merge")
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != _PATCH}
    if directive == "delete":
        return None
    if directive != "merge":
        raise error_without_reason(f"unknown patch type: {directive} in map: {_format_go(patch)}")
    result = _retain_keys(body, patch)
    for name, value in patch.items():
        if not name.startswith("$"):
            _merge_field(result, name, value, schema.get(name))
    _apply_list_directives(result, body, patch, schema)
    return result


def _retain_keys(body: JsonObject, patch: JsonObject) -> JsonObject:
    retained = patch.get(_RETAIN)
    if retained is None:
        return dict(body)
    fields = {name for name in patch if not name.startswith("$")}
    if not isinstance(retained, list) or not all(name in retained for name in fields):
        raise bad_request("invalid patch format of retainKeys")
    return {name: value for name, value in body.items() if name in retained}


def _merge_field(result: JsonObject, name: str, value: Any, schema: MergeSchema | MergeList | None) -> None:
    if value is None:
        result.pop(name, None)
    elif isinstance(value, dict):
        merged = _merge_map(_as_map(result.get(name)), value, schema if isinstance(schema, Mapping) else _NO_SCHEMA)
        if merged is None:
            result.pop(name, None)
        else:
            result[name] = merged
    elif isinstance(value, list) and isinstance(schema, MergeList):
        result[name] = _merge_list(result.get(name) or [], value, schema)
    else:
        result[name] = value


def _as_map(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _merge_list(items: list[Any], patch: list[Any], schema: MergeList) -> list[Any]:
    if schema.key is None:
        merged = list({_identity(item): item for item in [*items, *patch]}.values())
    else:
        merged = _merge_by_key(items, patch, schema.key, schema.items)
    # Without $setElementOrder, the order of the patch applies.
    return _reorder(merged, items, patch, schema)


def _merge_by_key(items: list[Any], patch: list[Any], key: str, schema: MergeSchema) -> list[Any]:
    result = list(items)
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in patch):
        return [item for item in patch if item.get(_PATCH) != "replace"]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise error_without_reason(f"map: {_format_go(item)} does not contain declared merge key: {key}")
        _merge_item(result, item, key, schema)
    return result


def _merge_item(result: list[Any], item: JsonObject, key: str, schema: MergeSchema) -> None:
    matching = [index for index, existing in enumerate(result) if isinstance(existing, dict) and existing.get(key) == item[key]]
    merged = _merge_map(result[matching[0]] if matching else {}, item, schema)
    if merged is None:
        for index in reversed(matching):
            del result[index]
    elif matching:
        result[matching[0]] = merged
    else:
        result.append(merged)


def _apply_list_directives(result: JsonObject, body: JsonObject, patch: JsonObject, schema: MergeSchema) -> None:
    for directive, value in patch.items():
        if not directive.startswith((_DELETE_FROM, _ORDER)):
            continue
        name = directive.partition("/")[2]
        before = result.get(name)
        if directive.startswith(_ORDER) and not isinstance(value, list):
            raise error_without_reason(f"expected a []interface {{}}, but received a {value.__class__.__name__}")
        if not isinstance(before, list) or not isinstance(value, list):
            continue
        if directive.startswith(_DELETE_FROM):
            result[name] = [item for item in before if item not in value]
        else:
            result[name] = _reorder(before, body.get(name) or [], value, schema.get(name))


def _reorder(items: list[Any], before: list[Any], order: list[Any], schema: MergeSchema | MergeList | None) -> list[Any]:
    """The items in the order of the patch. Items that only the server has keep their position where possible."""
    key = schema.key if isinstance(schema, MergeList) else None

    def identity(item: Any) -> Hashable:
        return _identity(item.get(key) if key is not None and isinstance(item, dict) else item)

    patch_order = [identity(item) for item in order]
    old_order = [identity(item) for item in before]
    patched = sorted((item for item in items if identity(item) in patch_order), key=lambda item: patch_order.index(identity(item)))
    others = [item for item in items if identity(item) not in patch_order]
    return _interleave(others, patched, old_order, identity)


def _interleave(left: list[Any], right: list[Any], old_order: Sequence[Hashable], identity: Callable[[Any], Hashable]) -> list[Any]:
    """Merge two lists, keeping the order of each. `old_order` decides between an item of `left` and one of `right`."""
    result: list[Any] = []
    left, right = list(left), list(right)
    while left and right:
        first, second = identity(left[0]), identity(right[0])
        left_first = first in old_order and second in old_order and old_order.index(first) < old_order.index(second)
        result.append((left if left_first else right).pop(0))
    return result + left + right


def _identity(item: Any) -> Hashable:
    return msgspec.json.encode(item) if isinstance(item, (dict, list)) else (item.__class__, item)


def _format_go(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    return f"map[{' '.join(f'{name}:{value}' for name, value in sorted(item.items()))}]"
