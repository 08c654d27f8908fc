"""Entry point of `dlop` and `python -m dlop`.

Each command is a module of `dlop.cli` with a function `main(arguments) -> int`. It is imported only when it runs, so that help is
fast. Exit codes: 0 success, 1 failure, 2 invalid usage, 130 after Ctrl-C.
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
    """Run a command and return its exit code."""
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
        # 128 + SIGINT, as shells report it.
        return 130


def exit_with_code() -> NoReturn:
    """The entry point of the `dlop` script."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python reports an error when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _run(name: str, arguments: Sequence[str]) -> int:
    command = COMMANDS.get(name)
    if command is None:
        similar = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {similar[0]!r}?" if similar else f"commands: {', '.join(COMMANDS)}."
        raise UsageError(f"unknown command; {hint}")
    code: int = getattr(importlib.import_module(f"dlop.cli.{command.module}"), command.main)(arguments)
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: dlop [COMMAND] [ARGUMENTS]",
            "",
            "Run distributed deep-learning jobs on Kubernetes.",
            "",
            "commands:",
            *rows,
            "",
            "Use `dlop COMMAND --help` for more information about a command.",
            "",
        ]
    )
