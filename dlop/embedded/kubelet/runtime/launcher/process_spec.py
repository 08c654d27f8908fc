"""The process to start, as received from the runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from . import exec_program


@dataclass(frozen=True, slots=True)
class BindMount:
    """An optional mount is skipped if its source does not exist."""

    source: str
    target: str
    read_only: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class JoinTarget:
    """A container that another process joins: its PID on the host and the path of its cgroup."""

    pid: int
    cgroup: str | None


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    argv: list[str]
    environment: dict[str, str]
    working_dir: str | None
    mounts: list[BindMount]
    streams: list[int | None]
    terminal: bool
    memory_bytes: int | None
    join: JoinTarget | None

    @classmethod
    def from_request(cls, body: dict[str, Any], fds: list[int], *, join: JoinTarget | None) -> ProcessSpec:
        """`body["streams"]` has a flag for each standard stream that `fds` contains."""
        remaining = iter(fds)
        return cls(
            argv=body["argv"],
            environment=body["environment"],
            working_dir=body["working_dir"],
            mounts=[BindMount(**mount) for mount in body["mounts"]],
            streams=[next(remaining) if present else None for present in body["streams"]],
            terminal=body["terminal"],
            memory_bytes=body["memory_bytes"],
            join=join,
        )

    def exec(self, working_dir: str) -> NoReturn:
        """Replace the current process."""
        exec_program.set_standard_streams(self.streams, terminal=self.terminal)
        exec_program.change_directory(working_dir)
        exec_program.exec_program(self.argv, self.environment)
