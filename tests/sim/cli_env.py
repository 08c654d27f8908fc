"""Test environment: a cluster with an operator and scripted pods, and the `dlop` commands as a user runs them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from dlop import DLJob
from dlop.cli.main import main
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from tests.sim.crew_job import FRAMEWORK, KINDS, CrewJob

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """Cells of a table without its header. Cells may contain single spaces."""
        return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in self.out.splitlines()[1:]]


@dataclass
class BackgroundCommand:
    """A command that runs in its own process."""

    process: asyncio.subprocess.Process
    text: str = ""

    async def wait_for_output(self, pattern: str) -> None:
        """Wait until the output matches a regular expression."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            while not re.search(pattern, self.text):
                line = await self.process.stdout.readline()
                assert line, f"the command exited without {pattern!r}: {self.text}"
                self.text += line.decode()


@dataclass(frozen=True)
class CliEnv:
    kit: OperatorKit
    kubeconfig: Path
    folder: Path
    capture: pytest.CaptureFixture[str]

    async def dlop(self, command: str, *arguments: str) -> CommandResult:
        """Run a command in a thread, while the cluster and the operator run in this one."""
        self.capture.readouterr()
        code = await asyncio.to_thread(main, [command, "--kubeconfig", str(self.kubeconfig), *FRAMEWORK, *arguments])
        printed = self.capture.readouterr()
        return CommandResult(code, printed.out, printed.err)

    def write_file(self, *manifests: JsonObject, name: str = "job.yaml") -> str:
        path = self.folder / name
        path.write_text(yaml.safe_dump_all(manifests, sort_keys=False))
        return str(path)

    def line_number(self, text: str, name: str = "job.yaml") -> int:
        """The number of the line with this text."""
        lines = (self.folder / name).read_text().splitlines()
        return [line.strip() for line in lines].index(text) + 1

    async def submit_and_wait(self, manifest: JsonObject, phase: str) -> None:
        """Submit a job and wait until it is in a phase."""
        await self.kit.until(await self.kit.submit(manifest), phase=phase, within_seconds=30)

    def object_names(self, resource: Resource) -> list[str]:
        return [key.name for key, _ in self.kit.cluster.store.list(resource.qualified_name)]

    async def delete_job(self, name: str) -> None:
        """Delete a job without a command."""
        await self.kit.client.delete(CrewJob.job_type.resource, name, namespace="default")

    async def wait_for_event(self, name: str, reason: str) -> None:
        await self.kit.until(f"default/{name}", reached=lambda view: reason in dict(view.events), within_seconds=30)

    @asynccontextmanager
    async def run_in_background(self, command: str, *arguments: str) -> AsyncIterator[BackgroundCommand]:
        """Run a command in its own process until the context is closed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dlop", command, "--kubeconfig", str(self.kubeconfig), *FRAMEWORK, *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
        )
        background = BackgroundCommand(process)
        try:
            yield background
        finally:
            if process.returncode is None:
                process.kill()
            rest, _ = await process.communicate()
            background.text += rest.decode()


@asynccontextmanager
async def cli_env(
    folder: Path, capture: pytest.CaptureFixture[str], *, operator: bool = True, kinds: Iterable[type[DLJob]] = KINDS
) -> AsyncIterator[CliEnv]:
    async with OperatorKit(kinds, time_scale=0.01, operator=operator and bool(kinds)) as kit:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps((await kit.cluster.serve()).kubeconfig()))
        # The operator runs in this process, and its log would mix with the output of the commands.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        try:
            yield CliEnv(kit, kubeconfig, folder, capture)
        finally:
            structlog.reset_defaults()
