"""Both runtimes: processes start, exit and are killed like the processes of containers."""

from __future__ import annotations

import asyncio
import gc
import os
import pty
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dlop.embedded.kubelet.runtime.base import ExitStatus, LaunchError, LaunchRequest, Mount, Runtime
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from tests.embedded.runtime_kit import PATH, RUNTIMES, Pod, Pods, children, launcher_of_this_process, pods_in

LEAVE_DESCENDANTS = "setsid sh -c 'setsid sleep 1000 & sleep 1000' & sleep 1000 & echo started; "


# All tests here share one runtime and create their own pods.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=RUNTIMES)
async def runtime(request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    async with RUNTIMES[request.param]() as runtime:
        yield runtime


@pytest_asyncio.fixture(loop_scope="module")
async def pods(runtime: Runtime, tmp_path: Path) -> AsyncIterator[Pods]:
    async with pods_in(runtime, tmp_path) as pods:
        yield pods


@pytest_asyncio.fixture(loop_scope="module")
async def pod(pods: Pods) -> Pod:
    return await pods.pod()


@pytest.mark.parametrize("code", [0, 1, 42, 137, 255])
async def test_the_exit_code_of_the_program_is_reported(pod: Pod, code: int) -> None:
    assert await pod.shell(f"exit {code}") == (ExitStatus(code), "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_a_signal_is_reported_as_128_plus_its_number(pod: Pod, number: int) -> None:
    # The init process of a PID namespace ignores signals without a handler. Other processes do not.
    main = await pod.start("sleep", "1000")
    process = await pod.start("sleep", "1000", join=main)
    process.signal(number)
    assert await process.wait() == ExitStatus(128 + number, signal=number)


async def test_arguments_are_passed_unchanged(pod: Pod) -> None:
    _, text = await pod.run("printf", "%s|", "a b", "", "ü", "$HOME", "*")
    assert text == "a b||ü|$HOME|*|"


async def test_the_environment_is_not_inherited(pod: Pod) -> None:
    _, text = await pod.run("/usr/bin/env", environment={"ANSWER": "42"})
    assert sorted(text.splitlines()) == sorted([f"PATH={PATH}", "ANSWER=42"])


async def test_a_program_inherits_no_open_files(pod: Pod) -> None:
    _, text = await pod.run(sys.executable, "-c", "import os; print(*sorted(int(n) for n in os.listdir('/dev/fd') if int(n) < 100))")
    # The fourth is the directory that is being read.
    assert text == "0 1 2 3"


async def test_a_program_starts_with_no_signal_ignored_or_blocked(pod: Pod) -> None:
    _, text = await pod.run("grep", "-E", "Sig(Ign|Blk)", "/proc/self/status")
    assert {line.split()[1] for line in text.splitlines()} == {"0" * 16}


async def test_the_program_is_looked_up_on_the_path_of_its_environment(pod: Pod) -> None:
    program = pod.directory / "greet"
    program.write_text("#!/bin/sh\necho hello from $0\n")
    program.chmod(0o755)
    with pytest.raises(LaunchError):
        await pod.start("greet")
    _, text = await pod.run("greet", environment={"PATH": f"/opt/mine:{PATH}"}, mounts=(Mount(pod.directory, "/opt/mine"),))
    assert text.startswith("hello from ")


async def test_without_stdin_a_program_reads_nothing(pod: Pod) -> None:
    assert await pod.run("cat") == (ExitStatus(0), "")


async def test_stdin_is_passed_to_the_program(pod: Pod) -> None:
    read, write = os.pipe()
    os.write(write, b"hello")
    os.close(write)
    try:
        assert await pod.run("cat", stdin=read) == (ExitStatus(0), "hello")
    finally:
        os.close(read)


async def test_a_process_runs_in_its_working_directory(pod: Pod) -> None:
    _, text = await pod.run("pwd", working_dir="/usr/lib")
    assert text == "/usr/lib"


async def test_a_large_environment_is_passed(pod: Pod) -> None:
    environment = {f"VARIABLE_{number}": "x" * 10_000 for number in range(60)}
    status, text = await pod.run("sh", "-c", "echo ${#VARIABLE_59}", environment=environment)
    assert (status, text) == (ExitStatus(0), "10000")


@pytest.mark.parametrize(
    ("program", "message", "code"),
    [
        ("no-such-program", 'exec: "no-such-program": executable file not found in $PATH', 127),
        ("/no/such/program", 'exec: "/no/such/program": stat /no/such/program: no such file or directory', 127),
        ("/etc/passwd", 'exec: "/etc/passwd": permission denied', 126),
        ("/etc", 'exec: "/etc": is a directory', 126),
        ("/opt/mine/nonsense", "exec format error", 126),
        ("/opt/mine/orphan", "no such file or directory", 126),
    ],
)
async def test_a_program_that_cannot_be_run_fails_as_in_a_container_runtime(pod: Pod, program: str, message: str, code: int) -> None:
    for name, text in (("nonsense", "no program at all"), ("orphan", "#!/no/such/interpreter\n")):
        (pod.directory / name).write_text(text)
        (pod.directory / name).chmod(0o755)
    with pytest.raises(LaunchError) as caught:
        await pod.start(program, mounts=(Mount(pod.directory, "/opt/mine"),))
    assert message in str(caught.value)
    assert caught.value.exit_code == code


async def test_an_empty_command_is_refused(pod: Pod) -> None:
    with pytest.raises(LaunchError, match="no command specified"):
        await pod.sandbox.start(LaunchRequest(argv=(), environment={}))


async def test_a_variable_that_cannot_be_set_is_refused(pod: Pod) -> None:
    with pytest.raises(LaunchError, match="illegal environment variable name"):
        await pod.start("true", environment={"A=B": "c"})


async def test_arguments_that_are_too_long_are_refused(pod: Pod) -> None:
    with pytest.raises(LaunchError, match="argument list too long"):
        await pod.start("true", "x" * (1 << 20))


async def test_descendants_are_killed_when_a_process_exits(pod: Pod) -> None:
    process, output = await pod.start_with_output("sh", "-c", LEAVE_DESCENDANTS + "exit 3")
    assert await output.rest() == "started"
    assert await process.wait() == ExitStatus(3)


async def test_descendants_are_killed_when_a_process_is_killed(pod: Pod) -> None:
    process, output = await pod.start_with_output("sh", "-c", LEAVE_DESCENDANTS + "wait")
    assert await output.line() == "started"
    process.signal(signal.SIGKILL)
    assert await process.wait() == ExitStatus(137, signal=signal.SIGKILL)
    assert await output.rest() == ""


async def test_a_process_can_handle_sigterm(pod: Pod) -> None:
    process, output = await pod.start_with_output("sh", "-c", "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    assert await output.line() == "ready"
    process.signal(signal.SIGTERM)
    assert await output.rest() == "bye"
    assert await process.wait() == ExitStatus(5)


async def test_a_signal_after_the_exit_has_no_effect_and_wait_can_be_called_again(pod: Pod) -> None:
    process = await pod.start("true")
    assert await process.wait() == ExitStatus(0)
    process.signal(signal.SIGKILL)
    assert await process.wait() == ExitStatus(0)


async def test_a_cancelled_wait_does_not_affect_other_waiters(pod: Pod) -> None:
    process = await pod.start("sleep", "1000")
    cancelled, waiter = asyncio.create_task(process.wait()), asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    process.signal(signal.SIGKILL)
    assert (await waiter).code == 137


async def test_the_pid_of_a_process_is_the_one_on_the_host(pod: Pod) -> None:
    process = await pod.start("sleep", "1000")
    assert _command(process.pid) == b"sleep\0001000\0"


async def test_a_cancelled_start_leaves_no_process(pod: Pod) -> None:
    read, write = os.pipe()
    start = asyncio.create_task(pod.start("sleep", "1000", stdout=write))
    await asyncio.sleep(0)
    start.cancel()
    await asyncio.wait([start])
    os.close(write)
    with os.fdopen(read, "rb") as file:
        assert await asyncio.to_thread(file.read) == b""


async def test_a_sandbox_whose_creation_was_cancelled_is_closed(pods: Pods) -> None:
    await pods.pod("first")
    before = _open_files(pods)
    creation = asyncio.create_task(pods.pod("second"))
    await asyncio.sleep(0)
    creation.cancel()
    await asyncio.wait([creation])
    # The launcher handles requests in order, so the second sandbox is closed before the third.
    third = await pods.pod("third")
    await third.close()
    assert _open_files(pods) <= before


async def test_a_program_has_the_usual_open_file_limit(pod: Pod) -> None:
    assert (await pod.shell("ulimit -n"))[1] == str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


async def test_a_closed_sandbox_has_no_processes_and_starts_none(pod: Pod) -> None:
    _, output = await pod.start_with_output("sh", "-c", LEAVE_DESCENDANTS + "wait")
    assert await output.line() == "started"
    await pod.sandbox.close()
    assert await output.rest() == ""
    with pytest.raises(LaunchError):
        await pod.start("true")
    with pytest.raises(OSError, match="closed"):
        await pod.sandbox.connect(80)
    await pod.sandbox.close()


async def test_a_terminal_becomes_the_controlling_terminal(pod: Pod) -> None:
    master, terminal = pty.openpty()
    try:
        process = await pod.start(
            "sh", "-c", "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done", stdin=terminal, stdout=terminal, terminal=True
        )
        assert os.read(master, 100).startswith(b"ready")
        os.write(master, b"\x03")
        assert await process.wait() == ExitStatus(9)
    finally:
        os.close(master)
        os.close(terminal)


async def test_an_exec_sees_the_files_of_its_pod(pod: Pod) -> None:
    (pod.directory / "file").write_text("content")
    main = await pod.start("sleep", "1000", mounts=(Mount(pod.directory, "/data"),))
    _, text = await pod.shell("cat /data/file", join=main, mounts=(Mount(pod.directory, "/data"),))
    assert text == "content"


async def test_an_exec_is_killed_with_its_container(pod: Pod) -> None:
    main = await pod.start("sleep", "1000")
    joined, output = await pod.start_with_output("sh", "-c", LEAVE_DESCENDANTS + "wait", join=main)
    assert await output.line() == "started"
    main.signal(signal.SIGKILL)
    assert (await joined.wait()).code == 137
    assert await output.rest() == ""


async def test_an_exec_in_an_exited_container_is_refused(pod: Pod) -> None:
    main = await pod.start("true")
    await main.wait()
    with pytest.raises(LaunchError, match="container is not running"):
        await pod.start("true", join=main)


async def test_a_memory_limit_stops_a_process_that_exceeds_it(pod: Pod) -> None:
    status, text = await pod.run(sys.executable, "-c", "import sys; b'x' * (1 << len(sys.argv) + 29)", memory_limit_bytes=128 << 20)
    assert status.code != 0
    assert status.out_of_memory or text.endswith("MemoryError")
    assert (await pod.run(sys.executable, "-c", "print('small')", memory_limit_bytes=128 << 20))[1] == "small"


async def test_one_hundred_concurrent_pods_leave_no_open_files(pods: Pods) -> None:
    async def one(number: int) -> str:
        new_pod = await pods.pod(f"pod-{number}")
        _, text = await new_pod.shell("echo done")
        await new_pod.close()
        return text

    await one(0)
    before = _open_files(pods)
    assert await asyncio.gather(*(one(number) for number in range(1, 101))) == ["done"] * 100
    assert _open_files(pods) <= before


def _open_files(pods: Pods) -> int:
    """Open files of this process and of the launcher. In namespaces the launcher is the only child of its first process.

    Files of earlier tests may still be closed between two calls, so a test compares for more files, not for other numbers.
    """
    gc.collect()
    launcher = launcher_of_this_process()
    if isinstance(pods.runtime, NamespacesRuntime):
        (launcher,) = children(launcher)
    return sum(1 for pid in (os.getpid(), launcher) for _ in Path(f"/proc/{pid}/fd").iterdir())


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
