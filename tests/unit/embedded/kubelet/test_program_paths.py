"""Which directories of the user's home pods see because a Python interpreter is there."""

from __future__ import annotations

from pathlib import Path

from dlop.embedded.kubelet.runtime.program_paths import interpreter_paths


def create_installation(directory: Path) -> Path:
    """Returns the interpreter, which other installations can link to."""
    program = directory / "bin" / "python3.11"
    program.parent.mkdir(parents=True)
    program.touch()
    return program


def link(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def test_a_link_in_a_directory_of_programs_does_not_show_the_directory_above_it(tmp_path: Path) -> None:
    program = create_installation(tmp_path / ".local" / "share" / "python")
    python = link(tmp_path / ".local" / "bin" / "python", Path("../share/python/bin") / program.name)
    assert set(interpreter_paths(python)) == {tmp_path / ".local" / "bin", tmp_path / ".local" / "share" / "python"}


def test_a_virtual_environment_is_shown_with_the_installation_that_it_links_to(tmp_path: Path) -> None:
    program = create_installation(tmp_path / "installed")
    python = link(tmp_path / "environment" / "bin" / "python", link(tmp_path / "environment" / "bin" / "python3", program))
    (tmp_path / "environment" / "pyvenv.cfg").touch()
    assert set(interpreter_paths(python)) == {tmp_path / "environment", tmp_path / "installed"}
