"""Every example is run with the command of its README, and prints the output of the README.

The log lines of replicas and the result are compared. Times, addresses and the assignment of ranks differ from run to run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlop.embedded.kubelet.image_map import read_images
from tests.frameworks.example_manifests import EXAMPLES
from tests.local.example_needs import parameter, patience_seconds, require_mpi, require_mxnet
from tests.local.example_numbers import EXPECTED_RESULTS
from tests.thorough import THOROUGH

# The first test that needs a framework installs it.
pytestmark = pytest.mark.timeout(420)

# The trace of two concurrent shells, which mix their words in any order: kubexec.sh.
_OCCASIONAL = re.compile(r"Killed|plm:rsh: Warning: setpgid")
"""Messages that not every run prints: that of a killed program depends on the shell, and mpirun sets the process group of a child that
may have called exec already."""
_TRACED = re.compile(r"\| ([ +]|POD_NAME=|[\w-]+-worker-\d+|shift|/opt/kube/kubectl|exec|--|/bin/sh|-c|orted .*)+$")
_LOSS = re.compile(r"^([a-z]+-\d+) +\| .*\bloss ([\d.]+)", re.MULTILINE)
_RUN = re.compile(r"^```\n\$ dlop (local .*)\n((?:.*\n)*?)```$", re.MULTILINE)


@dataclass(frozen=True)
class DocumentedRun:
    """A command and its output in a README."""

    page: Path
    command: str
    output: str

    @property
    def name(self) -> str:
        words = self.command.split()
        manifest = next(word for word in words if word.endswith(".yaml") and "images" not in word)
        return f"{self.page.parent.name}/{Path(manifest).name}"

    @property
    def folder(self) -> Path:
        """Paths are relative to the repository or to the directory of the README."""
        return EXAMPLES.parent if "examples/" in self.command else self.page.parent


def documented_runs() -> Iterator[DocumentedRun]:
    for page in sorted(EXAMPLES.glob("*/README.md")):
        for command, output in _RUN.findall(page.read_text()):
            yield DocumentedRun(page, command, output)


RUNS = {run.name: run for run in documented_runs()}


def run(case: DocumentedRun, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command of a README."""
    require_mxnet(case.name)
    require_mpi(case.name)
    # With a timeout, a job that hangs reports its pending reason.
    limit = [] if "--timeout" in case.command else ["--timeout", f"{patience_seconds(case.name) - 40:.0f}s"]
    words = [sys.executable, "-m", "dlop", *case.command.split(), *limit, *more]
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


def comparable_lines(output: str) -> Counter[str]:
    """The log lines of replicas and the result, without parts that differ from run to run."""
    last = output.splitlines()[-1]
    lines = [line for line in output.splitlines() if re.match(r"[a-z]+-\d+ +\| ", line) and not _OCCASIONAL.search(line)]
    lines = [line for line in lines if not _TRACED.search(line)]
    return Counter(_normalize(line) for line in [*lines, last])


def _normalize(line: str) -> str:
    # Runtime ids come first: one like tc8m contains what looks like a time.
    line = re.sub(r"-[a-z0-9]{4}-(\d)", r"-ID-\1", line)
    line = re.sub(r"(\d+ min )?\b[\d.]+ ?(ms|s|m)\b|\d\d:\d\d:\d\d", "TIME", line)
    line = re.sub(r"loss [\d.]+", "loss L", line)
    line = re.sub(r" +\| ", " | ", line)
    # Only one of several pending reasons is printed.
    line = re.sub(r"(not finished within the timeout).*", r"\1", line)
    # Ranks are assigned in the order of arrival.
    return re.sub(r"^worker-\d \| rank \d", "worker | rank N", line)


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


def test_every_example_is_run_in_its_readme() -> None:
    manifests = {f"{path.parent.name}/{path.name}" for path in EXAMPLES.glob("*/*.yaml")}
    assert set(RUNS) == manifests


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
