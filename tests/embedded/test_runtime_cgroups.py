"""Control groups, on a tree of ordinary files, because few machines let a test create real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlop.embedded.kubelet.runtime.launcher.cgroups import CgroupParent, find_cgroup_parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The tree of a desktop: the user's service delegates controllers, the cgroup of the terminal does not."""
    root = tmp_path / "cgroup"
    for directory, controllers in (("", "cpu memory pids"), ("user.service", "memory pids"), ("user.service/terminal.scope", "")):
        (root / directory).mkdir()
        (root / directory / "cgroup.subtree_control").write_text(controllers + "\n")
    (tmp_path / "mountinfo").write_text(f"30 24 0:26 / {root} rw,nosuid - cgroup2 cgroup2 rw\n31 24 0:27 / /proc rw - proc proc rw\n")
    (tmp_path / "own").write_text("1:name=systemd:/x\n0::/user.service/terminal.scope\n")
    return root


def find_parent(tree: Path) -> CgroupParent | None:
    return find_cgroup_parent(mounts=str(tree.parent / "mountinfo"), own=str(tree.parent / "own"))


def test_the_nearest_cgroup_that_delegates_controllers_is_used(tree: Path) -> None:
    parent = find_parent(tree)
    assert parent is not None
    assert Path(parent.path).parent == tree / "user.service"
    assert Path(parent.path, "cgroup.subtree_control").read_text() == "+memory +pids"
    assert Path(parent.path, "probe", "cgroup.procs").read_text() == "0"


def test_a_container_gets_its_limits(tree: Path) -> None:
    parent = find_parent(tree)
    assert parent is not None
    cgroup = parent.create("1")
    cgroup.limit(memory_bytes=1 << 20, max_processes=100)
    written = {file.name: file.read_text() for file in Path(cgroup.path).iterdir()}
    assert written == {"memory.max": "1048576", "memory.oom.group": "1", "memory.swap.max": "0", "pids.max": "100"}


@pytest.mark.parametrize(
    ("events", "expected"), [("oom 1\noom_kill 0\n", False), ("oom 1\noom_kill 2\noom_group_kill 1\n", True), (None, False)]
)
def test_out_of_memory_is_read_from_the_kernels_counter(tree: Path, events: str | None, expected: bool) -> None:
    parent = find_parent(tree)
    assert parent is not None
    cgroup = parent.create("1")
    if events is not None:
        Path(cgroup.path, "memory.events").write_text(events)
    assert cgroup.ran_out_of_memory() is expected


def test_without_a_memory_controller_no_cgroup_is_created(tree: Path) -> None:
    for file in tree.rglob("cgroup.subtree_control"):
        file.write_text("cpu\n")
    assert find_parent(tree) is None
    assert not list(tree.rglob("dlop-*"))


def test_without_cgroup_v2_no_cgroup_is_created(tree: Path) -> None:
    (tree.parent / "mountinfo").write_text("35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
    assert find_parent(tree) is None


def test_removing_the_parent_removes_the_cgroups_of_containers(tmp_path: Path) -> None:
    (tmp_path / "dlop").mkdir()
    parent = CgroupParent(str(tmp_path / "dlop"))
    parent.create("1").remove()
    parent.create("2")
    parent.remove()
    assert not (tmp_path / "dlop").exists()
