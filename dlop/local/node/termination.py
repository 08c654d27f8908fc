"""Why a container has ended, and what it has to say about it: in a file that it may write, or at the end of its log."""

from __future__ import annotations

import os
from pathlib import Path

from dlop.kube.errors import JsonObject
from dlop.local.node.logs import ContainerLog, LogQuery
from dlop.local.node.runtime.base import Exit

_LONGEST_MESSAGE = 4096
_LONGEST_LOG = 2048
_LOG_LINES = 80


def reason_of(ending: Exit) -> str:
    """The word for an end."""
    if ending.out_of_memory:
        return "OOMKilled"
    return "Completed" if ending.code == 0 else "Error"


def termination_message(container: JsonObject, file: Path, *, exit_code: int, log: ContainerLog | None) -> str:
    """The message of a container that has ended."""
    message = _end_of(file)
    falls_back = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    if not message and falls_back and exit_code != 0 and log is not None:
        message = log.text(LogQuery(tail_lines=_LOG_LINES))[-_LONGEST_LOG:]
    return message.decode(errors="replace")


def _end_of(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - _LONGEST_MESSAGE))
            return opened.read(_LONGEST_MESSAGE)
    except OSError:
        # The container may have put anything in its place.
        return b""
