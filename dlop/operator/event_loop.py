"""Measures how long the event loop is blocked.

A timer is due every few milliseconds. If it fires late, a callback has blocked the loop, another thread has held the interpreter lock,
or the process has got no CPU. The smaller of the delay and the CPU time that the process used meanwhile excludes the last cause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dlop.kube.metrics import Histogram

_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class EventLoopMonitor(Collector):
    """Measures the delays of a timer. A blocked loop is measured with an error of at most the interval."""

    def __init__(
        self,
        *,
        interval_seconds: float = 0.01,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._delays = Histogram(_BUCKETS)
        self.longest_seconds = 0.0
        """The longest delay."""
        self.longest_cpu_seconds = 0.0
        """The longest delay during which the process used the CPU."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the running event loop while the context is open."""
        self._timer = self._start(asyncio.get_running_loop())
        try:
            yield
        finally:
            self._timer.cancel()

    def _start(self, loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle:
        return loop.call_later(self._interval_seconds, self._observe, loop, self._clock(), self._cpu_clock())

    def _observe(self, loop: asyncio.AbstractEventLoop, started_at: float, cpu_started_at: float) -> None:
        delay_seconds = max(0.0, self._clock() - started_at - self._interval_seconds)
        self._delays.observe(delay_seconds)
        self.longest_seconds = max(self.longest_seconds, delay_seconds)
        self.longest_cpu_seconds = max(self.longest_cpu_seconds, min(delay_seconds, self._cpu_clock() - cpu_started_at))
        self._timer = self._start(loop)

    def collect(self) -> Iterator[Metric]:
        delays = HistogramMetricFamily("dlop_event_loop_delay_seconds", "Delay of a timer of the event loop in seconds.")
        self._delays.add_to(delays, [])
        longest = GaugeMetricFamily(
            "dlop_event_loop_longest_delay_seconds",
            "The longest delay of the event loop since the start, and the longest one in CPU time of the process.",
            labels=["clock"],
        )
        longest.add_metric(["wall"], self.longest_seconds)
        longest.add_metric(["cpu"], self.longest_cpu_seconds)
        yield from (delays, longest)
