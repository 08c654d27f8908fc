"""How commands fail."""

from __future__ import annotations


class CommandError(Exception):
    """A command did not work, for a reason that the user can understand."""

    exit_code = 1


class UsageError(CommandError):
    """A command was called wrongly."""

    exit_code = 2
