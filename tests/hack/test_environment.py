"""How `hack/test` finds its Python."""

from __future__ import annotations

from pathlib import Path

from tests.hack.scripts import ROOT, run

_FAKE_PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit 0
case " $* " in *" pip install "*"--quiet "*) ;; *" pip install "*) seq 1 150 ;; esac
"""


def test_packages_are_installed_with_a_line_and_not_with_all_that_pip_has_to_say(tmp_path: Path) -> None:
    (tmp_path / "hack").mkdir()
    (tmp_path / "hack" / "environment.sh").write_bytes((ROOT / "hack" / "environment.sh").read_bytes())
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(_FAKE_PYTHON)
    python.chmod(0o755)
    (tmp_path / "pyproject.toml").write_text("new")

    answer = run("/bin/bash", "-c", f"source {tmp_path}/hack/environment.sh && ensure_environment")

    assert answer.returncode == 0, answer.stderr
    assert (answer.stdout, answer.stderr.count("\n")) == ("", 1)
    assert answer.stderr.startswith("installing the packages that pyproject.toml asks for into .venv")
    assert (tmp_path / ".venv" / "installed-from").read_text() == "new"


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
