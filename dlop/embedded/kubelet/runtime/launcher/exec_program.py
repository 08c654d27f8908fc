"""Becoming another program, and saying why that is not possible in the words of a container runtime."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import termios
from collections.abc import Mapping, Sequence
from typing import NoReturn

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_FOUND, NOT_EXECUTABLE, NOT_STARTED = 127, 126, 128


class RefusedError(Exception):
    """A program cannot be run."""

    def __init__(self, message: str, *, exit_code: int = NOT_STARTED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def take_streams(streams: Sequence[int | None], *, terminal: bool) -> None:
    """Make these the standard streams, in a session of one's own, whose terminal is stdin if it is to be one."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number, stream in enumerate(streams):
        os.dup2(nothing if stream is None else stream, number)
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def enter_folder(folder: str) -> None:
    """Make this the working folder."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise RefusedError(f'chdir to cwd ("{folder}") failed: {reason(error)}') from None


def become(argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run a program in place of this one."""
    program = find(argv[0], environment.get("PATH", DEFAULT_PATH))
    _forget_signals()
    os.umask(0o022)
    try:
        os.execve(program, list(argv), dict(environment))  # noqa: S606 - that is what it is for
    except OSError as error:
        raise RefusedError(f"exec {program}: {reason(error)}", exit_code=NOT_EXECUTABLE) from None
    except ValueError as error:
        # A null byte, or a variable whose name has an equals sign in it.
        raise RefusedError(f"exec {program}: {error}") from None


def find(name: str, path: str) -> str:
    """Where a program is."""
    if "/" in name:
        _check(name)
        return name
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise RefusedError(f'exec: "{name}": executable file not found in $PATH', exit_code=NOT_FOUND)


def _check(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE
        raise RefusedError(f'exec: "{path}": stat {path}: {reason(error)}', exit_code=code) from None
    if stat.S_ISDIR(mode):
        raise RefusedError(f'exec: "{path}": is a directory', exit_code=NOT_EXECUTABLE)
    if not os.access(path, os.X_OK):
        raise RefusedError(f'exec: "{path}": permission denied', exit_code=NOT_EXECUTABLE)


def _forget_signals() -> None:
    # Python ignores SIGPIPE, and what is ignored stays so in the next program.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except OSError:
            continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def reason(error: OSError) -> str:
    """Why the system has refused, as container runtimes write it."""
    return os.strerror(error.errno or 0).lower()
