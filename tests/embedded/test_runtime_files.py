"""The files that a container sees, and what the host does not see of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dlop.embedded.kubelet.runtime.base import LaunchError, Mount, Runtime
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from tests.embedded.runtime_kit import RUNTIMES, Pod, Pods, pods_in, start_pods

# All tests here share one runtime and create their own pods.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtime() -> AsyncIterator[Runtime]:
    async with NamespacesRuntime() as runtime:
        yield runtime


@pytest_asyncio.fixture(loop_scope="module")
async def pods(runtime: Runtime, tmp_path: Path) -> AsyncIterator[Pods]:
    async with pods_in(runtime, tmp_path) as pods:
        yield pods


@pytest_asyncio.fixture(loop_scope="module")
async def pod(pods: Pods) -> Pod:
    return await pods.pod()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    directory = tmp_path / "volume"
    directory.mkdir()
    (directory / "file").write_text("content")
    return directory


@pytest.mark.parametrize("mode", RUNTIMES)
async def test_a_mount_is_visible_at_its_path(mode: str, tmp_path: Path, volume: Path) -> None:
    async with start_pods(RUNTIMES[mode](), tmp_path) as pods:
        pod = await pods.pod()
        mounts = (Mount(volume, "/data"), Mount(volume / "file", "/config/one"))
        environment = {"WHERE": "/data/file:/config/one"}
        _, text = await pod.shell(
            "cat /data/file /config/one; echo new > /data/new; cat ${WHERE%:*}", mounts=mounts, environment=environment
        )
        assert text == "content" * 3
        assert (volume / "new").read_text() == "new\n"


@pytest.mark.parametrize("mode", RUNTIMES)
async def test_a_working_directory_may_be_a_mount(mode: str, tmp_path: Path, volume: Path) -> None:
    async with start_pods(RUNTIMES[mode](), tmp_path) as pods:
        pod = await pods.pod()
        assert (await pod.run("cat", "file", mounts=(Mount(volume, "/data"),), working_dir="/data"))[1] == "content"


@pytest.mark.parametrize(
    "target", ["/data", "/a/b/c", "/etc/mine", "/usr/lib/mine/deep", "/opt/x", "/var/run/secrets/x", "/tmp/x", "/dev/x"]
)
async def test_a_mount_point_can_be_anywhere_and_the_host_is_not_changed(pod: Pod, volume: Path, target: str) -> None:
    assert not _exists(target)
    _, text = await pod.shell(f"cat {target}/file; cat /etc/passwd", mounts=(Mount(volume, target),))
    assert text == "content" + _text("/etc/passwd").strip()
    assert not _exists(target)


async def test_mounts_may_be_nested(pod: Pod, volume: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    mounts = (Mount(volume, "/outer/inner/volume"), Mount(outer, "/outer"), Mount(volume / "file", "/outer/one"))
    _, text = await pod.shell("cat /outer/inner/volume/file /outer/one", mounts=mounts)
    assert text == "contentcontent"


async def test_a_file_of_the_host_can_be_replaced(pod: Pod, volume: Path) -> None:
    assert (await pod.shell("cat /etc/passwd", mounts=(Mount(volume / "file", "/etc/passwd"),)))[1] == "content"


async def test_a_read_only_mount_cannot_be_written_to(pod: Pod, volume: Path) -> None:
    status, text = await pod.shell("cat /data/file; echo > /data/new", mounts=(Mount(volume, "/data", read_only=True),))
    assert status.code != 0
    assert text.startswith("content")
    assert "Read-only file system" in text
    assert not (volume / "new").exists()


async def test_a_mount_with_a_missing_source_is_an_error(pod: Pod, volume: Path) -> None:
    with pytest.raises(LaunchError, match=r"failed to stat \".*missing\": no such file or directory"):
        await pod.start("true", mounts=(Mount(volume / "missing", "/data"),))


async def test_an_impossible_mount_is_an_error(pod: Pod, volume: Path) -> None:
    with pytest.raises(LaunchError, match=r"error mounting \".*volume\" to rootfs at \"/etc/passwd\": not a directory"):
        await pod.start("true", mounts=(Mount(volume, "/etc/passwd"),))


async def test_every_container_starts_with_a_fresh_root(pod: Pod) -> None:
    script = "test -e /mine && echo again; echo > /mine"
    assert [await pod.shell(script), await pod.shell(script)] == [await pod.shell("true")] * 2
    assert not _exists("/mine")


async def test_tmp_and_shared_memory_are_private_to_the_pod(pods: Pods) -> None:
    name = f"dlop-test-{os.getpid()}"
    one, two = await pods.pod("one"), await pods.pod("two")
    list_files = f"ls /tmp/{name} /dev/shm/{name}"
    assert (await one.shell(f"echo > /tmp/{name}; echo > /dev/shm/{name}"))[0].code == 0
    assert (await one.shell(list_files))[0].code == 0
    assert (await two.shell(list_files))[0].code != 0
    assert not _exists(f"/tmp/{name}")
    assert not _exists(f"/dev/shm/{name}")


async def test_a_container_is_the_init_process_of_its_own_pid_namespace(pod: Pod) -> None:
    assert (await pod.shell("echo $$; ls /proc | grep -c '^[0-9]'"))[1].split()[0] == "1"
    other = await pod.start("sleep", "1000")
    _, text = await pod.shell("grep -l sleep /proc/[0-9]*/comm; true")
    assert text == ""
    _, text = await pod.shell("cat /proc/1/comm", join=other)
    assert text == "sleep"


async def test_an_exec_sees_the_files_of_its_container(pod: Pod, volume: Path) -> None:
    main, output = await pod.start_with_output("sh", "-c", "echo own > /own; echo ready; sleep 1000", mounts=(Mount(volume, "/data"),))
    assert await output.line() == "ready"
    assert (await pod.shell("cat /data/file /own; hostname", join=main))[1] == "contentown\npod"
    main.signal(signal.SIGKILL)


async def test_the_current_user_is_root_inside_and_unchanged_outside(pod: Pod, volume: Path) -> None:
    _, text = await pod.shell("id -u; id -g; echo > /data/new", mounts=(Mount(volume, "/data"),))
    assert text.split() == ["0", "0"]
    assert (volume / "new").stat().st_uid == os.geteuid()


async def test_the_interpreter_that_runs_dlop_is_available(pod: Pod) -> None:
    assert (await pod.run(sys.executable, "-c", "import yaml; print('yes')"))[1] == "yes"


async def test_a_missing_working_directory_is_created(pod: Pod) -> None:
    assert (await pod.run("pwd", working_dir="/work-of/mine"))[1] == "/work-of/mine"


async def test_a_fork_bomb_is_stopped(tmp_path: Path) -> None:
    kernel = tuple(int(part) for part in os.uname().release.split(".")[:2])
    if os.geteuid() == 0 and kernel < (6, 14):
        pytest.skip("this kernel cannot limit the processes of root")
    fork = "import os, signal\nwhile True:\n    if os.fork() == 0: signal.pause()"
    async with start_pods(NamespacesRuntime(max_processes=400), tmp_path) as pods:
        bomb, other = await pods.pod("bomb"), await pods.pod("other")
        status, text = await bomb.run(sys.executable, "-S", "-c", fork)
        assert "Resource temporarily unavailable" in text
        assert status.code == 1
        assert (await other.shell("echo fine"))[1] == "fine"


def _exists(path: str) -> bool:
    return os.path.lexists(path)


def _text(path: str) -> str:
    return Path(path).read_text()
