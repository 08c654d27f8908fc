"""Control groups, on a tree of ordinary files that looks like the kernel's: few machines let a test make real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlop.embedded.kubelet.runtime.launcher.cgroups import Groups, find_groups


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A desktop's: the user's service hands out controllers, the terminal's own group does not."""
    root = tmp_path / "cgroup"
    for folder, controllers in (("", "cpu memory pids"), ("user.service", "memory pids"), ("user.service/terminal.scope", "")):
        (root / folder).mkdir()
        (root / folder / "cgroup.subtree_control").write_text(controllers + "\n")
    (tmp_path / "mountinfo").write_text(f"30 24 0:26 / {root} rw,nosuid - cgroup2 cgroup2 rw\n31 24 0:27 / /proc rw - proc proc rw\n")
    (tmp_path / "own").write_text("1:name=systemd:/x\n0::/user.service/terminal.scope\n")
    return root


def find(tree: Path) -> Groups | None:
    return find_groups(mounts=str(tree.parent / "mountinfo"), own=str(tree.parent / "own"))


def test_the_nearest_group_that_hands_out_controllers_is_taken(tree: Path) -> None:
    groups = find(tree)
    assert groups is not None
    assert Path(groups.path).parent == tree / "user.service"
    assert Path(groups.path, "cgroup.subtree_control").read_text() == "+memory +pids"
    assert Path(groups.path, "trial", "cgroup.procs").read_text() == "0"


def test_a_container_gets_its_limits(tree: Path) -> None:
    groups = find(tree)
    assert groups is not None
    group = groups.make("1")
    group.limit(memory_bytes=1 << 20, most_processes=100)
    written = {file.name: file.read_text() for file in Path(group.path).iterdir()}
    assert written == {"memory.max": "1048576", "memory.oom.group": "1", "memory.swap.max": "0", "pids.max": "100"}


@pytest.mark.parametrize(
    ("events", "expected"), [("oom 1\noom_kill 0\n", False), ("oom 1\noom_kill 2\noom_group_kill 1\n", True), (None, False)]
)
def test_running_out_of_memory_is_what_the_kernel_says(tree: Path, events: str | None, expected: bool) -> None:
    groups = find(tree)
    assert groups is not None
    group = groups.make("1")
    if events is not None:
        Path(group.path, "memory.events").write_text(events)
    assert group.ran_out_of_memory() is expected


def test_without_a_memory_controller_there_are_no_groups(tree: Path) -> None:
    for file in tree.rglob("cgroup.subtree_control"):
        file.write_text("cpu\n")
    assert find(tree) is None
    assert not list(tree.rglob("dlop-*"))


def test_without_the_second_version_there_are_no_groups(tree: Path) -> None:
    (tree.parent / "mountinfo").write_text("35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
    assert find(tree) is None


def test_groups_go_with_their_containers(tmp_path: Path) -> None:
    (tmp_path / "dlop").mkdir()
    groups = Groups(str(tmp_path / "dlop"))
    groups.make("1").remove()
    groups.make("2")
    groups.remove()
    assert not (tmp_path / "dlop").exists()
