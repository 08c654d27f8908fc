"""`dlop run`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dlop.cli.common import Parser, add_working_directory_to_path
from dlop.cli.errors import UsageError


def parser() -> Parser:
    from dlop.operator.flags import add_arguments

    parser = Parser("run", "Run the operator. Every flag can also be set by an environment variable; flags take precedence.")
    add_arguments(parser)
    return parser


def main(arguments: Sequence[str]) -> int:
    from dlop.operator.flags import normalize_dashes, read_settings
    from dlop.operator.settings import SettingsError

    try:
        settings, notices = read_settings(vars(parser().parse_args(normalize_dashes(arguments))), os.environ)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if settings.frameworks:
        add_working_directory_to_path()

    from dlop.operator.main import run

    return run(settings, notices=notices)
