"""The delays of the event loop, as metrics."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from dlop.operator.event_loop import EventLoopMonitor
from dlop.testing.virtual_time import VirtualTimeLoop, virtual_time


class CpuClock:
    """CPU time of the process, set by the test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def running_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def longest(registry: CollectorRegistry, clock: str) -> float:
    value = registry.get_sample_value("dlop_event_loop_longest_delay_seconds", {"clock": clock})
    assert value is not None
    return round(value, 6)


def slower_than(registry: CollectorRegistry, seconds: str) -> float:
    name = "dlop_event_loop_delay_seconds_bucket"
    total, faster = (registry.get_sample_value(name, {"le": bound}) for bound in ("+Inf", seconds))
    assert total is not None
    assert faster is not None
    return total - faster


@virtual_time
async def test_a_callback_that_blocks_the_loop_is_measured_in_wall_time_and_in_cpu_time() -> None:
    loop, cpu, registry = running_loop(), CpuClock(), CollectorRegistry()
    monitor = EventLoopMonitor(clock=loop.time, cpu_clock=cpu)
    registry.register(monitor)
    with monitor.running():
        await asyncio.sleep(1.0)
        assert (longest(registry, "wall"), slower_than(registry, "0.05")) == (0.0, 0.0)
        loop.advance(0.2)
        cpu.seconds += 0.2
        await asyncio.sleep(1.0)
    assert 0.19 <= longest(registry, "wall") <= 0.2
    assert 0.19 <= longest(registry, "cpu") <= 0.2
    assert slower_than(registry, "0.05") == 1


@virtual_time
async def test_a_delay_of_a_process_without_cpu_is_not_measured_in_cpu_time() -> None:
    loop, cpu = running_loop(), CpuClock()
    monitor = EventLoopMonitor(clock=loop.time, cpu_clock=cpu)
    with monitor.running():
        loop.advance(3.0)
        cpu.seconds += 0.004
        await asyncio.sleep(1.0)
    assert monitor.longest_seconds > 2.9
    assert round(monitor.longest_cpu_seconds, 6) == 0.004


@virtual_time
async def test_the_timer_ends_with_its_context() -> None:
    monitor = EventLoopMonitor(clock=running_loop().time)
    with monitor.running():
        await asyncio.sleep(0.1)
    running_loop().advance(1.0)
    await asyncio.sleep(1.0)
    assert round(monitor.longest_seconds, 6) == 0.0
