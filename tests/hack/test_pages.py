"""The documentation pages are correct: their snippets run, and the files that they name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes_build import NEWEST_VERSION, OLDEST_VERSION

from dlop.api.constants import Reason
from tests.hack.scripts import ROOT

PAGES = [path for path in sorted(ROOT.rglob("*.md")) if not {".venv", "goldens"} & set(path.parts)]
SNIPPETS = [
    (str(page.relative_to(ROOT)), snippet)
    for page in PAGES
    for snippet in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
]
EXPECTED = {
    "README.md": ["restarts: {'Peer': 1}"],
    "dlop/embedded/README.md": ["rejected: ", "get namespaces"],
    "dlop/frameworks/README.md": ["/apis/example.org/v1/namespaces/default/chorusjobs", "--chorus-monitor-image"],
}
"""A part of the output of each snippet, in the order of the page."""


def test_every_snippet_has_an_expectation() -> None:
    assert {page: [name for name, _ in SNIPPETS].count(page) for page, _ in SNIPPETS} == {
        page: len(texts) for page, texts in EXPECTED.items()
    }


@pytest.mark.parametrize(
    ("snippet", "expected"),
    [
        pytest.param(snippet, expected, id=f"{page}-{number}")
        for page, texts in EXPECTED.items()
        for number, (snippet, expected) in enumerate(zip((text for name, text in SNIPPETS if name == page), texts, strict=True))
    ],
)
def test_a_snippet_runs_unchanged(snippet: str, expected: str, tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-c", snippet], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert expected in run.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_scripts_and_links_of_a_page_exist(page: Path) -> None:
    text = page.read_text()
    for script in set(re.findall(r"(?<![\w/.-])((?:hack|\.ci)/[a-z-]+)(?![\w/.-])", text)):
        assert (ROOT / script).is_file(), script
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link


def test_the_pages_name_the_tested_kubernetes_versions() -> None:
    oldest, newest = OLDEST_VERSION.removeprefix("v"), NEWEST_VERSION.removeprefix("v")
    supported = f"Kubernetes {oldest.rpartition('.')[0]} to {newest.rpartition('.')[0]}"
    readme, manifests = ((ROOT / page).read_text() for page in ("README.md", "manifests/README.md"))
    assert supported in readme
    assert supported in manifests
    assert f"API servers of {newest} and, with `hack/test --thorough`, {oldest}." in readme


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_every_package_that_the_development_page_lists_exists() -> None:
    listed = re.findall(r"^  ([a-z]+)/ ", (ROOT / "hack" / "README.md").read_text(), re.MULTILINE)
    assert set(listed) == {path.name for path in (ROOT / "dlop").iterdir() if (path / "__init__.py").exists()}


def test_the_troubleshooting_page_lists_every_reason_of_the_blocked_condition() -> None:
    modules = [ROOT / "dlop" / "reconcile" / name for name in ("blocked.py", "backoff.py", "invalid_spec.py", "gang.py")]
    names = {name for module in modules for name in re.findall(r"Reason\.([A-Z_]+)", module.read_text())}
    assert {"FORBIDDEN", "NAME_CONFLICT", "GANG_NOT_ADMITTED", "BACK_OFF", "INVALID_SPEC"} <= names
    page = (ROOT / "manifests" / "troubleshooting.md").read_text()
    assert [name for name in sorted(names) if f"| `{getattr(Reason, name)}` |" not in page] == []
