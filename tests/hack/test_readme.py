"""The README is true: its snippets run, and the scripts that it names are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hack.scripts import ROOT

README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
EXPECTED = ("restarts: {'Peer': 1}", "refused: ", "get namespaces")
"""What each snippet prints, in their order."""


def test_every_snippet_has_an_expectation() -> None:
    assert len(SNIPPETS) == len(EXPECTED)


@pytest.mark.parametrize(("snippet", "expected"), list(zip(SNIPPETS, EXPECTED, strict=False)))
def test_a_snippet_runs_as_it_stands(snippet: str, expected: str, tmp_path: Path) -> None:
    answer = subprocess.run([sys.executable, "-W", "error", "-c", snippet], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert expected in answer.stdout


def test_every_script_and_folder_that_the_readme_names_is_there() -> None:
    scripts = set(re.findall(r"`?((?:hack|\.ci)/[a-z-]+)", README))
    assert scripts >= {"hack/demo", "hack/test", "hack/check", "hack/cluster", "hack/bench", ".ci/run"}
    for script in scripts:
        assert (ROOT / script).is_file(), script
    for module in re.findall(r"\b([a-z]+\.py)\b", README):
        assert list((ROOT / "dlop").rglob(module)), module
    for folder in re.findall(r"\b(unit|conformance|transport|cluster|sim|compat|local|frame)/ ", README):
        assert (ROOT / "tests" / folder).is_dir(), folder


def test_every_file_that_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert "examples/01-mxnet-linear/demo.svg" in links
    for link in links:
        assert (ROOT / link).exists(), link
