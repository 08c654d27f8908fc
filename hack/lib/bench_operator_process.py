"""The operator as people run it, in a process of its own, and what can be read of it from outside."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import bench_processes
import processes
from bench_rows import MeasureError
from prometheus_client.parser import text_string_to_metric_families
from real_cluster import free_port

PROGRAM = ("-m", "dlop")

_READY_WITHIN_SECONDS = 120.0
_END_WITHIN_SECONDS = 30.0
_LOOK_EVERY_SECONDS = 0.02
_LOOKS = 1000
_LOG_TAIL = 3000


@dataclass(frozen=True)
class Samples:
    """What the operator's `/metrics` said at one moment."""

    values: tuple[tuple[str, dict[str, str], float], ...]

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name that have these labels."""
        return sum(value for found, has, value in self.values if found == name and labels.items() <= has.items())

    @property
    def writes(self) -> float:
        """How many requests have changed something, or tried to."""
        return self.total("rest_client_requests_total") - self.total("rest_client_requests_total", method="GET")

    @property
    def passes(self) -> float:
        """How many times a job was looked at."""
        return self.total("controller_runtime_reconcile_total")

    @property
    def unanswered_or_refused(self) -> float:
        """How many writes came to nothing."""
        good = ("200", "201", "202")
        fine = sum(self.total("rest_client_requests_total", method=method, code=code) for method in _WRITES for code in good)
        return self.writes - fine


_WRITES = ("POST", "PATCH", "PUT", "DELETE")


class Operator:
    """A running `python -m dlop run`."""

    def __init__(self, process: subprocess.Popen[bytes], *, log: Path, port: int, session: aiohttp.ClientSession) -> None:
        self._process = process
        self._log = log
        self._url = f"http://127.0.0.1:{port}"
        self._session = session
        self.started_at = time.perf_counter()
        self.ready_after_seconds = 0.0

    @property
    def cpu_seconds(self) -> float:
        """The CPU time it has used so far."""
        return bench_processes.cpu_seconds(self._process.pid)

    def resident_megabytes(self, *, peak: bool = False) -> float:
        """The memory it has in use, or the most it has ever had."""
        return bench_processes.resident_megabytes(self._process.pid, peak=peak)

    def pause(self) -> None:
        """Stop it in the middle of whatever it does."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        self._process.send_signal(signal.SIGCONT)

    async def samples(self) -> Samples:
        """What it has counted so far."""
        try:
            async with self._session.get(f"{self._url}/metrics") as answer:
                text = await answer.text()
        except aiohttp.ClientError as error:
            raise MeasureError(f"the operator does not tell what it has counted: {error}") from error
        families = text_string_to_metric_families(text)
        return Samples(tuple((sample.name, sample.labels, sample.value) for family in families for sample in family.samples))

    async def wait_ready(self) -> None:
        """Wait until its caches are complete."""
        while time.perf_counter() - self.started_at < _READY_WITHIN_SECONDS:
            if self._process.poll() is not None:
                break
            if await self._is_ready():
                self.ready_after_seconds = time.perf_counter() - self.started_at
                return
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
        raise MeasureError("the operator did not become ready")

    async def wait_passes(self, count: int) -> float:
        """Wait until jobs were looked at so many times and none waits; seconds since the start."""
        while (samples := await self.samples()).passes < count or samples.total("workqueue_depth"):
            if time.perf_counter() - self.started_at > _READY_WITHIN_SECONDS:
                raise MeasureError(f"the operator has looked at jobs {samples.passes:.0f} times, not {count} times")
            await asyncio.sleep(5 * _LOOK_EVERY_SECONDS)
        return time.perf_counter() - self.started_at

    async def wait_idle(self) -> None:
        """Wait until no job waits or is being worked on; events may still be on their way."""
        for _ in range(_LOOKS):
            samples = await self.samples()
            if not samples.total("workqueue_depth") and not samples.total("controller_runtime_active_workers"):
                return
            await asyncio.sleep(5 * _LOOK_EVERY_SECONDS)
        raise MeasureError("the operator does not come to an end with its jobs")

    async def wait_quiet(self, *, seconds: float = 1.0) -> Samples:
        """Wait until it has written nothing for so long."""
        samples = await self.samples()
        for _ in range(_LOOKS):
            await asyncio.sleep(seconds)
            before, samples = samples, await self.samples()
            if samples.writes == before.writes and not samples.total("workqueue_depth"):
                return samples
        raise MeasureError("the operator does not stop writing")

    def log_tail(self) -> str:
        """How its log ends."""
        return self._log.read_text(errors="replace")[-_LOG_TAIL:]

    def demand_health(self) -> None:
        """Raises MeasureError when it has ended, or has made a mistake of its own: its figures would mean nothing."""
        if self._process.poll() is not None:
            raise MeasureError("the operator has ended")
        mistakes = [line for line in self._log.read_text(errors="replace").splitlines() if '"level":"error"' in line.replace(" ", "")]
        if mistakes:
            raise MeasureError(f"the operator has logged {len(mistakes)} errors, the first one is:\n{mistakes[0]}")

    async def _is_ready(self) -> bool:
        try:
            async with self._session.get(f"{self._url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def end(self) -> None:
        """Ask it to end, and wait for that."""
        self.go_on()
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, _END_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.asynccontextmanager
async def running_operator(kubeconfig: Path, *, kind: str, namespace: str, folder: Path) -> AsyncIterator[Operator]:
    """An operator that looks after jobs of one kind in one namespace, from when its caches are complete."""
    port, log = free_port(), folder / f"operator-{namespace}-{time.monotonic_ns()}.log"
    command = [sys.executable, *PROGRAM, "run", "--kubeconfig", str(kubeconfig), "--namespaces", namespace]
    flags = ["--kinds", kind, "--bind-address", f"127.0.0.1:{port}", "--leader-election=false", "--log-format", "json"]
    watchdog = processes.Watchdog()
    try:
        process = processes.start([*command, *flags], log_path=log, group=watchdog.group)
        async with aiohttp.ClientSession() as session:
            operator = Operator(process, log=log, port=port, session=session)
            try:
                await operator.wait_ready()
                yield operator
                operator.demand_health()
            except MeasureError as error:
                raise MeasureError(f"{error}\nThe operator's log ends with:\n{operator.log_tail()}") from error
            finally:
                await operator.end()
    finally:
        watchdog.close()
