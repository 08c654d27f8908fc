"""Reads manifests without raising. Every value knows its path, and problems are collected with the path of the field.

A spec may contain anything. Reading continues after a problem, so that all problems are reported together. A null field
is treated as absent, as in the API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from dlop.api.spec import Problem, SpecError
from dlop.kube.types import JsonObject

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class ManifestField:
    """One value of a manifest with its path. All fields of a manifest share one list of problems and one of warnings.

    The methods that return a value report a value of the wrong type as a problem and return the default.
    """

    path: str
    value: Any
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    @property
    def is_absent(self) -> bool:
        """Whether the field is missing or null."""
        return self.value is None

    def error(self, message: str) -> None:
        """Report a problem with this field. The message continues a sentence that starts with the path."""
        self.problems.append(Problem(self.path, message))

    def warning(self, message: str) -> None:
        """Warn about this field of a valid manifest. The message continues a sentence that starts with the path."""
        self.warnings.append(Problem(self.path, message))

    def raise_problems(self) -> None:
        """Raise SpecError if a problem was reported, for this field or any other field of the manifest."""
        if self.problems:
            raise SpecError(tuple(self.problems))

    def get(self, name: str) -> ManifestField:
        """A field of this object. It is absent if this is not an object."""
        return ManifestField(f"{self.path}.{name}", self._object().get(name), self.problems, self.warnings)

    def entries(self) -> Iterator[tuple[str, ManifestField]]:
        """The keys and values of this object. Reports nothing if it is not an object; see `object`."""
        for name in self._object():
            yield str(name), self.get(name)

    def items(self) -> Iterator[ManifestField]:
        """The items of this list."""
        if isinstance(self.value, list):
            for index, value in enumerate(self.value):
                yield ManifestField(f"{self.path}[{index}]", value, self.problems, self.warnings)
        elif not self.is_absent:
            self.error(f"must be a list, got {_describe(self.value)}")

    def object(self) -> JsonObject:
        """This object as a dict; empty if it is absent."""
        if not self.is_absent and not isinstance(self.value, dict):
            self.error(f"must be an object, got {_describe(self.value)}")
        return self._object()

    def string(self, default: str = "") -> str:
        """This string."""
        if isinstance(self.value, str):
            return self.value
        if not self.is_absent:
            self.error(f"must be a string, got {_describe(self.value)}")
        return default

    def boolean(self, *, default: bool = False) -> bool:
        """This boolean."""
        if isinstance(self.value, bool):
            return self.value
        if not self.is_absent:
            self.error(f"must be true or false, got {_describe(self.value)}")
        return default

    def integer(self, default: int, *, minimum: int = 0, maximum: int | None = None) -> int:
        """This integer. A value outside the range is reported as a problem."""
        value = self.optional_integer(minimum=minimum, maximum=maximum)
        return default if value is None else value

    def optional_integer(self, *, minimum: int = 0, maximum: int | None = None) -> int | None:
        """This integer, or None if it is absent. A value outside the range is reported as a problem."""
        if self.is_absent:
            return None
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.error(f"must be an integer, got {_describe(self.value)}")
            return None
        if self.value < minimum or (maximum is not None and self.value > maximum):
            self.error(f"must be {_range(minimum, maximum)}, got {self.value}")
            return None
        return self.value

    def choice(self, choices: type[Choice], default: Choice) -> Choice:
        """This member of an enum. An empty string is treated as absent."""
        if self.is_absent or self.value == "":
            return default
        if isinstance(self.value, str) and self.value in list(choices):
            return choices(self.value)
        self.error(f"must be one of {', '.join(choices)}, got {_describe(self.value)}")
        return default

    def _object(self) -> JsonObject:
        return self.value if isinstance(self.value, dict) else {}


def _range(minimum: int, maximum: int | None) -> str:
    if maximum is None:
        return f"at least {minimum}"
    return f"exactly {minimum}" if minimum == maximum else f"from {minimum} to {maximum}"


def _describe(value: Any) -> str:
    """A value for an error message, truncated."""
    names: dict[type, str] = {dict: "an object", list: "a list"}
    return names.get(type(value)) or f"{value!r:.60}"
