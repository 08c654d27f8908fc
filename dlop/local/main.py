"""Run a session as a process: event loop, signals and output."""

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
from dlop.local.workdir import WorkDir

if TYPE_CHECKING:
    from dlop.console.plain_view import ProgressView
    from dlop.embedded.kubelet.runtime.detect import DetectedRuntime
    from dlop.frameworks.registry import Registry
    from dlop.local.result import SessionResult

_TERMINATED = 128 + signal.SIGTERM


def run(options: RunOptions, load_kinds: Callable[[], Registry], *, as_json: bool) -> int:
    """Run a session and print its result. Returns the exit code of the process.

    Raises:
        WorkDirError, LocalError: the cluster cannot be started.
        KeyboardInterrupt: on Ctrl-C, after the cleanup.
    """
    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            return runner.run(_until_signalled(options, load_kinds, as_json=as_json))
    except asyncio.CancelledError:
        return _TERMINATED


async def _until_signalled(options: RunOptions, load_kinds: Callable[[], Registry], *, as_json: bool) -> int:
    # Ctrl-C cancels the main task. SIGTERM and SIGHUP do the same.
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
    runtime_detection = asyncio.create_task(options.node.choose_runtime())
    try:
        # Imports take most of the start-up time. The runtime detection runs in the meantime.
        registry = await asyncio.to_thread(_import_and_load_kinds, load_kinds)
        return await _run(options, registry, runtime_detection, as_json=as_json)
    except BaseExceptionGroup as errors:
        raise _unwrap(errors) from None
    finally:
        runtime_detection.cancel()
        await asyncio.gather(runtime_detection, return_exceptions=True)


def _import_and_load_kinds(load_kinds: Callable[[], Registry]) -> Registry:
    importlib.import_module("dlop.local.session")
    return load_kinds()


async def _run(options: RunOptions, registry: Registry, runtime_detection: Awaitable[DetectedRuntime], *, as_json: bool) -> int:
    from dlop.local.session import Session  # noqa: PLC0415

    progress = _progress_view(as_json=as_json)
    on_ready = _print_connection_json if as_json else _print_connection
    result = await Session(options, registry, progress, runtime_detection=runtime_detection, on_ready=on_ready).run()
    if as_json:
        _write_json(result)
    else:
        _print_result(result, progress, has_printed_logs=options.logs)
    return result.exit_code


def _unwrap(error: BaseException) -> BaseException:
    """The only exception of nested groups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not available on every platform
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _progress_view(*, as_json: bool) -> ProgressView:
    from dlop.console.plain_view import PlainView, QuietView  # noqa: PLC0415

    if as_json:
        return QuietView(sys.stderr)
    if not sys.stdout.isatty():
        return PlainView(sys.stdout)

    from rich.console import Console  # noqa: PLC0415 - only terminals need it

    from dlop.console.live_view import LiveView  # noqa: PLC0415

    return LiveView(Console(highlight=False), clock=time.monotonic)


def _print_result(result: SessionResult, progress: ProgressView, *, has_printed_logs: bool) -> None:
    from dlop.local.result import format_errors, format_result_line  # noqa: PLC0415

    if result.errors:
        sys.stderr.write("".join(f"{line}\n" for line in format_errors(result.errors)))
    elif result.jobs:
        hint = _log_hint(result, has_printed_logs=has_printed_logs)
        progress.print_message(format_result_line(result, log_hint=hint), style="bold red" if result.exit_code else "bold green")


def _log_hint(result: SessionResult, *, has_printed_logs: bool) -> str:
    if result.kept_in:
        return f" (logs: {WorkDir.at(result.kept_in).pod_logs})"
    return "" if has_printed_logs else " (use --logs to print the logs, --keep to keep them)"


def _print_connection_json(workdir: WorkDir, isolation: str) -> None:
    _write_json({"kubeconfig": str(workdir.kubeconfig), "isolation": isolation})


def _print_connection(workdir: WorkDir, isolation: str) -> None:
    lines = [
        f"the cluster is ready: {isolation}. Press Ctrl-C to stop it. In another terminal:",
        f"  export KUBECONFIG={shlex.quote(str(workdir.kubeconfig))}",
        "  dlop submit JOB.yaml --wait      # or: kubectl apply -f JOB.yaml",
        "  dlop get                         # or: kubectl get pods --watch",
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _write_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")
    sys.stdout.flush()
