"""How pytest-xdist distributes the tests.

A unit of work is run by one worker, test by test. By default a unit is a file, so that its fixtures are created once. Long files are
split into tests. Tests that must not run at the same time form one unit. Long units start first, so that no worker is left with one
at the end.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

_ROOT = Path(__file__).parents[1]
_REAL = re.compile(r"[\[-]real[\]-]")
_CONFORMANCE, _RINGS, _CLUSTER_ROLES, _NODES = "conformance on the real server", "ring CRDs", "cluster roles", "nodes on the real server"
_KUEUE = "Kueue CRDs"

_SPLIT_FILES = frozenset(
    {
        "tests/local/test_example_sessions.py",
        "tests/local/test_examples_with_processes.py",
        "tests/local/test_kubedl_jobs.py",
        "tests/local/test_robustness.py",
        "tests/sim/test_faults.py",
        "tests/sim/test_faults_features.py",
        "tests/sim/test_faults_restart_scopes.py",
    }
)
_SHARED_UNITS = {
    # Their CRDs of the same kind differ.
    "tests/cluster/test_handover.py": _RINGS,
    "tests/cluster/test_operator_killed.py": _RINGS,
    "tests/frameworks/test_examples_on_api_servers.py": _RINGS,
    # They apply and delete cluster roles of the same names, and their operators watch all namespaces.
    "tests/cluster/test_crds.py": _CLUSTER_ROLES,
    "tests/cluster/test_autoscaler_permissions.py": _CLUSTER_ROLES,
    "tests/cluster/test_cron_permissions.py": _CLUSTER_ROLES,
    "tests/cluster/test_gang_permissions.py": _CLUSTER_ROLES,
    "tests/cluster/test_mpi_permissions.py": _CLUSTER_ROLES,
    "tests/cluster/test_operator_permissions.py": _CLUSTER_ROLES,
    "tests/cluster/test_permissions.py": _CLUSTER_ROLES,
    # They share the control plane with the CRDs of Kueue.
    "tests/cluster/test_kueue_permissions.py": _KUEUE,
    "tests/frameworks/test_kueue_workloads.py": _KUEUE,
    "tests/frameworks/test_kueue_itself.py": _KUEUE,
    # A node runs the pods of all namespaces, and the autoscaler considers all nodes.
    "tests/cluster/test_autoscaler.py": _NODES,
    "tests/embedded/test_kubectl_with_node.py": _NODES,
    "tests/local/test_official_client.py": _NODES,
    "tests/embedded/test_pod_on_real_server.py": _NODES,
}
"""Files that belong to one unit, because they change the same cluster-scoped objects."""
_LONGEST_UNITS = (
    _CONFORMANCE,
    _CLUSTER_ROLES,
    "tests/local/test_elastic_dlrover.py",
    "tests/local/test_local_command.py",
    _RINGS,
    _NODES,
    "tests/cluster/test_edit_sequences.py",
    "tests/embedded/test_kubelet_contract.py",
    "tests/frameworks/test_goldens.py",
    _KUEUE,
    "tests/frameworks/test_kueue.py",
    "tests/cluster/test_manifests_with_kubectl.py",
)


class Schedule(LoadScopeScheduling):  # type: ignore[misc]
    """Assigns units to workers, in the order in which the tests were collected."""

    def __init__(self, config: Any, log: Any) -> None:
        _require_files()
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """The unit that a test belongs to."""
    file, _, test = nodeid.partition("::")
    if file in _SPLIT_FILES:
        return nodeid
    if file.startswith("tests/conformance/") and _REAL.search(test):
        # These tests share one real server and compact its history.
        return _CONFORMANCE
    return _SHARED_UNITS.get(file, file)


def sort_key(nodeid: str) -> int:
    """Tests with lower keys run first; tests with equal keys keep the order of collection."""
    unit = unit_of(nodeid)
    return _LONGEST_UNITS.index(unit) if unit in _LONGEST_UNITS else len(_LONGEST_UNITS)


def _require_files() -> None:
    """Fail if a file of the schedule was renamed."""
    named = {*_SPLIT_FILES, *_SHARED_UNITS, *(unit for unit in _LONGEST_UNITS if unit.endswith(".py"))}
    missing = sorted(file for file in named if not (_ROOT / file).exists())
    if missing:
        raise FileNotFoundError(f"tests/schedule.py names files that do not exist: {', '.join(missing)}")
