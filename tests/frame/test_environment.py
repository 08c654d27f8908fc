"""How `hack/test` finds its Python."""

from __future__ import annotations

from pathlib import Path

from tests.frame.scripts import ROOT, run


def test_without_a_new_enough_python_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    for name in ("dirname", "cmp"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    project = tmp_path / "project"
    (project / "hack").mkdir(parents=True)
    for script in ("test", "environment.sh"):
        (project / "hack" / script).write_bytes((ROOT / "hack" / script).read_bytes())
    (project / "pyproject.toml").touch()

    answer = run("/bin/bash", project / "hack" / "test", environment={"PATH": str(tmp_path), "PYTHON": None})

    assert answer.returncode == 1
    assert answer.stderr.startswith("no Python 3.11 or newer found: install one")
    assert answer.stderr.count("\n") == 1
