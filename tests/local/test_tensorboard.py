"""`dlop tensorboard` with a real TensorBoard in `dlop local`, and a job that writes real event files."""

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
import pytest
import yaml

from dlop.kube.types import JsonObject
from tests.frameworks.example_manifests import EXAMPLES
from tests.local.local_process import LocalProcess, start_local

# The first test installs the package tensorboard.
pytestmark = pytest.mark.timeout(420)
TIMEOUT_SECONDS = 300.0

_PROGRAM = """
import sys, time
from pathlib import Path
from tensorboard.summary import Writer

folder = Path(sys.argv[1])
writer = Writer(str(folder))
for step in range(10):
    writer.add_scalar("loss", 1 / (step + 1), step)
writer.close()
print("written", flush=True)
while not (folder / "stop").exists():
    time.sleep(0.1)
"""


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
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dlop", words[0], "--kubeconfig", str(kubeconfig), *words[1:]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(kubeconfig: Path, *words: str) -> str:
    async with dlop(kubeconfig, *words) as command:
        assert await command.end() == 0, command.text
        return command.text


@asynccontextmanager
async def local_cluster(folder: Path, *words: str) -> AsyncIterator[tuple[LocalProcess, Path]]:
    images = str(EXAMPLES / "images.yaml")
    # pip causes warnings when it installs the package.
    async with start_local("--images", images, "--mount", str(folder), *words, folder=folder, PYTHONWARNINGS="default") as local:
        yield local, await local.kubeconfig()


def job(logs: Path, **tensorboard: Any) -> JsonObject:
    """A job whose TensorBoard reads the directory in which it writes."""
    mount = {"name": "logs", "mountPath": "/logs"}
    container = {"name": "jax", "image": "tensorboard:2", "command": ["python", "-c", _PROGRAM, "/logs"], "volumeMounts": [mount]}
    volumes = [{"name": "logs", "hostPath": {"path": str(logs), "type": "DirectoryOrCreate"}}]
    worker = {"replicas": 1, "template": {"spec": {"containers": [container], "volumes": volumes}}}
    spec = {"jaxReplicaSpecs": {"Worker": worker}, "runPolicy": {"tensorBoard": {"logDir": "/logs", **tensorboard}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": "curves"}, "spec": spec}


async def scalars(url: str) -> Any:
    """The tags of all scalars, when the TensorBoard has read the event files."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            async with session.get(f"{url}data/plugin/scalars/tags") as response:
                tags = json.loads(await response.text())
            if tags:
                return tags
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",)], ids=["namespaces", "plain processes"])
async def test_dlop_tensorboard_shows_the_scalars_of_a_job_and_opens_a_browser(tmp_path: Path, isolation: tuple[str, ...]) -> None:
    logs, opened = tmp_path / "logs", tmp_path / "opened"
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(logs)))
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    async with local_cluster(tmp_path, *isolation) as (_, kubeconfig):
        await run(kubeconfig, "submit", str(file))
        async with dlop(kubeconfig, "tensorboard", "curves", BROWSER=str(browser)) as command:
            url = (await command.line(r"^http://127\.0\.0\.1:\d+/default/curves/$"))[0]
            assert list((await scalars(url)).values()) == [{"loss": {"displayName": "", "description": ""}}]
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not opened.exists():  # noqa: ASYNC110 - another process writes the file
                    await asyncio.sleep(0.05)
            assert opened.read_text().strip() == url
            (logs / "stop").touch()
            await run(kubeconfig, "wait", "curves")
            assert list(await scalars(url)) == ["."]
            await run(kubeconfig, "delete", "curves")
            assert await command.end() == 1
        assert "JAXJob curves was deleted, and its TensorBoard with it" in command.text


async def test_dlop_tensorboard_ends_with_ctrl_c(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(tmp_path / "logs")))
    async with local_cluster(tmp_path) as (_, kubeconfig):
        await run(kubeconfig, "submit", str(file))
        async with dlop(kubeconfig, "tensorboard", "curves", "--no-browser") as command:
            url = (await command.line(r"^http://127\.0\.0\.1:\d+/default/curves/$"))[0]
            assert await scalars(url)
            command.process.send_signal(2)
            assert await command.end() == 130
        assert "Traceback" not in command.text
