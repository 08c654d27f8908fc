"""Faults of a chaos test outside the jobs: killed and paused operators, restarts of the API server, compactions of etcd."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from random import Random

import processes
from chaos_watch import Change, EtcdWatch, Histories
from real_cluster import RealCluster

OPERATORS = 2
LEASE_NAMESPACE = "chaos-lease"
_LEASE_SECONDS = 4
_FLAGS = (
    *("--leader-election=true", "--lease-namespace", LEASE_NAMESPACE, "--lease-duration-seconds", str(_LEASE_SECONDS)),
    *("--renew-deadline-seconds", "3", "--retry-period-seconds", "1", "--bind-address", "off", "--log-format", "json"),
)
_RESTART_DELAY_SECONDS = 0.5


class ClusterFault(StrEnum):
    KILL_LEADER = "kill the leader"
    KILL_STANDBY = "kill the standby"
    KILL_OPERATORS = "kill both operators"
    PAUSE_LEADER = "pause the leader"
    """For longer than the lease, so that two operators consider themselves the leader."""
    RESTART_API_SERVER = "restart the API server"
    STOP_API_SERVER = "stop the API server for longer than the lease"
    """The leader exits. The standby becomes the leader before all its watches are resumed."""
    COMPACT = "compact etcd"
    COMPACT_AND_RESTART = "compact etcd and restart the API server"
    KILL_LEADER_AND_RESTART = "kill the leader and restart the API server"


_DECK = (*ClusterFault, ClusterFault.KILL_LEADER, ClusterFault.RESTART_API_SERVER)


def draw_faults(*, seed: int) -> Iterator[tuple[float, ClusterFault]]:
    """An endless sequence of faults, each with the seconds to wait before it. Each deck has every fault."""
    rng = Random(f"{seed}/faults")
    while True:
        for fault in rng.sample(_DECK, len(_DECK)):
            yield rng.uniform(1.0, 4.0), fault


class Operators:
    """Two operators with leader election. An operator that exits is started again."""

    def __init__(self, kubeconfig: Path, folder: Path, *, namespace: str) -> None:
        self._command = [sys.executable, "-m", "dlop", "run", "--kubeconfig", str(kubeconfig), "--namespaces", namespace, *_FLAGS]
        self._folder = folder
        self._watchdog = processes.Watchdog()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._logs: dict[int, Path] = {}
        self._killed: set[int] = set()
        self._holder = ""
        self.kills = 0
        self.exits: Counter[int] = Counter()
        """Exits that the test has not caused directly, such as after lost leadership, by exit code."""

    async def run(self) -> None:
        """Keep the operators running until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for slot in range(OPERATORS):
                    group.create_task(self._keep_running(slot), name=f"operator {slot}")
        finally:
            self._watchdog.close()

    async def _keep_running(self, slot: int) -> None:
        for number in range(sys.maxsize):
            log = self._logs[slot] = self._folder / f"operator-{slot}-{number}.log"
            process = self._processes[slot] = processes.start(self._command, log_path=log, group=self._watchdog.group)
            await asyncio.to_thread(process.wait)
            if process.pid not in self._killed:
                self.exits[process.returncode] += 1
            await asyncio.sleep(_RESTART_DELAY_SECONDS)

    def on_change(self, change: Change) -> None:
        if change.namespace == LEASE_NAMESPACE and change.resource == "leases":
            self._holder = "" if change.deleted else change.body["spec"].get("holderIdentity") or ""

    @property
    def has_leader(self) -> bool:
        return bool(self._holder)

    def leader(self) -> int | None:
        """The slot of the leader; None if it is unknown. Only the log relates a process to its identity."""
        if not self._holder:
            return None
        return next((slot for slot, log in self._logs.items() if self._holder in log.read_text(errors="replace")), None)

    def kill(self, slot: int) -> None:
        process = self._processes[slot]
        if process.poll() is None:
            self.kills += 1
            self._killed.add(process.pid)
            process.kill()

    @contextlib.contextmanager
    def paused(self, slot: int) -> Iterator[None]:
        process = self._processes[slot]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def errors(self) -> list[str]:
        """Errors in the logs that are no consequence of lost leadership."""
        lines = [line for log in sorted(self._folder.glob("operator-*.log")) for line in log.read_text(errors="replace").splitlines()]
        return [line for line in lines if "Traceback" in line or ('"level":"error"' in line.replace(" ", "") and "leader" not in line)]


class ClusterFaults:
    """Injects faults one after another."""

    def __init__(
        self, cluster: RealCluster, operators: Operators, histories: Histories, watch: EtcdWatch, *, report: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._operators = operators
        self._histories = histories
        self._watch = watch
        self._report = report
        self.counts: Counter[str] = Counter()
        self.restart_seconds: list[float] = []
        """How long each start of the API server took, until it was ready."""
        self._restarts: list[tuple[ClusterFault, float]] = []
        """The faults that restarted the API server, and when it was ready."""

    async def run(self, *, seed: int) -> None:
        """Inject faults until cancelled. A fault that was started is completed."""
        for seconds, fault in draw_faults(seed=seed):
            await asyncio.sleep(seconds)
            self._report(fault.value)
            self.counts[fault] += 1
            injection = asyncio.create_task(self._inject(fault))
            try:
                await asyncio.shield(injection)
            except asyncio.CancelledError:
                await injection
                raise

    async def _inject(self, fault: ClusterFault) -> None:
        leader = await asyncio.to_thread(self._operators.leader) or 0
        match fault:
            case ClusterFault.KILL_LEADER:
                self._operators.kill(leader)
            case ClusterFault.KILL_STANDBY:
                self._operators.kill(1 - leader)
            case ClusterFault.KILL_OPERATORS:
                self._operators.kill(0)
                self._operators.kill(1)
            case ClusterFault.PAUSE_LEADER:
                with self._operators.paused(leader):
                    await asyncio.sleep(_LEASE_SECONDS + 2)
            case ClusterFault.COMPACT:
                await asyncio.to_thread(self._cluster.compact)
            case ClusterFault.RESTART_API_SERVER:
                await self._restart_api_server(fault)
            case ClusterFault.COMPACT_AND_RESTART:
                await self._restart_api_server(fault, compact=True)
            case ClusterFault.KILL_LEADER_AND_RESTART:
                self._operators.kill(leader)
                await self._restart_api_server(fault)
            case ClusterFault.STOP_API_SERVER:
                await self._restart_api_server(fault, after_seconds=_LEASE_SECONDS)

    async def _restart_api_server(self, fault: ClusterFault, *, compact: bool = False, after_seconds: float = 0.0) -> None:
        self._cluster.kill_api_server(0)
        if compact:
            await asyncio.to_thread(self._cluster.compact)
        await asyncio.sleep(after_seconds)
        started_at = time.monotonic()
        await asyncio.to_thread(self._cluster.restart_api_server, 0)
        self.restart_seconds.append(time.monotonic() - started_at)
        ready_at = self._watch.seconds
        self._restarts.append((fault, ready_at))
        self._histories.wait_for_write_after(ready_at)

    def recovery_seconds(self) -> dict[ClusterFault, list[float | None]]:
        """By fault, the seconds from each restart of the API server to the first write of an operator; None if there was none."""
        seconds: defaultdict[ClusterFault, list[float | None]] = defaultdict(list)
        for fault, ready_at in self._restarts:
            written_at = self._histories.first_write_after[ready_at]
            seconds[fault].append(written_at - ready_at if written_at >= 0 else None)
        return seconds
