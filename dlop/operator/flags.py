"""Reads settings from the command line and the environment, under the names of dlop and of the Kubeflow training operator.

The arguments of a Deployment of the Kubeflow training operator start dlop unchanged. What dlop does with them is logged.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dlop.compat.kubeflow.flags import LEGACY_FLAGS, LEGACY_VARIABLES, LegacyFlag, Values
from dlop.frameworks.registry import Registry, load_registry
from dlop.operator import settings as own
from dlop.operator.settings import Settings, SettingsError, SourcedValue, values_from_environment, values_from_flags

_PREFIX = "legacy:"


@dataclass(frozen=True, slots=True)
class LegacyNotice:
    """A legacy flag or variable that is in use, to be logged at the start."""

    name: str
    description: str


def add_arguments(parser: argparse.ArgumentParser, model: type[Settings]) -> None:
    """Add a flag for every setting, and for every legacy flag whose name is not that of a setting."""
    own.add_arguments(parser, model)
    group = parser.add_argument_group("flags of the Kubeflow training operator")
    for legacy in LEGACY_FLAGS:
        if not _is_setting(legacy, model):
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
    """The arguments, with two dashes before legacy flags. Go accepts one dash as well."""
    known = {f"-{legacy.name}" for legacy in LEGACY_FLAGS}
    return [f"-{argument}" if argument.partition("=")[0] in known else argument for argument in arguments]


def flag_names(field: str, model: type[Settings]) -> frozenset[str]:
    """All flags that set a setting, including legacy ones."""
    own_flags = (flag for setting in own.list_settings(model) if setting.field == field for flag in setting.flags)
    legacy_flags = (legacy.flag for legacy in LEGACY_FLAGS if legacy.mapping is not None and legacy.mapping.field == field)
    return frozenset((*own_flags, *legacy_flags))


def read_settings(
    flags: Mapping[str, Any], environ: Mapping[str, str], model: type[Settings] = Settings
) -> tuple[Settings, list[LegacyNotice]]:
    """Read the settings from parsed flags (as a dict of the argparse namespace) and the environment.

    Flags take precedence over variables, and names of dlop over legacy names. Values of `--kinds` and `--enable-scheme`
    are combined. Also returns the legacy names in use.

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
    variables = [legacy for legacy in LEGACY_VARIABLES if environ.get(legacy.name)]
    from_legacy_variables = {legacy.field: SourcedValue(environ[legacy.name], legacy.name) for legacy in variables}
    settings = model.from_values(from_legacy_variables | values_from_environment(environ, model) | from_legacy_flags | from_flags)
    notices = [LegacyNotice(legacy.flag, legacy.description) for legacy in used]
    return settings, notices + [LegacyNotice(legacy.name, legacy.description) for legacy in variables]


def _is_setting(legacy: LegacyFlag, model: type[Settings]) -> bool:
    """Whether dlop has a flag of the same name."""
    return legacy.field in model.model_fields or f"{legacy.field}s" in model.model_fields


def _convert(used: Iterable[LegacyFlag], legacy_values: Mapping[str, Values]) -> dict[str, SourcedValue]:
    converted: dict[str, SourcedValue] = {}
    for legacy in used:
        if legacy.mapping is not None:
            try:
                value = legacy.mapping.convert(legacy_values[legacy.name], legacy_values)
            except ValueError as error:
                raise SettingsError(f"{legacy.flag}: invalid value {error}") from None
            converted[legacy.mapping.field] = SourcedValue(value, legacy.flag)
    return converted
