"""Errors of commands, with their exit codes."""

from __future__ import annotations


class CommandError(Exception):
    """A command failed. The message is meant for the user."""

    exit_code = 1


class UsageError(CommandError):
    """Invalid arguments or an invalid manifest."""

    exit_code = 2
