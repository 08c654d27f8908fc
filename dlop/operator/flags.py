"""Reads settings from the command line and the environment, under the names of dlop and of other operators.

The arguments of a Deployment of the Kubeflow training operator or of KubeDL start dlop unchanged. What dlop does with them is logged.
A flag of several operators has the same meaning for all of them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dlop.compat.kubedl.flags import KUBEDL
from dlop.compat.kubeflow.flags import KUBEFLOW
from dlop.compat.legacy import LegacyFlag, LegacyVariable, Values
from dlop.frameworks.registry import Registry, load_registry
from dlop.operator import settings as own
from dlop.operator.settings import Settings, SettingsError, SourcedValue, values_from_environment, values_from_flags

LEGACY_OPERATORS = (KUBEFLOW, KUBEDL)
LEGACY_FLAGS: tuple[LegacyFlag, ...] = tuple({flag.name: flag for operator in LEGACY_OPERATORS for flag in operator.flags}.values())
_VARIABLES: tuple[LegacyVariable, ...] = tuple({each.name: each for operator in LEGACY_OPERATORS for each in operator.variables}.values())
_PREFIX = "legacy:"
# After two dashes, a missing value is more likely than a value.
_DASHED_VALUE = re.compile(r"-[^-]")


@dataclass(frozen=True, slots=True)
class LegacyNotice:
    """A legacy flag or variable that is in use, to be logged at the start."""

    name: str
    description: str


def add_arguments(parser: argparse.ArgumentParser, model: type[Settings]) -> None:
    """Add a flag for every setting, and for every legacy flag whose name is not that of a setting."""
    own.add_arguments(parser, model)
    for operator in LEGACY_OPERATORS:
        group = parser.add_argument_group(f"flags of {operator.name}")
        for legacy in (flag for flag in operator.flags if not _is_setting(flag, model)):
            options: dict[str, Any] = {"nargs": "?", "const": "true"} if legacy.is_switch else {}
            metavar = "true|false" if legacy.is_switch else "VALUE"
            description = argparse.SUPPRESS if legacy.is_rejected else legacy.description
            group.add_argument(legacy.flag, dest=_PREFIX + legacy.name, action="append", metavar=metavar, help=description, **options)


def load_frameworks(references: Iterable[str]) -> Registry:
    """All installed frameworks and these (`module:Class`).

    A framework must not declare a flag of the operator. `Registry.skipped` lists installed ones that cannot be used.

    Raises:
        RegistryError: one of these frameworks cannot be loaded.
    """
    own_flags = (flag for setting in own.list_settings(Settings) for flag in setting.flags)
    return load_registry(references, reserved_flags=("--help", *own_flags, *(legacy.flag for legacy in LEGACY_FLAGS)))


def normalize_dashes(arguments: Iterable[str]) -> list[str]:
    """The arguments, with two dashes before legacy flags, and with an equals sign before their values that start with a dash.

    Go accepts one dash as well, and takes the next argument as the value, whatever it starts with.
    """
    known = {f"-{legacy.name}" for legacy in LEGACY_FLAGS}
    with_value = {legacy.flag for legacy in LEGACY_FLAGS if not legacy.is_switch}
    normalized: list[str] = []
    for argument in arguments:
        if argument.partition("=")[0] in known:
            normalized.append(f"-{argument}")
        elif normalized and normalized[-1] in with_value and _DASHED_VALUE.match(argument):
            normalized[-1] += f"={argument}"
        else:
            normalized.append(argument)
    return normalized


def flag_names(field: str, model: type[Settings]) -> frozenset[str]:
    """All flags that set a setting, including legacy ones."""
    own_flags = (flag for setting in own.list_settings(model) if setting.field == field for flag in setting.flags)
    legacy_flags = (legacy.flag for legacy in LEGACY_FLAGS if legacy.mapping is not None and legacy.mapping.field == field)
    return frozenset((*own_flags, *legacy_flags))


def read_settings(
    flags: Mapping[str, Any], environ: Mapping[str, str], model: type[Settings] = Settings
) -> tuple[Settings, list[LegacyNotice]]:
    """Read the settings from parsed flags (as a dict of the argparse namespace) and the environment.

    Flags take precedence over variables, and names of dlop over legacy names. Values of `--kinds`,
    `--enable-scheme` and `--workloads` are combined. Also returns the legacy names in use.

    Raises:
        SettingsError: a value is invalid, or a legacy flag is not supported.
    """
    legacy_values = {
        name.removeprefix(_PREFIX): values for name, values in flags.items() if name.startswith(_PREFIX) and values is not None
    }
    used = [legacy for legacy in LEGACY_FLAGS if legacy.name in legacy_values]
    rejected = next((legacy for legacy in used if legacy.is_rejected), None)
    if rejected is not None:
        raise SettingsError(f"{rejected.flag} is not supported: {rejected.description}")
    from_legacy_flags, from_flags = _convert(used, legacy_values), values_from_flags(flags, model)
    if "kinds" in from_legacy_flags and "kinds" in from_flags:
        kinds = [*from_flags["kinds"].value, *from_legacy_flags["kinds"].value]
        from_flags["kinds"] = SourcedValue(kinds, from_flags["kinds"].origin)
    variables = [legacy for legacy in _VARIABLES if environ.get(legacy.name)]
    from_legacy_variables = {legacy.field: SourcedValue(_read_variable(legacy, environ), legacy.name) for legacy in variables}
    settings = model.from_values(from_legacy_variables | values_from_environment(environ, model) | from_legacy_flags | from_flags)
    notices = [LegacyNotice(legacy.flag, legacy.description) for legacy in used]
    return settings, notices + [LegacyNotice(legacy.name, legacy.description) for legacy in variables]


def _is_setting(legacy: LegacyFlag, model: type[Settings]) -> bool:
    """Whether dlop has a flag of the same name."""
    return legacy.field in model.model_fields or f"{legacy.field}s" in model.model_fields


def _convert(used: Iterable[LegacyFlag], legacy_values: Mapping[str, Values]) -> dict[str, SourcedValue]:
    converted: dict[str, SourcedValue] = {}
    for legacy in used:
        try:
            if legacy.check is not None:
                legacy.check(legacy_values[legacy.name])
            if legacy.mapping is None:
                continue
            value = legacy.mapping.convert(legacy_values[legacy.name], legacy_values)
        except ValueError as error:
            raise SettingsError(f"{legacy.flag}: invalid value {error}") from None
        field, earlier = legacy.mapping.field, converted.get(legacy.mapping.field)
        # The kinds of several operators are combined.
        value = [*earlier.value, *value] if field == "kinds" and earlier is not None else value
        converted[field] = SourcedValue(value, legacy.flag)
    return converted


def _read_variable(legacy: LegacyVariable, environ: Mapping[str, str]) -> Any:
    try:
        return legacy.convert(environ[legacy.name])
    except ValueError as error:
        raise SettingsError(f"{legacy.name}: invalid value {error}") from None
