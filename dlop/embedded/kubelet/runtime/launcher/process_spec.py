"""What a process to start is, for both kinds of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from . import exec_program


@dataclass(frozen=True, slots=True)
class Binding:
    """Something of the host under another path. An optional one is left out where the host has nothing there."""

    source: str
    target: str
    read_only: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A container that another process is started in: its number on the host, and its control group."""

    pid: int
    group: str | None


@dataclass(frozen=True, slots=True)
class Order:
    """A process to start."""

    argv: list[str]
    environment: dict[str, str]
    folder: str | None
    bindings: list[Binding]
    streams: list[int | None]
    terminal: bool
    memory_bytes: int | None
    beside: Neighbour | None

    @classmethod
    def of(cls, body: dict[str, Any], files: list[int], *, beside: Neighbour | None) -> Order:
        """As it was said. `streams` says which of the standard streams the files are."""
        given = iter(files)
        return cls(
            argv=body["argv"],
            environment=body["environment"],
            folder=body["folder"],
            bindings=[Binding(**binding) for binding in body["bindings"]],
            streams=[next(given) if present else None for present in body["streams"]],
            terminal=body["terminal"],
            memory_bytes=body["memory_bytes"],
            beside=beside,
        )

    def carry_out(self, folder: str) -> NoReturn:
        """Become the program."""
        exec_program.take_streams(self.streams, terminal=self.terminal)
        exec_program.enter_folder(folder)
        exec_program.become(self.argv, self.environment)
