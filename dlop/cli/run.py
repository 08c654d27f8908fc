"""`dlop run`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dlop.cli.common import Parser, look_for_modules_here
from dlop.cli.errors import UsageError


def parser() -> Parser:
    """What the command takes."""
    from dlop.operator.flags import add_arguments

    found = Parser("run", "Runs the operator. Each flag has a variable of the environment; a flag goes before its variable.")
    add_arguments(found)
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the operator until it is told to stop."""
    from dlop.operator.flags import read_settings, with_two_dashes
    from dlop.operator.settings import SettingsError

    try:
        settings, notes = read_settings(vars(parser().parse_args(with_two_dashes(arguments))), os.environ)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if settings.frameworks:
        look_for_modules_here()

    from dlop.operator.main import run

    return run(settings, notes=notes)
