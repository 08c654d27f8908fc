"""The operator as a separate process, and its metrics, CPU time and memory."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import bench_processes
import processes
from bench_report import MeasureError
from ports import ReservedPorts
from prometheus_client.parser import text_string_to_metric_families

PROGRAM = ("-m", "dlop")

_READY_TIMEOUT_SECONDS = 120.0
_STOP_TIMEOUT_SECONDS = 30.0
_POLL_INTERVAL_SECONDS = 0.02
_POLLS = 1000
_LOG_TAIL = 3000


@dataclass(frozen=True)
class Samples:
    """The samples of one scrape of `/metrics`."""

    values: tuple[tuple[str, dict[str, str], float], ...]

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples with this name and these labels."""
        return sum(value for sample, sample_labels, value in self.values if sample == name and labels.items() <= sample_labels.items())

    @property
    def writes(self) -> float:
        """Number of write requests, including failed ones."""
        return self.total("rest_client_requests_total") - self.total("rest_client_requests_total", method="GET")

    @property
    def passes(self) -> float:
        """Number of reconcile passes."""
        return self.total("controller_runtime_reconcile_total")

    @property
    def failed_writes(self) -> float:
        success_codes = ("200", "201", "202")
        succeeded = sum(self.total("rest_client_requests_total", method=method, code=code) for method in _WRITES for code in success_codes)
        return self.writes - succeeded


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
        return bench_processes.cpu_seconds(self._process.pid)

    def resident_megabytes(self, *, peak: bool = False) -> float:
        return bench_processes.resident_megabytes(self._process.pid, peak=peak)

    def pause(self) -> None:
        """Stop the process with SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def samples(self) -> Samples:
        try:
            async with self._session.get(f"{self._url}/metrics") as response:
                text = await response.text()
        except aiohttp.ClientError as error:
            raise MeasureError(f"cannot read the metrics of the operator: {error}") from error
        families = text_string_to_metric_families(text)
        return Samples(tuple((sample.name, sample.labels, sample.value) for family in families for sample in family.samples))

    async def wait_ready(self) -> None:
        """Wait until the caches are synced."""
        while time.perf_counter() - self.started_at < _READY_TIMEOUT_SECONDS:
            if self._process.poll() is not None:
                break
            if await self._is_ready():
                self.ready_after_seconds = time.perf_counter() - self.started_at
                return
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        raise MeasureError("the operator did not become ready")

    async def wait_passes(self, count: int) -> float:
        """Wait for this number of reconcile passes and an empty work queue. Returns the seconds since the start."""
        while (samples := await self.samples()).passes < count or samples.total("workqueue_depth"):
            if time.perf_counter() - self.started_at > _READY_TIMEOUT_SECONDS:
                raise MeasureError(f"the operator has made {samples.passes:.0f} reconcile passes, expected {count}")
            await asyncio.sleep(5 * _POLL_INTERVAL_SECONDS)
        return time.perf_counter() - self.started_at

    async def wait_idle(self) -> None:
        """Wait until the work queue is empty and no worker is active. Events may still be pending."""
        for _ in range(_POLLS):
            samples = await self.samples()
            if not samples.total("workqueue_depth") and not samples.total("controller_runtime_active_workers"):
                return
            await asyncio.sleep(5 * _POLL_INTERVAL_SECONDS)
        raise MeasureError("the work queue of the operator does not become empty")

    async def wait_quiet(self, *, seconds: float = 1.0) -> Samples:
        """Wait until the operator makes no write for this time."""
        samples = await self.samples()
        for _ in range(_POLLS):
            await asyncio.sleep(seconds)
            before, samples = samples, await self.samples()
            if samples.writes == before.writes and not samples.total("workqueue_depth"):
                return samples
        raise MeasureError("the operator does not stop writing")

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-_LOG_TAIL:]

    def require_healthy(self) -> None:
        """Raise MeasureError if the operator has exited or logged an error, because the results would be invalid."""
        if self._process.poll() is not None:
            raise MeasureError("the operator has exited")
        errors = [line for line in self._log.read_text(errors="replace").splitlines() if '"level":"error"' in line.replace(" ", "")]
        if errors:
            raise MeasureError(f"the operator has logged {len(errors)} errors, the first one is:\n{errors[0]}")

    async def _is_ready(self) -> bool:
        try:
            async with self._session.get(f"{self._url}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def stop(self) -> None:
        """Terminate the process; kill it if it does not exit in time."""
        self.resume()
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, _STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.asynccontextmanager
async def running_operator(
    kubeconfig: Path, *, kind: str, namespace: str, folder: Path, flags: Sequence[str] = ()
) -> AsyncIterator[Operator]:
    """Run an operator for jobs of one kind in one namespace. Yields it when its caches are synced."""
    ports = ReservedPorts()
    port, log = ports.reserve(), folder / f"operator-{namespace}-{time.monotonic_ns()}.log"
    command = [sys.executable, *PROGRAM, "run", "--kubeconfig", str(kubeconfig), "--namespaces", namespace]
    command += ["--kinds", kind, "--bind-address", f"127.0.0.1:{port}", "--leader-election=false", "--log-format", "json"]
    watchdog = processes.Watchdog()
    try:
        process = processes.start([*command, *flags], log_path=log, group=watchdog.group)
        async with aiohttp.ClientSession() as session:
            operator = Operator(process, log=log, port=port, session=session)
            try:
                await operator.wait_ready()
                yield operator
                operator.require_healthy()
            except MeasureError as error:
                raise MeasureError(f"{error}\nThe operator's log ends with:\n{operator.log_tail()}") from error
            finally:
                await operator.stop()
    finally:
        watchdog.close()
        ports.release()
