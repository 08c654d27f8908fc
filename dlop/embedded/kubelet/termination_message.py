"""Why a container has ended, and what it has to say about it: in a file that it may write, or at the end of its log."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dlop.embedded.kubelet.logs import ContainerLog, LogQuery
from dlop.embedded.kubelet.runtime.base import Exit
from dlop.kube.types import JsonObject

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
    # The container may have put anything in its place: a pipe, at which we would wait, or a link to a file that is not its own.
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            return b""
        return os.pread(opened, _LONGEST_MESSAGE, max(0, found.st_size - _LONGEST_MESSAGE))
    finally:
        os.close(opened)
