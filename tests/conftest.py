"""Fixtures and hooks for all tests: the real cluster, and the selection of tests.

A test that needs the real control plane is skipped if its programs are missing, and a line at the end of the run reports it. With
`DLOP_REQUIRE_CLUSTER=1` it fails.

Tests of frameworks with large packages, tests with Kueue itself, and tests of test tools are deselected unless `-m` selects them. Another
line reports it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest
from kubernetes_build import AssetsError
from real_cluster import RealCluster

from tests import machine
from tests.schedule import Schedule, sort_key
from tests.shared_clusters import Clusters, ClusterSpec, LocalClusters, RemoteClusters, serve_clusters
from tests.thorough import THOROUGH, examples

# No deadline per example, because it would fail on a busy machine. In CI the examples are the same in each run, so that a failure
# is caused by the change under test.
hypothesis.settings.register_profile("thorough", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("thorough"), max_examples=examples(100))
hypothesis.settings.load_profile("thorough" if THOROUGH else "quick")

_DESELECTED_MARKERS = {
    "frameworks": "tests of frameworks with large packages were deselected: `hack/test --frameworks` runs them",
    "kueue": "tests with Kueue itself were deselected: `hack/test --thorough` runs them",
    "selftest": "tests of benchmarks and test tools were deselected: `hack/test --thorough` runs them",
}
"""Markers of tests that are deselected by default, and the text of the summary line after their number."""
_WITHOUT_CLUSTER = "without_cluster"
_DESELECTED = pytest.StashKey[Counter[str]]()
_CLUSTERS = pytest.StashKey[Clusters]()
_ADDRESS = pytest.StashKey[str]()
_EXIT_STACK = pytest.StashKey[contextlib.ExitStack]()


@pytest.fixture(scope="session")
def clusters(request: pytest.FixtureRequest) -> Clusters:
    return request.config.stash[_CLUSTERS]


@pytest.fixture(scope="session")
def real_cluster(clusters: Clusters) -> RealCluster:
    """A real control plane with controllers, shared by all tests of a run. Use a separate namespace."""
    return clusters.get(ClusterSpec())


@pytest.fixture(scope="session")
def cluster_with_nodes(clusters: Clusters) -> RealCluster:
    """A real cluster for tests with a complete node, which runs the pods of all namespaces. Other tests must not create pods there."""
    return clusters.get(ClusterSpec(name="nodes"))


def pytest_configure(config: pytest.Config) -> None:
    # A background job of a shell ignores SIGINT, and so would all programs that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Otherwise pytest-asyncio creates an event loop and does not close it.
    asyncio.set_event_loop(None)
    config.stash[_DESELECTED] = Counter()
    config.addinivalue_line("markers", "frameworks: needs large packages; run by `hack/test --frameworks`")
    config.addinivalue_line("markers", "kueue: needs a build of Kueue; run by `hack/test --thorough`")
    config.addinivalue_line("markers", "selftest: tests a benchmark or a test tool; run by `hack/test --thorough`")
    config.addinivalue_line("markers", f"{machine.MARKER}: uses sockets or other programs; deselected by `hack/test fast`")
    config.stash[_EXIT_STACK] = stack = contextlib.ExitStack()
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is not None:
        config.stash[_CLUSTERS] = RemoteClusters(worker_input[_ADDRESS_KEY])
        return
    config.stash[_CLUSTERS] = own = LocalClusters()
    stack.callback(own.close)
    if config.getoption("numprocesses", None):
        config.stash[_ADDRESS] = stack.enter_context(serve_clusters(own))


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_EXIT_STACK].close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker in _DESELECTED_MARKERS:
        if marker in config.option.markexpr or (marker != "frameworks" and THOROUGH):
            continue
        deselected = [item for item in items if item.get_closest_marker(marker)]
        if deselected:
            config.stash[_DESELECTED][marker] += len(deselected)
            config.hook.pytest_deselected(items=deselected)
            items[:] = [item for item in items if not item.get_closest_marker(marker)]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: sort_key(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    return (yield from _skip_without_cluster(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with machine.forbid_unmarked_use(item):
        return (yield from _skip_without_cluster(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Generator[None, None, None]:
    # Print these lines last, so that they are noticed.
    yield
    skipped = [dict(report.user_properties) for report in terminalreporter.stats.get("skipped", ())]
    reasons = [properties[_WITHOUT_CLUSTER] for properties in skipped if _WITHOUT_CLUSTER in properties]
    if reasons:
        line = f"THE REAL API SERVER WAS NOT TESTED: {len(reasons)} tests skipped, {reasons[0]}"
        terminalreporter.write_line(line, red=True, bold=True)
    for marker, number in config.stash[_DESELECTED].items():
        terminalreporter.write_line(f"{number} {_DESELECTED_MARKERS[marker]}", yellow=True)


def _skip_without_cluster(item: pytest.Item) -> Generator[None, None, None]:
    try:
        return (yield)
    except AssetsError as error:
        if os.environ.get("DLOP_REQUIRE_CLUSTER") == "1":
            raise
        item.user_properties.append((_WITHOUT_CLUSTER, str(error)))
        pytest.skip(str(error))


# --- communication between the main process and the workers -------------------------------------------------------------

_ADDRESS_KEY = "dlop_clusters"
_DESELECTED_KEY = "dlop_deselected"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[_ADDRESS_KEY] = node.config.stash[_ADDRESS]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Schedule | None:
    """Use `tests/schedule.py`, unless the command line selects another distribution mode."""
    return Schedule(config, log) if config.getoption("dist") == "load" else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        deselected: Counter[str] = session.config.stash[_DESELECTED]
        output[_DESELECTED_KEY] = dict(deselected)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # All workers collect the same tests and report the same numbers. A crashed worker reports none.
    numbers: dict[str, int] = getattr(node, "workeroutput", {}).get(_DESELECTED_KEY, {})
    deselected: Counter[str] = node.config.stash[_DESELECTED]
    deselected.update({marker: number - deselected[marker] for marker, number in numbers.items()})
