"""`hack/bench`: everything it promises can be measured. What the figures are is not a test's business."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubernetes_build import require_assets

from tests.hack.scripts import run


def test_the_benchmark_prints_a_table_and_writes_every_figure_with_its_goal(tmp_path: Path) -> None:
    require_assets()
    answer = run("hack/bench", "kube", "--quick", "--json", tmp_path / "figures.json")
    assert answer.returncode == 0, answer.stderr
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]

    goals = {(row["at_most"], row["at_least"]) for row in rows}
    assert goals >= {(40, None), (50, None), (8, None), (None, 0.95), (None, 2500)}
    assert all(row["value"] > 0 for row in rows if row["at_most"] != 8)
    assert all(row["name"] in answer.stdout for row in rows)


@pytest.mark.timeout(240)
def test_the_operators_benchmark_prints_a_table_and_writes_every_figure_with_its_goal(tmp_path: Path) -> None:
    require_assets()
    answer = run("hack/bench", "operator", "--quick", "--json", tmp_path / "figures.json", timeout_seconds=230.0)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]

    goals = {(row["at_most"], row["at_least"]) for row in rows}
    assert goals >= {(None, 0.8), (None, 0.85), (1.4, None), (4, None), (130, None), (0, None)}
    assert [row["value"] for row in rows if row["at_most"] == 0] == [0] * 4
    assert all(row["name"] in answer.stdout for row in rows)


@pytest.mark.timeout(240)
def test_the_figures_of_another_kind_stand_beside_those_of_mxnet_with_their_ratio(tmp_path: Path) -> None:
    require_assets()
    words = ("operator", "--quick", "--kind", "pytorch", "--only", "jobs", "kinds", "life", "--json", tmp_path / "figures.json")
    answer = run("hack/bench", *words, timeout_seconds=230.0)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]

    assert answer.stdout.splitlines()[0].split() == ["measured", "goal", "MXJob", "ratio"]
    compared = [row for row in rows if row["beside"] is None]
    assert [row["name"] for row in rows if row not in compared and row["ratio"] != row["value"] / row["beside"]] == []
    assert [(row["at_least"], row["at_most"]) for row in compared] == [(0.95, None), (None, None), (None, 1.05), (None, None)]
    assert all("PyTorchJob against MXJob" in row["name"] and row["value"] > 0 for row in compared)


def test_the_benchmark_of_dlop_local_prints_a_table_and_writes_every_figure_with_its_goal(tmp_path: Path) -> None:
    answer = run("hack/bench", "local", "--quick", "--json", tmp_path / "figures.json")
    assert answer.returncode == 0, answer.stderr
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]

    assert {(row["at_most"], row["at_least"]) for row in rows} == {(60, None), (1.5, None), (None, None)}
    assert all(row["value"] > 0 for row in rows)
    assert all(row["name"] in answer.stdout for row in rows)


def test_a_part_of_the_operators_benchmark_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    answer = run("hack/bench", "operator", "--only", "everything")
    assert answer.returncode == 2
    assert "'jobs', 'large-job', 'kinds', 'restart', 'life', 'first-child', 'finished', 'cold-start'" in answer.stderr


def test_an_unknown_benchmark_is_refused_with_exit_code_2() -> None:
    answer = run("hack/bench", "everything")
    assert (answer.returncode, answer.stderr) == (2, "usage: hack/bench kube|operator|local [--json FILE] [--quick]\n")
