"""A session as a process: its event loop, its signals, and where its words go."""

from __future__ import annotations

import asyncio
import importlib
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from dlop.local.options import RunOptions
from dlop.local.workdir import Folder

if TYPE_CHECKING:
    from dlop.console.plain_view import JobScreen
    from dlop.embedded.kubelet.runtime.detect import Choice
    from dlop.frameworks.registry import Registry
    from dlop.local.result import SessionResult

_TERMINATED = 128 + signal.SIGTERM


def run(order: RunOptions, load_kinds: Callable[[], Registry], *, as_json: bool) -> int:
    """Run an order and tell how it ended. Returns the exit code of the process.

    Raises:
        FolderError, LaptopError: there can be no cluster like that here.
        KeyboardInterrupt: by Ctrl-C, after all is cleaned up.
    """
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            return runner.run(_until_signalled(order, load_kinds, as_json=as_json))
    except asyncio.CancelledError:
        return _TERMINATED


async def _until_signalled(order: RunOptions, load_kinds: Callable[[], Registry], *, as_json: bool) -> int:
    """Ctrl-C cancels by itself; being told to end is to do the same."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
    choosing = asyncio.create_task(order.machine.choose_runtime())
    try:
        # Loading takes most of the time until a job runs. The processes of the trial have it while it lasts.
        registry = await asyncio.to_thread(_loaded, load_kinds)
        return await _run(order, registry, choosing, as_json=as_json)
    except BaseExceptionGroup as errors:
        raise _only(errors) from None
    finally:
        choosing.cancel()
        await asyncio.gather(choosing, return_exceptions=True)


def _loaded(load_kinds: Callable[[], Registry]) -> Registry:
    importlib.import_module("dlop.local.session")
    return load_kinds()


async def _run(order: RunOptions, registry: Registry, choosing: Awaitable[Choice], *, as_json: bool) -> int:
    from dlop.local.session import Session  # noqa: PLC0415

    screen = _screen(as_json=as_json)
    stands = _tell_machines if as_json else _invite
    outcome = await Session(order, registry, screen, choosing=choosing, on_standing=stands).run()
    if as_json:
        _write_json(outcome)
    else:
        _tell(outcome, screen, logs_were_shown=order.logs)
    return outcome.exit_code


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
    from dlop.console.plain_view import LineScreen, QuietScreen  # noqa: PLC0415

    if as_json:
        return QuietScreen(sys.stderr)
    if not sys.stdout.isatty():
        return LineScreen(sys.stdout)

    from rich.console import Console  # noqa: PLC0415 - only terminals need it

    from dlop.console.live_view import LiveScreen  # noqa: PLC0415

    return LiveScreen(Console(highlight=False), clock=time.monotonic)


def _tell(outcome: SessionResult, screen: JobScreen, *, logs_were_shown: bool) -> None:
    from dlop.local.result import mistake_lines, verdict_line  # noqa: PLC0415

    if outcome.mistakes:
        sys.stderr.write("".join(f"{line}\n" for line in mistake_lines(outcome.mistakes)))
    elif outcome.jobs:
        way = _way_to_logs(outcome, logs_were_shown=logs_were_shown)
        screen.say(verdict_line(outcome, way_to_logs=way), style="bold red" if outcome.exit_code else "bold green")


def _way_to_logs(outcome: SessionResult, *, logs_were_shown: bool) -> str:
    if outcome.kept_in:
        return f" (logs: {Folder.at(outcome.kept_in).pod_logs})"
    return "" if logs_were_shown else " (logs: run it with --logs to see them, with --keep to keep them)"


def _tell_machines(folder: Folder, isolation: str) -> None:
    _write_json({"kubeconfig": str(folder.kubeconfig), "isolation": isolation})


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
