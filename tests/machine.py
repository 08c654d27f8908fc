"""The marker `machine`: tests in `tests/unit` and `tests/sim` that use sockets or other programs must have it.

`hack/test fast` deselects these tests. A test without the marker that uses sockets or other programs fails.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import cache

import pytest

MARKER = "machine"

_FOLDERS = ("tests/unit/", "tests/sim/")
_FORBIDDEN = frozenset({"socket.bind", "socket.connect", "subprocess.Popen", "os.posix_spawn", "os.exec"})
_unmarked_tests: list[str] = []
"""The id of the running test, if it does not have the marker."""


@contextlib.contextmanager
def forbid_unmarked_use(item: pytest.Item) -> Iterator[None]:
    """Fail a test without the marker that uses sockets or other programs."""
    if not item.nodeid.startswith(_FOLDERS) or item.get_closest_marker(MARKER):
        yield
        return
    _install()
    _unmarked_tests.append(item.nodeid)
    try:
        yield
    finally:
        _unmarked_tests.pop()


@cache
def _install() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, _: object) -> None:
    if _unmarked_tests and event in _FORBIDDEN:
        raise AssertionError(f"{event} is only allowed in tests with the marker {MARKER!r}, which {_unmarked_tests[-1]} does not have")
