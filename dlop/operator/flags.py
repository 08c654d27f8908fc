"""From the command line and the environment to settings, whether they speak dlop's language or that of Kubeflow's operator.

The arguments of the old operator's Deployment start dlop unchanged. What was made of them is told when the operator starts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dlop.compat.kubeflow.flags import FLAGS, VARIABLES, OldFlag, Values
from dlop.operator import settings as own
from dlop.operator.settings import Settings, SettingsError, SourcedValue, given_by_flags, given_by_variables

_PREFIX = "old:"


@dataclass(frozen=True, slots=True)
class Note:
    """What was made of an old name, to be told at the start."""

    name: str
    meaning: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for every setting, and for every old one that dlop has no setting of the same name for."""
    own.add_arguments(parser)
    group = parser.add_argument_group("flags of Kubeflow's training operator, under their old names")
    for old in FLAGS:
        if not _is_setting(old):
            manner: dict[str, Any] = {"nargs": "?", "const": "true"} if old.is_switch else {}
            metavar = "true|false" if old.is_switch else "VALUE"
            meaning = argparse.SUPPRESS if old.is_refused else old.meaning
            group.add_argument(old.flag, dest=_PREFIX + old.name, action="append", metavar=metavar, help=meaning, **manner)


def with_two_dashes(words: Iterable[str]) -> list[str]:
    """The words of a command line, with old flags as dlop writes flags. For the old operator, one dash did as well as two."""
    known = {f"-{old.name}" for old in FLAGS}
    return [f"-{word}" if word.partition("=")[0] in known else word for word in words]


def spellings(field: str) -> frozenset[str]:
    """All flags by which a setting is given, under its own name and under old ones."""
    new = (flag for row in own.table() if row.field == field for flag in own.flags_of(row))
    return frozenset((*new, *(old.flag for old in FLAGS if old.becomes is not None and old.becomes.field == field)))


def read_settings(flags: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[Settings, list[Note]]:
    """The settings that flags (as `argparse` gives them) and the environment make, and what was made of old names.

    Flags go before variables, and among those the names of dlop before old ones. Lists of kinds add up.

    Raises:
        SettingsError: one of them makes no sense, or is refused.
    """
    given = {name.removeprefix(_PREFIX): values for name, values in flags.items() if name.startswith(_PREFIX) and values is not None}
    used = [old for old in FLAGS if old.name in given]
    refused = next((old for old in used if old.is_refused), None)
    if refused is not None:
        raise SettingsError(f"{refused.flag} {refused.meaning}")
    old_flags, new_flags = _translated(used, given), given_by_flags(flags)
    if "kinds" in old_flags and "kinds" in new_flags:
        new_flags["kinds"] = SourcedValue([*new_flags["kinds"].value, *old_flags["kinds"].value], new_flags["kinds"].origin)
    variables = [old for old in VARIABLES if environ.get(old.name)]
    old_variables = {old.field: SourcedValue(environ[old.name], old.name) for old in variables}
    settings = Settings.of(old_variables | given_by_variables(environ) | old_flags | new_flags)
    return settings, [Note(old.flag, old.meaning) for old in used] + [Note(old.name, old.meaning) for old in variables]


def _is_setting(old: OldFlag) -> bool:
    """Whether dlop has a flag of the same name."""
    return old.field in Settings.model_fields or f"{old.field}s" in Settings.model_fields


def _translated(used: Iterable[OldFlag], given: Mapping[str, Values]) -> dict[str, SourcedValue]:
    found: dict[str, SourcedValue] = {}
    for old in used:
        if old.becomes is not None:
            try:
                found[old.becomes.field] = SourcedValue(old.becomes.value(given[old.name], given), old.flag)
            except ValueError as error:
                raise SettingsError(f"{old.flag} {error}") from None
    return found
