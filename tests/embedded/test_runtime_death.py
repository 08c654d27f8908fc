"""Processes do not outlive the program, launcher or runtime that started them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dlop.embedded.kubelet.runtime.base import ExitStatus, LaunchError
from tests.embedded.runtime_kit import RUNTIMES, TIMEOUT_SECONDS, Pods, children, launcher_of_this_process, pipe, start_pods

PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from tests.embedded.runtime_kit import RUNTIMES, Pods

async def main(mode, directory, output):
    async with RUNTIMES[mode]() as runtime:
        pod = await Pods(runtime, Path(directory)).pod()
        script = "setsid sh -c 'setsid sleep 1000 & sleep 1000' & (trap : TERM HUP INT; setsid sleep 1000) & echo started; wait"
        main = await pod.start("sh", "-c", script, stdout=output)
        await pod.start("sh", "-c", "echo started; exec sleep 1000", stdout=output, join=main)
        os.close(output)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.parametrize("mode", RUNTIMES)
@pytest.mark.parametrize("victim", ["the program", "its launcher"])
async def test_sigkill_leaves_no_process(mode: str, victim: str, tmp_path: Path) -> None:
    """The output ends when the last process that could write to it has exited."""
    async with pipe() as (output, end):
        arguments = (sys.executable, "-c", PROGRAM, mode, str(tmp_path), str(end.fileno()))
        program = await asyncio.create_subprocess_exec(*arguments, pass_fds=[end.fileno()], cwd=Path(__file__).parents[2])
        end.close()
        assert [await output.line(), await output.line()] == ["started", "started"]
        (launcher,) = children(program.pid)
        os.kill(program.pid if victim == "the program" else launcher, signal.SIGKILL)
        assert await output.rest() == ""
        if victim == "its launcher":
            with suppress(ProcessLookupError):  # it exits by itself if it still waits for a response of its launcher
                program.kill()
        await program.wait()


@pytest.mark.parametrize("mode", RUNTIMES)
async def test_leaving_the_runtime_kills_all_processes(mode: str, tmp_path: Path) -> None:
    async with RUNTIMES[mode]() as runtime:
        pod = await Pods(runtime, tmp_path).pod()
        process, output = await pod.start_with_output("sh", "-c", "setsid sleep 1000 & echo started; wait")
        assert await output.line() == "started"
    assert await output.rest() == ""
    assert await process.wait() == ExitStatus(137, signal=signal.SIGKILL)


@pytest.mark.parametrize("mode", RUNTIMES)
async def test_a_lost_launcher_fails_pending_and_later_calls(mode: str, tmp_path: Path) -> None:
    async with start_pods(RUNTIMES[mode](), tmp_path) as pods:
        pod = await pods.pod()
        process = await pod.start("sleep", "1000")
        os.kill(launcher_of_this_process(), signal.SIGKILL)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await process.wait() == ExitStatus(137, signal=signal.SIGKILL)
        with pytest.raises(LaunchError):
            await pod.start("true")
        with pytest.raises(LaunchError):
            await pods.pod("another")
