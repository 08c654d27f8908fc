"""`hack/bench`: all measurements work. The results themselves are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubernetes_build import require_assets

from tests.hack.scripts import run

pytestmark = pytest.mark.selftest


def test_the_kube_benchmark_prints_a_table_and_writes_all_results_with_their_goals(tmp_path: Path) -> None:
    require_assets()
    process = run("hack/bench", "kube", "--quick", "--json", tmp_path / "results.json")
    assert process.returncode == 0, process.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]

    goals = {(row["at_most"], row["at_least"]) for row in rows}
    assert goals >= {(40, None), (50, None), (8, None), (None, 0.95), (None, 2500)}
    assert all(row["value"] > 0 for row in rows if row["at_most"] != 8)
    assert all(row["name"] in process.stdout for row in rows)


@pytest.mark.timeout(240)
def test_the_operator_benchmark_prints_a_table_and_writes_all_results_with_their_goals(tmp_path: Path) -> None:
    require_assets()
    process = run("hack/bench", "operator", "--quick", "--json", tmp_path / "results.json", timeout_seconds=230.0)
    assert process.returncode == 0, process.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]

    goals = {(row["at_most"], row["at_least"]) for row in rows}
    assert goals >= {(None, 0.8), (None, 0.85), (1.4, None), (4, None), (130, None), (0, None), (12, None), (8, None)}
    assert [row["value"] for row in rows if row["at_most"] == 0] == [0] * 4
    assert all(row["name"] in process.stdout for row in rows)


@pytest.mark.timeout(240)
def test_the_results_of_another_kind_are_compared_with_those_of_mxjob(tmp_path: Path) -> None:
    require_assets()
    arguments = ("operator", "--quick", "--kind", "pytorch", "--only", "jobs", "kinds", "lifecycle", "--json", tmp_path / "results.json")
    process = run("hack/bench", *arguments, timeout_seconds=230.0)
    assert process.returncode == 0, process.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]

    assert process.stdout.splitlines()[0].split() == ["measured", "goal", "MXJob", "ratio"]
    comparisons = [row for row in rows if row["reference"] is None]
    assert [row["name"] for row in rows if row not in comparisons and row["ratio"] != row["value"] / row["reference"]] == []
    assert [(row["at_least"], row["at_most"]) for row in comparisons] == [(0.95, None), (None, None), (None, 1.05), (None, None)]
    assert all("PyTorchJob relative to MXJob" in row["name"] and row["value"] > 0 for row in comparisons)


@pytest.mark.timeout(240)
def test_the_scale_benchmark_prints_a_table_and_writes_all_results_with_their_goals(tmp_path: Path) -> None:
    require_assets()
    process = run("hack/bench", "scale", "--quick", "--json", tmp_path / "results.json", timeout_seconds=230.0)
    assert process.returncode == 0, process.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]

    goals = {row["at_most"] for row in rows}
    assert goals == {None, 0, 1.2, 50, 130, 150, 200}
    assert [row["value"] for row in rows if row["at_most"] == 0] == [0, 0]
    assert all(row["value"] > 0 for row in rows if row["at_most"] != 0 and row["unit"] != "% of a core")
    assert all(row["name"] in process.stdout for row in rows)


def test_the_local_benchmark_prints_a_table_and_writes_all_results_with_their_goals(tmp_path: Path) -> None:
    process = run("hack/bench", "local", "--quick", "--json", tmp_path / "results.json")
    assert process.returncode == 0, process.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]

    assert {(row["at_most"], row["at_least"]) for row in rows} == {(60, None), (1.5, None), (150, None), (400, None), (None, None)}
    assert all(row["value"] > 0 for row in rows)
    assert all(row["name"] in process.stdout for row in rows)


def test_the_autoscaler_benchmark_prints_a_table_and_writes_all_results_with_their_goals(tmp_path: Path) -> None:
    process = run("hack/bench", "autoscaler", "--quick", "--json", tmp_path / "results.json")
    assert process.returncode == 0, process.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]

    assert process.stdout.splitlines()[0].split() == ["measured", "goal", "upstream", "ratio"]
    assert {row["at_most"] for row in rows} == {None, 0, 1.5}
    assert [row["value"] for row in rows if row["at_most"] == 0] == [0]
    assert all(row["value"] > 0 for row in rows if row["unit"] not in ("changes", "replicas"))
    assert all(row["name"] in process.stdout for row in rows)


@pytest.mark.timeout(240)
def test_the_plans_benchmark_prints_a_table_and_writes_all_results_with_their_goals(tmp_path: Path) -> None:
    require_assets()
    process = run("hack/bench", "plans", "--quick", "--json", tmp_path / "results.json", timeout_seconds=230.0)
    assert process.returncode == 0, process.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]

    assert {row["at_most"] for row in rows} == {None, 1.5, 2}
    assert [row["at_most"] for row in rows if "all are replaced, p50" in row["name"]] == [2]
    assert all(row["value"] > 0 for row in rows)
    assert all(row["name"] in process.stdout for row in rows)


def test_an_unknown_scenario_of_the_operator_benchmark_is_rejected_with_the_valid_ones() -> None:
    process = run("hack/bench", "operator", "--only", "everything")
    assert process.returncode == 2
    assert "'jobs', 'large-job', 'kinds', 'restart', 'lifecycle', 'first-child', 'reaction', 'finished', 'cold-start'" in process.stderr


def test_an_unknown_benchmark_is_rejected_with_exit_code_2() -> None:
    process = run("hack/bench", "everything")
    assert (process.returncode, process.stderr) == (
        2,
        "usage: hack/bench kube|operator|scale|local|autoscaler|plans [--json FILE] [--quick]\n",
    )
