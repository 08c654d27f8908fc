"""`dlop run`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, load_frameworks
from dlop.cli.errors import UsageError

if TYPE_CHECKING:
    from dlop.operator.settings import Settings


def parser(model: type[Settings] | None = None) -> Parser:
    """The flags of these settings; by default those of the operator and of all installed frameworks."""
    from dlop.operator.flags import add_arguments
    from dlop.operator.settings import with_framework_flags

    parser = Parser("run", "Run the operator. Every flag can also be set by an environment variable; flags take precedence.")
    add_arguments(parser, model or with_framework_flags(load_frameworks(()).flags))
    return parser


def main(arguments: Sequence[str]) -> int:
    from dlop.operator.flags import normalize_dashes, read_settings
    from dlop.operator.settings import SettingsError, with_framework_flags

    words = normalize_dashes(arguments)
    # Frameworks are loaded before the other flags are parsed, because they declare some of them.
    registry = load_frameworks(framework_references(words, os.environ))
    model = with_framework_flags(registry.flags)
    try:
        settings, notices = read_settings(vars(parser(model).parse_args(words)), os.environ, model)
    except SettingsError as error:
        raise UsageError(str(error)) from error

    from dlop.operator.main import run

    return run(settings, registry, notices=notices)


def framework_references(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The frameworks in the arguments or the environment, as `module:Class`. Other flags are ignored."""
    from dlop.operator.settings import Settings, list_settings

    (setting,) = (setting for setting in list_settings(Settings) if setting.field == "frameworks")
    parser = Parser("run", "")
    parser.add_argument(*setting.flags, dest=setting.field, action="append", default=None)
    flags, _ = parser.parse_known_args([word for word in arguments if word not in ("-h", "--help")])
    return Settings.load(vars(flags), {name: value for name, value in environ.items() if name == setting.variable}).frameworks
