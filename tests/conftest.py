"""For every test: the real cluster, and what happens where there is none.

A test that needs the real control plane and does not find its programs is skipped, and one loud line at the end of the
run says so. With `DLOP_REQUIRE_CLUSTER=1` it fails.

Tests of frameworks with huge packages are left out, which another line says, unless `-m` asks for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Iterator

import hypothesis
import pytest
from kubernetes_build import AssetsError
from real_cluster import RealCluster

# A limit in real time for each example fails on a busy machine and says nothing about the code.
# In CI the examples are the same each time: there the change is judged, and new examples are looked for elsewhere.
hypothesis.settings.register_profile("dlop", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("dlop")

_WITHOUT_CLUSTER = pytest.StashKey[list[str]]()
_FRAMEWORKS = "frameworks"
_LEFT_OUT = pytest.StashKey[list[pytest.Item]]()


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[RealCluster]:
    """One real cluster with its controllers, shared by all tests of a run: use a namespace of your own."""
    with RealCluster.started(controllers=True) as cluster:
        yield cluster


def pytest_configure(config: pytest.Config) -> None:
    # Else pytest-asyncio, asking for the loop that was there before its own, makes one and leaves it open.
    asyncio.set_event_loop(None)
    config.stash[_WITHOUT_CLUSTER] = []
    config.stash[_LEFT_OUT] = []
    config.addinivalue_line("markers", f"{_FRAMEWORKS}: needs huge packages; run by `hack/test --frameworks`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _FRAMEWORKS in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker(_FRAMEWORKS)]
    if left_out:
        config.stash[_LEFT_OUT] += left_out
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(_FRAMEWORKS)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    return (yield from _skipping_without_cluster(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    return (yield from _skipping_without_cluster(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Generator[None, None, None]:
    # Below everything else that pytest has to say: the last lines are those that are read.
    yield
    reasons = config.stash[_WITHOUT_CLUSTER]
    if reasons:
        line = f"THE REAL API SERVER WAS NOT TESTED: {len(reasons)} tests skipped, {reasons[0]}"
        terminalreporter.write_line(line, red=True, bold=True)
    if left_out := config.stash[_LEFT_OUT]:
        line = f"{len(left_out)} tests of frameworks with huge packages were left out: `hack/test --frameworks` runs them"
        terminalreporter.write_line(line, yellow=True)


def _skipping_without_cluster(item: pytest.Item) -> Generator[None, None, None]:
    try:
        return (yield)
    except AssetsError as error:
        if os.environ.get("DLOP_REQUIRE_CLUSTER") == "1":
            raise
        item.config.stash[_WITHOUT_CLUSTER].append(str(error))
        pytest.skip(str(error))
