"""Every example is run for real, by the command on its page, and comes out as its page says.

Pages are compared by what replicas say and by the verdict; times, addresses and who gets which rank differ from run to run.
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
from tests.frameworks.manifests import EXAMPLES
from tests.local.example_needs import parameter, patience_seconds, require_mpi, require_mxnet
from tests.local.example_numbers import NUMBERS

# The first one that needs a framework installs it.
pytestmark = pytest.mark.timeout(420)

# Two shells at once that tell what they do: kubexec.sh.
_TRACED = re.compile(r"\| (\+ ?|POD_NAME=[\w-]+|shift|/opt/kube/kubectl exec.*)+$")
_RUN = re.compile(r"^```\n\$ dlop (local .*)\n((?:.*\n)*?)```$", re.MULTILINE)


@dataclass(frozen=True)
class Shown:
    """A command on a page, and what the page says comes of it."""

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
        """Pages name files from the top of the repository, or from their own directory."""
        return EXAMPLES.parent if "examples/" in self.command else self.page.parent


def shown() -> Iterator[Shown]:
    for page in sorted(EXAMPLES.glob("*/README.md")):
        for command, output in _RUN.findall(page.read_text()):
            yield Shown(page, command, output)


SHOWN = {each.name: each for each in shown()}


def run(case: Shown, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command of a page as a person would."""
    require_mxnet(case.name)
    require_mpi(case.name)
    # A job that hangs is to say what it waits for.
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


def said(output: str) -> Counter[str]:
    """What replicas said and the verdict, without what differs from run to run."""
    last = output.splitlines()[-1]
    # What the shell says of a program that was killed is the shell's own choice.
    lines = [line for line in output.splitlines() if re.match(r"[a-z]+-\d+ +\| ", line) and "Killed" not in line]
    lines = [line for line in lines if not _TRACED.search(line)]
    return Counter(_without_chance(line) for line in [*lines, last])


def _without_chance(line: str) -> str:
    line = re.sub(r"(\d+ min )?[\d.]+ ?(ms|s|m)\b|\d\d:\d\d:\d\d", "TIME", line)
    line = re.sub(r"-[a-z0-9]{4}-(\d)", r"-ID-\1", line)
    line = re.sub(r"loss [\d.]+", "loss L", line)
    line = re.sub(r" +\| ", " | ", line)
    # Of several things that a job waits for, one is told.
    line = re.sub(r"(it was not over in time).*", r"\1", line)
    # Ranks are given in the order of arrival: which worker has which is chance, and so is who is killed under which.
    return re.sub(r"^worker-\d \| rank \d", "worker | rank N", line)


def succeeds(case: Shown) -> bool:
    """Whether the page says so."""
    return " Succeeded after " in case.output.splitlines()[-1]


@pytest.mark.parametrize("name", [parameter(name) for name in SHOWN])
def test_an_example_comes_out_as_its_page_says(name: str) -> None:
    case = SHOWN[name]
    answer = run(case)
    assert said(answer.stdout) == said(case.output), answer.stdout + answer.stderr
    assert answer.returncode == (0 if succeeds(case) else 1)
    if succeeds(case):
        assert_its_number_is_right(name, answer.stdout)


def assert_its_number_is_right(name: str, output: str) -> None:
    number = NUMBERS[name]
    assert number.found_in(output) == [pytest.approx(number.values, abs=0.02)] * number.times


def test_every_example_that_succeeds_comes_to_a_number() -> None:
    assert set(NUMBERS) == {name for name, case in SHOWN.items() if succeeds(case)}


def test_every_example_is_run_by_its_page() -> None:
    manifests = {f"{path.parent.name}/{path.name}" for path in EXAMPLES.glob("*/*.yaml")}
    assert set(SHOWN) == manifests


@pytest.mark.parametrize("name", ["01-mxnet-linear/job.yaml", "04-custom-framework/job.yaml", "07-jax/job.yaml", "08-xgboost/job.yaml"])
def test_without_namespaces_replicas_find_each_other_too(name: str) -> None:
    answer = run(SHOWN[name], "--no-namespaces")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert_its_number_is_right(name, answer.stdout)


def test_the_image_map_names_files_that_are_there() -> None:
    images = read_images(EXAMPLES / "images.yaml")
    assert images
    assert all(source.is_file() for image in images for source in image.files.values())
