"""The working directory of `dlop local` is refused if another user could change it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlop.local.workdir import WorkDir, WorkDirError, open_workdir

_OTHER_USER = 65534
_as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def open_(directory: Path | None) -> WorkDir:
    with open_workdir(directory, keep=False) as workdir:
        return workdir


@_as_root
def test_a_directory_of_another_user_is_refused_and_not_changed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "node").mkdir(parents=True)
    os.chown(folder, _OTHER_USER, _OTHER_USER)
    with pytest.raises(WorkDirError, match=f"folder belongs to another user \\(UID {_OTHER_USER}\\); choose another one"):
        open_(folder)
    assert [path.name for path in folder.iterdir()] == ["node"]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_directory_that_others_can_write_to_is_refused_with_the_command_that_repairs_it(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(WorkDirError, match=r"other users can change the directory .*; run `chmod go-w '.*/a folder'`"):
        open_(folder)
    assert list(folder.iterdir()) == []
    folder.chmod(mode & ~0o022)
    open_(folder)


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_link_that_somebody_created_first_is_refused_and_its_target_is_not_changed(tmp_path: Path, is_dangling: bool) -> None:
    target = tmp_path / "target"
    if not is_dangling:
        (target / "node").mkdir(parents=True)
        (target / "kubeconfig").write_text("mine")
    (tmp_path / "folder").symlink_to(target)
    with pytest.raises(WorkDirError, match=r"symbolic link|File exists"):
        open_(tmp_path / "folder")
    assert target.exists() is not is_dangling
    assert is_dangling or (target / "kubeconfig").read_text() == "mine"


def test_a_link_above_the_directory_is_followed_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with open_workdir(tmp_path / "link" / "folder", keep=False) as workdir:
        assert workdir.path == tmp_path / "real" / "folder"


@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_directory_that_others_can_replace_is_refused_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_temporary: bool
) -> None:
    parent = tmp_path / "open"
    parent.mkdir()
    parent.chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(parent))
    with pytest.raises(WorkDirError, match=r"other users can replace the directory .*, because they can change .*/open"):
        open_(None if is_temporary else parent / "folder")
    assert list(parent.iterdir()) == []
    parent.chmod(0o1777)
    open_(None if is_temporary else parent / "folder")


@_as_root
def test_a_directory_below_one_of_another_user_is_refused(tmp_path: Path) -> None:
    parent = tmp_path / "theirs"
    parent.mkdir()
    os.chown(parent, _OTHER_USER, _OTHER_USER)
    with pytest.raises(WorkDirError, match=r"they can change .*/theirs"):
        open_(parent / "folder")


@_as_root
def test_a_directory_that_another_group_can_replace_is_refused(tmp_path: Path) -> None:
    parent = tmp_path / "shared"
    parent.mkdir()
    parent.chmod(0o775)
    open_(parent / "folder")
    os.chown(parent, 0, _OTHER_USER)
    with pytest.raises(WorkDirError, match=r"they can change .*/shared"):
        open_(parent / "folder")
    parent.chmod(0o1775)
    open_(parent / "folder")


@pytest.mark.parametrize("name", ["kubeconfig", "dlop.log"])
def test_a_link_in_the_directory_is_replaced_and_not_followed(tmp_path: Path, name: str) -> None:
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir(mode=0o700)
    victim.write_text("mine")
    (folder / name).symlink_to(victim)
    with open_workdir(folder, keep=False) as workdir:
        workdir.write_kubeconfig({"kind": "Config"})
        workdir.open_log().close()
        assert not (folder / name).is_symlink()
    assert victim.read_text() == "mine"


def test_a_lock_that_is_a_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(WorkDirError, match="cannot be used"):
        open_(tmp_path)
    assert not (tmp_path / "victim").exists()


def test_a_new_directory_is_accessible_to_its_owner_only(tmp_path: Path) -> None:
    with open_workdir(tmp_path / "new", keep=False) as workdir:
        assert workdir.path.stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "new").exists()
