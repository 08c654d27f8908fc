"""Every example is run for real, by the command on its page, and comes out as its page says.

Pages are compared by what replicas say and by the verdict; times, addresses and who gets which rank differ from run to run.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from dlop.local.node.images import read_images
from tests.compat.manifests import EXAMPLES

# The first one that needs MXNet installs it.
pytestmark = pytest.mark.timeout(420)

TRUE_WEIGHTS = (2.0, -3.4, 4.2)
_RUN = re.compile(r"^```\n\$ dlop (local .*)\n((?:.*\n)*?)```$", re.MULTILINE)
_LEARNED = re.compile(r"learned w = \((\S+), (\S+)\), b = (\S+)")


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


def needs_mxnet(name: str) -> bool:
    return "mxnet" in name.partition("/")[0] or name.startswith("03-")


def require_mxnet() -> None:
    """MXNet is at its end: there are packages for some machines only, and no NumPy of its time for a younger Python."""
    machine = (platform.system(), platform.machine())
    if machine not in {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "x86_64")}:
        pytest.skip(f"there is no MXNet 1.9.1 for {machine}")
    if sys.version_info[:2] != (3, 11) and shutil.which("python3.11") is None:
        pytest.skip("MXNet 1.9.1 needs Python 3.11, and there is none on the PATH")


def run(case: Shown, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command of a page as a person would."""
    if needs_mxnet(case.name):
        require_mxnet()
    words = [sys.executable, "-m", "dlop", *case.command.split(), *more]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), str(case.folder)])}
    return subprocess.run(words, cwd=case.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400)


def said(output: str) -> Counter[str]:
    """What replicas said and the verdict, without what differs from run to run."""
    last = output.splitlines()[-1]
    # What the shell says of a program that was killed is the shell's own choice.
    lines = [line for line in output.splitlines() if re.match(r"[a-z]+-\d+ +\| ", line) and "Killed" not in line]
    return Counter(_without_chance(line) for line in [*lines, last])


def _without_chance(line: str) -> str:
    line = re.sub(r"[\d.]+ ?(ms|s|m)\b", "TIME", line)
    line = re.sub(r"-[a-z0-9]{4}-(\d)", r"-ID-\1", line)
    line = re.sub(r"loss [\d.]+", "loss L", line)
    line = re.sub(r" +\| ", " | ", line)
    # Of several things that a job waits for, one is told.
    line = re.sub(r"(it was not over in time).*", r"\1", line)
    # Ranks are given in the order of arrival: which worker has which is chance, and so is who is killed under which.
    return re.sub(r"^worker-\d \| rank \d", "worker | rank N", line)


def learned(output: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, found)) for found in _LEARNED.findall(output)]


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_comes_out_as_its_page_says(name: str) -> None:
    case = SHOWN[name]
    answer = run(case)
    assert said(answer.stdout) == said(case.output), answer.stdout + answer.stderr
    assert answer.returncode == (0 if " Succeeded after " in case.output.splitlines()[-1] else 1)

    weights = learned(answer.stdout)
    assert len(weights) == _workers(case) * (" Succeeded after " in case.output.splitlines()[-1])
    assert all(found == pytest.approx(TRUE_WEIGHTS, abs=0.02) for found in weights)


def _workers(case: Shown) -> int:
    """How many workers of MXNet the job has."""
    path = next(word for word in case.command.split() if word.endswith(".yaml") and "images" not in word)
    spec = yaml.safe_load((case.folder / path).read_text())["spec"]
    roles = spec if isinstance(spec, list) else spec["replicaSpecs"]
    names = ("mxReplicaType", "replicaType")
    return sum(role.get("replicas", 1) for role in roles if isinstance(role, dict) and "WORKER" in (role.get(key) for key in names))


def test_every_example_is_run_by_its_page() -> None:
    manifests = {f"{path.parent.name}/{path.name}" for path in EXAMPLES.glob("*/*.yaml")}
    assert set(SHOWN) == manifests


def test_without_namespaces_replicas_find_each_other_too() -> None:
    answer = run(SHOWN["04-custom-framework/job.yaml"], "--no-namespaces")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("all together have 14") == 3


def test_mxnet_trains_without_namespaces_too() -> None:
    answer = run(SHOWN["01-mxnet-linear/job.yaml"], "--no-namespaces")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert learned(answer.stdout) == [pytest.approx(TRUE_WEIGHTS, abs=0.02)]


def test_the_image_map_names_files_that_are_there() -> None:
    images = read_images(EXAMPLES / "images.yaml")
    assert images
    assert all(source.is_file() for image in images for source in image.files.values())
