"""`dlop version`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from dlop.cli.common import Parser


def parser() -> Parser:
    return Parser("version", "Print the versions of dlop and Python.")


def main(arguments: Sequence[str]) -> int:
    parser().parse_args(arguments)
    try:
        own = version("dlop")
    except PackageNotFoundError:
        own = "(not installed)"
    sys.stdout.write(f"dlop {own}, Python {platform.python_version()}\n")
    return 0
