"""`dlop` and `python -m dlop`: finds the command and hands over to it.

Each command is a module of `dlop.cli` with a function `main(arguments) -> int`, imported only when it is asked for: help
must come at once. Exit codes: 0 all is well, 1 it did not work, 2 it was called wrongly. What goes wrong is told in a sentence.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from dlop.cli.command_list import COMMANDS, DEFAULT_COMMAND
from dlop.cli.errors import CommandError, UsageError

__all__ = ["COMMANDS", "exit_with_code", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return 0
    if words and words[0] == "--version":
        words[0] = "version"
    name = words.pop(0) if words and not words[0].startswith("-") else DEFAULT_COMMAND
    try:
        return _run(name, words)
    except CommandError as error:
        sys.stderr.write(f"dlop {name}: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        # What a shell makes of a process that ended by SIGINT.
        return 130


def exit_with_code() -> NoReturn:
    """The entry point of the script `dlop`."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python would complain when it flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _run(name: str, arguments: Sequence[str]) -> int:
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(COMMANDS)}."
        raise UsageError(f"there is no such command; {hint}")
    code: int = getattr(importlib.import_module(f"dlop.cli.{command.module}"), command.main)(arguments)
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: dlop [COMMAND] [ARGUMENTS]",
            "",
            "Runs distributed deep-learning jobs on Kubernetes.",
            "",
            *rows,
            "",
            "`dlop COMMAND --help` tells more about a command.",
            "",
        ]
    )
