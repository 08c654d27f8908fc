"""The commands on the pages of the examples that are not runs of `dlop local` print the output of the page."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.frameworks.example_manifests import EXAMPLES
from tests.local.cluster_commands import dlop, local_cluster, scalars
from tests.local.example_pages import SESSIONS, DocumentedCommand, documented_cluster, normalize

# The first test that needs a framework installs it.
pytestmark = pytest.mark.timeout(420)

PATIENCE_SECONDS = 120.0
_PROGRESS = re.compile(r"^ *[\d.]+s  ")
_WAITING = "waiting for the TensorBoard "
_WITHOUT_CLUSTER = "dlop render "
_CHANGING = ("dlop get ", "dlop describe ")


def comparable(output: str) -> list[str]:
    """The lines without the progress of jobs and what differs from run to run."""
    lines = [line for line in output.splitlines() if not _PROGRESS.match(line)]
    return [re.sub(r" +", " ", normalize(line)) for line in lines]


async def run(command: DocumentedCommand, kubeconfig: Path | None) -> str:
    """Run a command in a shell, and return its output."""
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    process = await asyncio.create_subprocess_shell(
        command.text,
        cwd=EXAMPLES.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment if kubeconfig is None else {**environment, "KUBECONFIG": str(kubeconfig)},
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def check(command: DocumentedCommand, kubeconfig: Path | None) -> None:
    """Check the output of a command. Commands that show a state are repeated until they show that of the page."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (PATIENCE_SECONDS if command.text.startswith(_CHANGING) else 0)
    output = await run(command, kubeconfig)
    while comparable(output) != comparable(command.output) and loop.time() < deadline:
        output = await run(command, kubeconfig)
    assert comparable(output) == comparable(command.output)


async def check_tensorboard(command: DocumentedCommand, kubeconfig: Path) -> None:
    """Check that the TensorBoard is at the address of the page, with the loss of the job."""
    documented = re.sub(r":\d+/", r":\\d+/", command.output.splitlines()[-1])
    async with dlop(kubeconfig, *command.text.split()[1:], BROWSER="true") as process:
        url = (await process.line(f"^{documented}$"))[0]
        assert [list(tags) for tags in (await scalars(url)).values()] == [["loss"]]
        process.process.send_signal(signal.SIGINT)
        assert await process.end() == 130
    lines = [line for line in process.text.splitlines() if not line.startswith(_WAITING)]
    assert lines == [url]


@pytest.mark.parametrize("name", SESSIONS)
async def test_the_commands_of_a_section_print_its_output(name: str, tmp_path: Path) -> None:
    session = SESSIONS[name]
    if all(command.text.startswith(_WITHOUT_CLUSTER) for command in session.commands):
        for command in session.commands:
            await check(command, None)
        return
    assert documented_cluster(session.page) == "dlop local --images examples/images.yaml"
    async with local_cluster(tmp_path) as (_, kubeconfig):
        for command in session.commands:
            if command.text.startswith("dlop tensorboard "):
                await check_tensorboard(command, kubeconfig)
            else:
                await check(command, kubeconfig)
