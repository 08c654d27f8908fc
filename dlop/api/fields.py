"""Reading a manifest without ever raising: every value knows where it stands, and what is wrong is noted with its path.

A user can write anything into a spec. Reading goes on after a problem, so that all of them are told at once; null and
absent are the same, as they are to the API server.
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
    """One value of a manifest, and the list that all problems of the manifest are noted in."""

    path: str
    value: Any
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_absent(self) -> bool:
        """Whether the manifest does not say anything here."""
        return self.value is None

    def wrong(self, message: str) -> None:
        """Note that this value will not do."""
        self.problems.append(Problem(self.path, message))

    def raise_problems(self) -> None:
        """Raise SpecError if anything was found to be wrong, here or elsewhere in the manifest."""
        if self.problems:
            raise SpecError(tuple(self.problems))

    def get(self, name: str) -> ManifestField:
        """A field of this object."""
        return ManifestField(f"{self.path}.{name}", self._mapping().get(name), self.problems)

    def entries(self) -> Iterator[tuple[str, ManifestField]]:
        """The names and values of this object."""
        for name in self._mapping():
            yield str(name), self.get(name)

    def items(self) -> Iterator[ManifestField]:
        """The values of this list."""
        if isinstance(self.value, list):
            for index, value in enumerate(self.value):
                yield ManifestField(f"{self.path}[{index}]", value, self.problems)
        elif not self.is_absent:
            self.wrong(f"must be a list, not {_said(self.value)}")

    def mapping(self) -> JsonObject:
        """This object as plain data; empty when it is absent or something else."""
        if not self.is_absent and not isinstance(self.value, dict):
            self.wrong(f"must be an object, not {_said(self.value)}")
        return self._mapping()

    def text(self, default: str = "") -> str:
        """This text."""
        if isinstance(self.value, str):
            return self.value
        if not self.is_absent:
            self.wrong(f"must be a text, not {_said(self.value)}")
        return default

    def flag(self, *, default: bool = False) -> bool:
        """This boolean."""
        if isinstance(self.value, bool):
            return self.value
        if not self.is_absent:
            self.wrong(f"must be true or false, not {_said(self.value)}")
        return default

    def integer(self, default: int, *, minimum: int = 0, maximum: int | None = None) -> int:
        """This whole number."""
        found = self.optional_integer(minimum=minimum, maximum=maximum)
        return default if found is None else found

    def optional_integer(self, *, minimum: int = 0, maximum: int | None = None) -> int | None:
        """This whole number, or None when it is absent."""
        if self.is_absent:
            return None
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.wrong(f"must be a whole number, not {_said(self.value)}")
            return None
        if self.value < minimum or (maximum is not None and self.value > maximum):
            self.wrong(f"must be {_range(minimum, maximum)}, not {self.value}")
            return None
        return self.value

    def choice(self, choices: type[Choice], default: Choice) -> Choice:
        """One of a few words."""
        if self.is_absent or self.value == "":
            return default
        if isinstance(self.value, str) and self.value in list(choices):
            return choices(self.value)
        self.wrong(f"must be one of {', '.join(choices)}, not {_said(self.value)}")
        return default

    def _mapping(self) -> JsonObject:
        return self.value if isinstance(self.value, dict) else {}


def _range(minimum: int, maximum: int | None) -> str:
    if maximum is None:
        return f"at least {minimum}"
    return f"exactly {minimum}" if minimum == maximum else f"from {minimum} to {maximum}"


def _said(value: Any) -> str:
    """A value as the user may have written it, cut short."""
    names: dict[type, str] = {dict: "an object", list: "a list"}
    return names.get(type(value)) or f"{value!r:.60}"
