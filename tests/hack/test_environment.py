"""`hack/environment.sh`: installation of packages and selection of Python."""

from __future__ import annotations

from pathlib import Path

from tests.hack.scripts import ROOT, run

_FAKE_PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit 0
case " $* " in *" pip install "*"--quiet "*) ;; *" pip install "*) seq 1 150 ;; esac
"""


def test_packages_are_installed_with_one_line_of_output(tmp_path: Path) -> None:
    (tmp_path / "hack").mkdir()
    (tmp_path / "hack" / "environment.sh").write_bytes((ROOT / "hack" / "environment.sh").read_bytes())
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(_FAKE_PYTHON)
    python.chmod(0o755)
    (tmp_path / "pyproject.toml").write_text("new")

    process = run("/bin/bash", "-c", f"source {tmp_path}/hack/environment.sh && ensure_environment")

    assert process.returncode == 0, process.stderr
    assert (process.stdout, process.stderr.count("\n")) == ("", 1)
    assert process.stderr.startswith("installing the packages of pyproject.toml into .venv")
    assert (tmp_path / ".venv" / "installed-from").read_text() == "new"


def test_without_a_supported_python_one_line_names_what_to_install(tmp_path: Path) -> None:
    for name in ("dirname", "cmp"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    project = tmp_path / "project"
    (project / "hack").mkdir(parents=True)
    for script in ("test", "environment.sh"):
        (project / "hack" / script).write_bytes((ROOT / "hack" / script).read_bytes())
    (project / "pyproject.toml").touch()

    process = run("/bin/bash", project / "hack" / "test", environment={"PATH": str(tmp_path), "PYTHON": None})

    assert process.returncode == 1
    assert process.stderr.startswith("no Python 3.11 or newer found: install it")
    assert process.stderr.count("\n") == 1
