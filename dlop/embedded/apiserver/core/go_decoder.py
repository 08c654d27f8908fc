"""Built-in objects as the server reads them: every field has its type, unknown ones are named, empty ones are left out.

The real server decodes into Go structs and encodes them again. That drops nulls and empty values, writes out what Go
cannot leave out, shortens quantities, and refuses values of another type. Clients see all of this, so it is done here
too: once for each object that arrives, with one function compiled for each type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from dlop.embedded.apiserver.core.go_scalars import ZEROS, MismatchError, ScalarReader, WrongTypeError, go_name, scalar_reader
from dlop.embedded.apiserver.core.go_types import GoField, struct, underlying
from dlop.kube.types import JsonObject

Path = tuple["Path", str | int] | None
"""Where a value is, innermost name last; made into text only when there is something to say about it."""


Reader = Callable[[Any, Path, list[str]], Any]
"""Makes the kept value from a given one, and adds the paths of unknown fields to the list. Nulls never get here."""


def read(go_type: str, body: JsonObject) -> tuple[JsonObject, list[str]]:
    """The body as the type keeps it, and the paths of the fields that the type does not have.

    Raises:
        WrongTypeError: when a value is of another type than its field.
    """
    unknown: list[str] = []
    return _reader(go_type)(body, None, unknown), unknown


@cache
def _reader(go_type: str) -> Reader:
    """The reader of a struct, a list or a map."""
    base = _base(go_type)
    if base.startswith("[]"):
        return _list_reader(base)
    if base.startswith("map:"):
        return _map_reader(base)
    fields = struct(base)
    if fields is None:
        raise LookupError(f"there is no struct {base}")
    return _struct_reader(base, fields)


@cache
def _scalar(go_type: str) -> ScalarReader | None:
    """The reader of a plain value; None when the type is a struct, a list or a map."""
    base = _base(go_type)
    if base != "[]byte" and (base.startswith(("[]", "map:")) or struct(base) is not None):
        return None
    return scalar_reader(go_type.removeprefix("*"), base)


def _base(go_type: str) -> str:
    return underlying(go_type.removeprefix("*"))


def _struct_reader(name: str, fields: Mapping[str, GoField]) -> Reader:
    owner, shown = name.rpartition(".")[2], go_name(name)
    plans = {field: _Plan(spec) for field, spec in fields.items()}
    always = [(field, plan) for field, plan in plans.items() if plan.written_when_absent]

    def read_struct(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise MismatchError(value, shown)
        result: JsonObject = {}
        for field, given in value.items():
            plan = plans.get(field)
            if plan is None:
                unknown.append(_text((path, field)))
            elif given is not None:
                try:
                    kept = plan.scalar(given) if plan.scalar is not None else plan.reader(given, (path, field), unknown)
                except MismatchError as mismatch:
                    raise WrongTypeError(mismatch.sentence(f"{owner}.{_plain_text((path, field))}")) from None
                if kept or plan.keeps_empty:
                    result[field] = kept
        for field, plan in always:
            if field not in result:
                result[field] = plan.absent()
        return result

    return read_struct


class _Plan:
    """How one field is read, and what stands in its place when it is absent."""

    __slots__ = ("_go_type", "_reader", "keeps_empty", "scalar", "written_when_absent")

    def __init__(self, spec: GoField) -> None:
        self._go_type = spec.go_type
        self._reader: Reader | None = None
        self.scalar = _scalar(spec.go_type)
        pointer = spec.go_type.startswith("*")
        base = _base(spec.go_type)
        is_struct = struct(base) is not None or base in ("Time", "MicroTime", "IntOrString", "Quantity")
        # Go's omitempty leaves out empty scalars, lists and maps, and never a struct that is not behind a pointer.
        self.keeps_empty = pointer or is_struct
        self.written_when_absent = not pointer and not spec.omit_zero and (is_struct or not spec.omit_empty)

    @property
    def reader(self) -> Reader:
        """The reader of the field. Made when first used: some types are deep and most objects are not."""
        if self._reader is None:
            self._reader = _reader(self._go_type)
        return self._reader

    def absent(self) -> Any:
        """What Go writes when the field was never set."""
        base = _base(self._go_type)
        return ZEROS.get(base) if struct(base) is None else self.reader({}, None, [])


def _list_reader(base: str) -> Reader:
    item = base.removeprefix("[]")
    scalar, shown = _scalar(item), f"[]{go_name(item)}"
    absent: Any = ZEROS.get(_base(item), {})

    def read_list(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise MismatchError(value, shown)
        if scalar is not None:
            return [scalar(absent if each is None else each) for each in value]
        reader = _reader(item)
        return [reader(absent if each is None else each, (path, index), unknown) for index, each in enumerate(value)]

    return read_list


def _map_reader(base: str) -> Reader:
    item = base.removeprefix("map:")
    scalar, shown = _scalar(item), f"map[string]{go_name(item)}"
    absent: Any = ZEROS.get(_base(item), "")

    def read_map(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise MismatchError(value, shown)
        if scalar is not None:
            return {key: scalar(absent if each is None else each) for key, each in value.items()}
        reader = _reader(item)
        return {key: reader(each or {}, path, unknown) for key, each in value.items()}

    return read_map


def _text(path: Path) -> str:
    text = ""
    for name in _names(path):
        text += f"[{name}]" if isinstance(name, int) else f".{name}"
    return text.removeprefix(".")


def _plain_text(path: Path) -> str:
    return ".".join(name for name in _names(path) if isinstance(name, str))


def _names(path: Path) -> list[str | int]:
    names: list[str | int] = []
    while path is not None:
        path, name = path
        names.append(name)
    return names[::-1]
