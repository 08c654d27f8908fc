"""Other paths of a directory, by the mounts of the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlop.embedded.kubelet.runtime.launcher import mount_table
from dlop.embedded.kubelet.runtime.launcher.mount_table import MountEntry, find_aliases


def test_a_mount_that_shows_another_directory_is_no_alias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own" / "files").mkdir(parents=True)
    (tmp_path / "bound" / "files").mkdir(parents=True)
    mounts = [MountEntry("8:1", "/", "/"), MountEntry("8:1", str(tmp_path / "own"), str(tmp_path / "bound"))]
    monkeypatch.setattr(mount_table, "read_mounts", lambda: mounts)
    assert find_aliases(str(tmp_path / "own" / "files")) == [str(tmp_path / "own" / "files")]
    (tmp_path / "bound" / "files").rmdir()
    (tmp_path / "bound" / "files").symlink_to(tmp_path / "own" / "files")  # the same directory, as a bind mount shows it
    assert find_aliases(str(tmp_path / "own" / "files")) == [str(tmp_path / "own" / "files"), str(tmp_path / "bound" / "files")]


def test_in_a_chroot_without_a_mount_a_directory_has_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_table, "read_mounts", list)
    assert find_aliases(str(tmp_path)) == [str(tmp_path)]
