"""Replaces the process with a program. Error messages match those of container runtimes."""

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


class ExecError(Exception):
    def __init__(self, message: str, *, exit_code: int = NOT_STARTED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def set_standard_streams(streams: Sequence[int | None], *, terminal: bool) -> None:
    """Start a session with these standard streams. None means /dev/null. With `terminal`, stdin becomes the controlling terminal."""
    os.setsid()
    devnull = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number, stream in enumerate(streams):
        os.dup2(devnull if stream is None else stream, number)
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def change_directory(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise ExecError(f'chdir to cwd ("{directory}") failed: {lowercase_strerror(error)}') from None


def exec_program(argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    program = find_executable(argv[0], environment.get("PATH", DEFAULT_PATH))
    _reset_signals()
    os.umask(0o022)
    try:
        os.execve(program, list(argv), dict(environment))  # noqa: S606 - a shell is not needed
    except OSError as error:
        raise ExecError(f"exec {program}: {lowercase_strerror(error)}", exit_code=NOT_EXECUTABLE) from None
    except ValueError as error:
        # A null byte in a string, or an equals sign in a variable name.
        raise ExecError(f"exec {program}: {error}") from None


def find_executable(name: str, path: str) -> str:
    if "/" in name:
        _check_executable(name)
        return name
    for directory in path.split(os.pathsep):
        candidate = os.path.join(directory or ".", name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise ExecError(f'exec: "{name}": executable file not found in $PATH', exit_code=NOT_FOUND)


def _check_executable(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE
        raise ExecError(f'exec: "{path}": stat {path}: {lowercase_strerror(error)}', exit_code=code) from None
    if stat.S_ISDIR(mode):
        raise ExecError(f'exec: "{path}": is a directory', exit_code=NOT_EXECUTABLE)
    if not os.access(path, os.X_OK):
        raise ExecError(f'exec: "{path}": permission denied', exit_code=NOT_EXECUTABLE)


def _reset_signals() -> None:
    # Python ignores SIGPIPE, and exec keeps ignored signals ignored.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except OSError:
            continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def lowercase_strerror(error: OSError) -> str:
    """The error as container runtimes format it."""
    return os.strerror(error.errno or 0).lower()
