"""`dlop run`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dlop.commands.common import Parser, look_for_modules_here
from dlop.commands.errors import UsageError


def parser() -> Parser:
    """What the command takes."""
    from dlop.flag_reading import add_arguments  # noqa: PLC0415 - imports pydantic

    found = Parser("run", "Runs the operator. Each flag has a variable of the environment; a flag goes before its variable.")
    add_arguments(found)
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the operator until it is told to stop."""
    from dlop.flag_reading import read_settings, with_two_dashes  # noqa: PLC0415 - imports pydantic
    from dlop.settings import SettingsError  # noqa: PLC0415

    try:
        settings, notes = read_settings(vars(parser().parse_args(with_two_dashes(arguments))), os.environ)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if settings.frameworks:
        look_for_modules_here()

    from dlop.process import run  # noqa: PLC0415 - imports everything

    return run(settings, notes=notes)
