"""A session as a process: its event loop, its signals, and where its words go."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
import time

import msgspec

from dlop.console.line_screen import JobScreen, LineScreen, QuietScreen
from dlop.laptop.folder import Folder
from dlop.laptop.outcome import Outcome, mistake_lines, verdict_line
from dlop.laptop.session import Order, Session
from dlop.registry import Registry

_TERMINATED = 128 + signal.SIGTERM


def run(order: Order, registry: Registry, *, as_json: bool) -> int:
    """Run an order and tell how it ended. Returns the exit code of the process.

    Raises:
        FolderError, LaptopError: there can be no cluster like that here.
        KeyboardInterrupt: by Ctrl-C, after all is cleaned up.
    """
    screen = _screen(as_json=as_json)

    def stands(folder: Folder, isolation: str) -> None:
        if as_json:
            _write_json({"kubeconfig": str(folder.kubeconfig), "isolation": isolation})
        else:
            _invite(folder, isolation)

    session = Session(order, registry, screen, on_standing=stands)
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            outcome = runner.run(_until_signalled(session))
    except asyncio.CancelledError:
        return _TERMINATED
    if as_json:
        _write_json(outcome)
    else:
        _tell(outcome, screen, logs_were_shown=order.logs)
    return outcome.exit_code


async def _until_signalled(session: Session) -> Outcome:
    """Ctrl-C cancels by itself; being told to end is to do the same."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
    try:
        return await session.run()
    except BaseExceptionGroup as errors:
        raise _only(errors) from None


def _only(error: BaseException) -> BaseException:
    """One reason is easier to tell than a group of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not there on every platform
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _screen(*, as_json: bool) -> JobScreen:
    if as_json:
        return QuietScreen(sys.stderr, clock=time.monotonic)
    if not sys.stdout.isatty():
        return LineScreen(sys.stdout, clock=time.monotonic)

    from rich.console import Console  # noqa: PLC0415 - only terminals need it

    from dlop.console.live_screen import LiveScreen  # noqa: PLC0415

    return LiveScreen(Console(highlight=False), clock=time.monotonic)


def _tell(outcome: Outcome, screen: JobScreen, *, logs_were_shown: bool) -> None:
    if outcome.mistakes:
        sys.stderr.write("".join(f"{line}\n" for line in mistake_lines(outcome.mistakes)))
    elif outcome.jobs:
        way = _way_to_logs(outcome, logs_were_shown=logs_were_shown)
        screen.say(verdict_line(outcome, way_to_logs=way), style="bold red" if outcome.exit_code else "bold green")


def _way_to_logs(outcome: Outcome, *, logs_were_shown: bool) -> str:
    if outcome.kept_in:
        return f" (logs: {Folder.at(outcome.kept_in).pod_logs})"
    return "" if logs_were_shown else " (logs: run it with --logs to see them, with --keep to keep them)"


def _invite(folder: Folder, isolation: str) -> None:
    lines = [
        f"the cluster is up: {isolation}. Ctrl-C ends it. In another terminal:",
        f"  export KUBECONFIG={shlex.quote(str(folder.kubeconfig))}",
        "  dlop submit JOB.yaml --wait      # or: kubectl apply -f JOB.yaml",
        "  dlop get                         # or: kubectl get pods --watch",
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _write_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")
    sys.stdout.flush()
