"""The reason and message of a terminated container. The message is from its termination log, or from the end of its output."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dlop.embedded.kubelet.logs import ContainerLog, LogQuery
from dlop.embedded.kubelet.runtime.base import ExitStatus
from dlop.kube.types import JsonObject

_MAX_MESSAGE_BYTES = 4096
_MAX_LOG_BYTES = 2048
_LOG_LINES = 80


def termination_reason(status: ExitStatus) -> str:
    if status.out_of_memory:
        return "OOMKilled"
    return "Completed" if status.code == 0 else "Error"


def termination_message(container: JsonObject, file: Path, *, exit_code: int, log: ContainerLog | None) -> str:
    message = _read_end(file)
    uses_log = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    if not message and uses_log and exit_code != 0 and log is not None:
        message = log.read_available(LogQuery(tail_lines=_LOG_LINES))[-_MAX_LOG_BYTES:]
    return message.decode(errors="replace")


def _read_end(file: Path) -> bytes:
    # The container may have replaced the file by a pipe, which would block, or by a link to a file of the host.
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        file_status = os.fstat(fd)
        if not stat.S_ISREG(file_status.st_mode):
            return b""
        return os.pread(fd, _MAX_MESSAGE_BYTES, max(0, file_status.st_size - _MAX_MESSAGE_BYTES))
    finally:
        os.close(fd)
