"""`dlop` commands on a cluster of `dlop local`, as programs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.frameworks.example_manifests import EXAMPLES
from tests.local.local_process import LocalProcess, start_local

# The first job that needs packages installs them.
TIMEOUT_SECONDS = 300.0


@dataclass
class Command:
    """A running `dlop` command."""

    process: asyncio.subprocess.Process
    text: str = ""

    async def line(self, pattern: str) -> re.Match[str]:
        """Wait for a line of its output that matches."""
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not (match := re.search(pattern, self.text, re.MULTILINE)):
                line = (await self.process.stdout.readline()).decode()
                assert line, f"exited without {pattern}: {self.text}"
                self.text += line
        return match

    async def end(self) -> int:
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            self.text += (await self.process.stdout.read()).decode()
            return await self.process.wait()


@asynccontextmanager
async def dlop(kubeconfig: Path, *words: str, **environment: str) -> AsyncIterator[Command]:
    """Start a command. It is killed at the end of the context if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dlop", *words),
        cwd=EXAMPLES.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONWARNINGS": "error", "KUBECONFIG": str(kubeconfig), **environment},
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(kubeconfig: Path, *words: str) -> str:
    """Run a command that succeeds, and return its output."""
    async with dlop(kubeconfig, *words) as command:
        assert await command.end() == 0, command.text
        return command.text


@asynccontextmanager
async def local_cluster(folder: Path, *words: str) -> AsyncIterator[tuple[LocalProcess, Path]]:
    """A cluster with the images of the examples, whose pods see the folder, and its kubeconfig."""
    images = str(EXAMPLES / "images.yaml")
    # pip causes warnings when it installs packages.
    async with start_local("--images", images, "--mount", str(folder), *words, folder=folder, PYTHONWARNINGS="default") as local:
        yield local, await local.kubeconfig()


async def scalars(url: str) -> Any:
    """The tags of all scalars of a TensorBoard, when it has read the event files."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            async with session.get(f"{url}data/plugin/scalars/tags") as response:
                tags = json.loads(await response.text())
            if tags:
                return tags
            await asyncio.sleep(0.2)
