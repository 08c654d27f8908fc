"""Flags and environment variables of other operators, as values.

A flag that dlop has under the same name is an ordinary setting. A flag with another name is mapped to a setting. A flag
without a meaning in dlop is ignored. A flag that cannot be honored is rejected with an error that names the alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Values = Sequence[str]
"""The values of a flag, one for each time it is set."""


@dataclass(frozen=True, slots=True)
class FlagMapping:
    """Maps a legacy flag to a setting."""

    field: str
    """The name of the setting."""
    convert: Callable[[Values, Mapping[str, Values]], Any]
    """Returns the value of the setting, given the values of this flag and of all legacy flags.

    Raises ValueError with a message that starts with the invalid value.
    """


@dataclass(frozen=True, slots=True)
class LegacyFlag:
    name: str
    description: str
    """What dlop does with the flag; for a rejected flag, what to use instead."""
    mapping: FlagMapping | None = None
    is_switch: bool = False
    is_rejected: bool = False
    check: Callable[[Values], None] | None = None
    """Raises ValueError, with a message that starts with the invalid value, for values of an ignored flag that dlop cannot honor."""

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def field(self) -> str:
        """The name as a Python identifier."""
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class LegacyVariable:
    name: str
    field: str
    description: str
    convert: Callable[[str], Any] = str
    """Returns the value of the setting. Raises ValueError as a mapping does."""


@dataclass(frozen=True, slots=True)
class LegacyOperator:
    """An operator whose flags and variables dlop understands."""

    name: str
    flags: tuple[LegacyFlag, ...]
    variables: tuple[LegacyVariable, ...]


def last(values: Values, _: Mapping[str, Values]) -> str:
    """The conversion for settings with the same values."""
    return values[-1]


def workers(values: Values, kinds: int) -> int:
    """The setting `workers` from a number of workers per kind.

    Raises:
        ValueError: the number is invalid.
    """
    if not values[-1].isdecimal() or not int(values[-1]):
        raise ValueError(f"{values[-1]!r}: must be an integer of at least 1")
    return int(values[-1]) * kinds
