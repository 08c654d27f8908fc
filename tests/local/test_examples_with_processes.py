"""Every example is run with the command of its README, and prints the output of the README.

The log lines of replicas and the result are compared. Times, addresses and the assignment of ranks differ from run to run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from dlop.embedded.kubelet.image_map import read_images
from tests.frameworks.example_manifests import EXAMPLES
from tests.git_repositories import GIT_ENVIRONMENT
from tests.local.example_needs import parameter, patience_seconds, require_mpi, require_mxnet
from tests.local.example_numbers import EXPECTED_RESULTS
from tests.local.example_pages import RUNS, SESSIONS, DocumentedRun, comparable_lines
from tests.thorough import THOROUGH

# The first test that needs a framework installs it.
pytestmark = pytest.mark.timeout(420)

_LOSS = re.compile(r"^([a-z]+-\d+) +\| .*\bloss ([\d.]+)", re.MULTILINE)


def run(case: DocumentedRun, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command of a README."""
    require_mxnet(case.name)
    require_mpi(case.name)
    # With a timeout, a job that hangs reports its pending reason.
    limit = [] if "--timeout" in case.command else ["--timeout", f"{patience_seconds(case.name) - 40:.0f}s"]
    words = [sys.executable, "-m", "dlop", *case.command.split(), *limit, *more]
    for command in case.preparation:
        subprocess.run(command, shell=True, cwd=case.folder, env=GIT_ENVIRONMENT, check=True, timeout=60)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), str(case.folder)])}
    return subprocess.run(
        words,
        cwd=case.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience_seconds(case.name),
    )


def expects_success(case: DocumentedRun) -> bool:
    return " Succeeded after " in case.output.splitlines()[-1]


@pytest.mark.parametrize("name", [parameter(name) for name in RUNS])
def test_an_example_prints_the_output_of_its_readme(name: str) -> None:
    case = RUNS[name]
    process = run(case)
    assert comparable_lines(process.stdout) == comparable_lines(case.output), process.stdout + process.stderr
    assert process.returncode == (0 if expects_success(case) else 1)
    assert_losses_fall(process.stdout)
    if expects_success(case):
        assert_result_is_right(name, process.stdout)


def assert_losses_fall(output: str) -> None:
    """The last loss of each replica that prints several is less than a tenth of its first one."""
    losses: dict[str, list[float]] = {}
    for replica, loss in _LOSS.findall(output):
        losses.setdefault(replica, []).append(float(loss))
    assert {replica: values for replica, values in losses.items() if len(values) > 1 and values[-1] > values[0] / 10} == {}


def assert_result_is_right(name: str, output: str) -> None:
    expected = EXPECTED_RESULTS[name]
    assert expected.parse_output(output) == [pytest.approx(expected.values, abs=0.02)] * expected.times


def test_a_runtime_id_is_not_taken_for_a_time() -> None:
    runs = [f"worker-0 | worker: looking for mx-test-scheduler-{runtime_id}-0\nSucceeded after 4.5 s" for runtime_id in ("5mxi", "tc8m")]
    assert comparable_lines(runs[0]) == comparable_lines(runs[1])


def test_every_example_that_succeeds_has_an_expected_result() -> None:
    assert set(EXPECTED_RESULTS) == {name for name, case in RUNS.items() if expects_success(case)}


def test_every_example_is_run_or_submitted_in_its_readme() -> None:
    manifests = {f"{path.parent.name}/{path.name}" for path in EXAMPLES.glob("*/*.yaml")}
    submitted = frozenset[str]().union(*(session.submitted for session in SESSIONS.values()))
    assert RUNS.keys() | submitted == manifests


@pytest.mark.parametrize("name", ["12-paddle-collective/job.yaml", "13-paddle-parameter-servers/job.yaml"])
def test_the_documented_losses_of_all_trainers_fall(name: str) -> None:
    assert len({replica for replica, _ in _LOSS.findall(RUNS[name].output)}) == 2
    assert_losses_fall(RUNS[name].output)


WITHOUT_NAMESPACES = ("01-mxnet-linear/job.yaml", "04-custom-framework/job.yaml", "07-jax/job.yaml", "08-xgboost/job.yaml")


@pytest.mark.parametrize("name", WITHOUT_NAMESPACES if THOROUGH else WITHOUT_NAMESPACES[1:3])
def test_replicas_find_each_other_without_namespaces(name: str) -> None:
    process = run(RUNS[name], "--no-namespaces")
    assert process.returncode == 0, process.stdout + process.stderr
    assert_result_is_right(name, process.stdout)


def test_the_files_of_the_image_map_exist() -> None:
    images = read_images(EXAMPLES / "images.yaml")
    assert images
    assert all(source.is_file() for image in images for source in image.files.values())
