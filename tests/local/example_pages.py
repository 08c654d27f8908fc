"""The commands on the pages of the examples, with their output.

Runs of `dlop local` with a manifest are complete. The other commands of a section are a session: they use the cluster that `dlop local`
without a manifest starts, if they need one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.frameworks.example_manifests import EXAMPLES

# The trace of two concurrent shells, which mix their words in any order: kubexec.sh.
_OCCASIONAL = re.compile(r"Killed|plm:rsh: Warning: setpgid")
"""Messages that not every run prints: that of a killed program depends on the shell, and mpirun sets the process group of a child that
may have called exec already."""
_TRACED = re.compile(r"\| ([ +]|POD_NAME=|[\w-]+-(worker|launcher)-\d+|shift|/opt/kube/kubectl|exec|--|/bin/sh|-c|orted .*)+$")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\b\d+m\d+s\b|(\d+ min )?\b[\d.]+ ?(ms|s|m)\b|\d\d:\d\d:\d\d")
_SECTION = re.compile(r"^#+ (.*)$", re.MULTILINE)
_BLOCK = re.compile(r"^```\n(\$ (?:.*\n)*?)```$", re.MULTILINE)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_MANIFEST = re.compile(r"\S+\.yaml")


@dataclass(frozen=True)
class DocumentedCommand:
    """A command of a page and its output."""

    text: str
    output: str

    @property
    def starts_cluster(self) -> bool:
        return self.text.startswith("dlop local ") and self.manifest is None

    @property
    def manifest(self) -> str | None:
        return next((word for word in _MANIFEST.findall(self.text) if "images" not in word), None)


@dataclass(frozen=True)
class DocumentedRun:
    """A run of `dlop local`."""

    page: Path
    command: str
    """Without `dlop`."""
    output: str
    preparation: tuple[str, ...]
    """The commands before it in the same block."""

    @property
    def name(self) -> str:
        return _name(self.page, self.command)

    @property
    def folder(self) -> Path:
        """Paths are relative to the repository or to the directory of the page."""
        return EXAMPLES.parent if "examples/" in self.command else self.page.parent


@dataclass(frozen=True)
class DocumentedSession:
    """The commands of a section after each other. Their paths are relative to the repository."""

    page: Path
    section: str
    commands: tuple[DocumentedCommand, ...]

    @property
    def name(self) -> str:
        return f"{self.page.parent.name}/{self.section}"

    @property
    def submitted(self) -> frozenset[str]:
        """The names of the examples that are submitted."""
        return frozenset(_name(self.page, command.text) for command in self.commands if command.text.startswith("dlop submit "))


def _name(page: Path, command: str) -> str:
    manifest = DocumentedCommand(command, "").manifest
    assert manifest is not None, command
    return f"{page.parent.name}/{Path(manifest).name}"


def _blocks(text: str) -> Iterator[tuple[DocumentedCommand, ...]]:
    for block in _BLOCK.findall(text):
        yield tuple(DocumentedCommand(command, output) for command, output in _COMMAND.findall(block))


def _sections(page: Path) -> Iterator[tuple[str, str]]:
    """The title and the text of each section."""
    _, *parts = _SECTION.split(page.read_text())
    return zip(parts[::2], parts[1::2], strict=True)


def documented_runs() -> Iterator[DocumentedRun]:
    for page in sorted(EXAMPLES.glob("*/README.md")):
        for *preparation, last in _blocks(page.read_text()):
            if last.text.startswith("dlop local ") and not last.starts_cluster:
                yield DocumentedRun(page, last.text.removeprefix("dlop "), last.output, tuple(each.text for each in preparation))


def documented_sessions() -> Iterator[DocumentedSession]:
    for page in sorted(EXAMPLES.glob("*/README.md")):
        for title, text in _sections(page):
            blocks = [block for block in _blocks(text) if not block[-1].text.startswith("dlop local ")]
            if blocks:
                yield DocumentedSession(page, title, tuple(command for block in blocks for command in block))


def documented_cluster(page: Path) -> str:
    """The command with which the page starts a cluster for its sessions."""
    (command,) = (command.text for block in _blocks(page.read_text()) for command in block if command.starts_cluster)
    return command


RUNS = {run.name: run for run in documented_runs()}
SESSIONS = {session.name: session for session in documented_sessions()}


def comparable_lines(output: str) -> Counter[str]:
    """The log lines of replicas and the result, without parts that differ from run to run."""
    last = output.splitlines()[-1]
    lines = [line for line in output.splitlines() if re.match(r"[a-z]+-\d+ +\| ", line) and not _OCCASIONAL.search(line)]
    lines = [line for line in lines if not _TRACED.search(line)]
    return Counter(normalize(line) for line in [*lines, last])


def normalize(line: str) -> str:
    """The line without names, times, numbers and ranks that differ from run to run."""
    # Runtime ids come first: one like tc8m contains what looks like a time.
    line = re.sub(r"-[a-z0-9]{4}-(\d)", r"-ID-\1", line)
    line = _TIME.sub("TIME", line)
    # The jobs of a Cron are named after their time.
    line = re.sub(r"-\d{10}\b", "-TIME", line)
    line = re.sub(r"loss [\d.]+", "loss L", line)
    line = re.sub(r" +\| ", " | ", line)
    # Only one of several pending reasons is printed.
    line = re.sub(r"(not finished within the timeout).*", r"\1", line)
    # Ranks are assigned in the order of arrival.
    return re.sub(r"^worker-\d \| rank \d", "worker | rank N", line)
