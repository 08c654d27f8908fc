"""Runs the tests of connections on both event loops that the operator supports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

_ON_BOTH_LOOPS = ("test_connections.py", "test_connection_races.py")


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name in _ON_BOTH_LOOPS:
        try:
            import uvloop  # noqa: PLC0415 - not available on every platform
        except ImportError:
            return factories
        factories["uvloop"] = uvloop.new_event_loop
    return factories
