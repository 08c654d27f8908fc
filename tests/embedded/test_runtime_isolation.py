"""What a pod in namespaces tries to do with the host's files, and cannot."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dlop.embedded.kubelet.runtime.base import LaunchError, Mount
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from dlop.embedded.kubelet.runtime.program_paths import program_mounts
from tests.embedded.runtime_kit import Pod, launcher_of_this_process, start_pods

PROJECT = Path(__file__).parents[2]
_SOCKET_DIR = Path("/run/lock")
# As root of the pod, and as root of another user namespace, which has all capabilities there.
ATTACKERS = ("sh -c", "unshare --user --map-root-user --mount sh -c")
_DEFAULT_CAPABILITIES = "00000000a80425fb"


@pytest.fixture
def shared_dir() -> Iterator[Path]:
    """A directory of the current user that is not in a private directory of pods."""
    directory = Path(tempfile.mkdtemp(prefix="dlop-isolation-", dir="/var/tmp"))
    (directory / "file").write_text("content")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def home(shared_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the current user, with a secret and a project."""
    home = shared_dir / "home"
    (home / "project").mkdir(parents=True)
    (home / "secret").write_text("hush")
    (home / "project" / "data").write_text("data")
    monkeypatch.setenv("HOME", str(home))
    return home


@asynccontextmanager
async def start_pod(directory: Path, *mounts: Mount) -> AsyncIterator[Pod]:
    async with start_pods(NamespacesRuntime(mounts=mounts), directory) as pods:
        yield await pods.pod()


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def launcher_mounts_in(directory: Path) -> list[Path]:
    """The mount points of the launcher below a directory."""
    lines = Path(f"/proc/{launcher_of_this_process()}/mountinfo").read_text().splitlines()
    return [path for path in (Path(line.split()[4]) for line in lines) if path.is_relative_to(directory)]


# --- the host's files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attacker", ATTACKERS)
async def test_a_pod_cannot_change_the_files_of_the_host(tmp_path: Path, shared_dir: Path, attacker: str) -> None:
    script = f"""
        mount -o remount,bind,rw /var; mount -o remount,rw /var; umount -l /var
        echo changed > {shared_dir}/file; echo > {shared_dir}/new; rm {shared_dir}/file
        cat {shared_dir}/file
    """
    async with start_pod(tmp_path) as pod:
        _, text = await pod.run(*attacker.split(), script)
    assert text.endswith("content")
    assert text.count("Read-only file system") == 3
    assert names_in(shared_dir) == ["file"]
    assert (shared_dir / "file").read_text() == "content"


async def test_a_pod_can_write_to_its_mounts_and_private_directories(tmp_path: Path, shared_dir: Path, home: Path) -> None:
    script = f"echo new > {shared_dir}/new; for name in /tmp /dev/shm {home} /; do echo > $name/written || exit 1; done"
    async with start_pod(tmp_path, Mount.at_same_path(shared_dir)) as pod:
        assert (await pod.shell(script))[0].code == 0
    assert (shared_dir / "new").read_text() == "new\n"
    assert names_in(home) == ["project", "secret"]


async def test_a_read_only_mount_of_the_user_cannot_be_written_to(tmp_path: Path, shared_dir: Path) -> None:
    async with start_pod(tmp_path, Mount.at_same_path(shared_dir, read_only=True)) as pod:
        assert "Read-only file system" in (await pod.shell(f"echo > {shared_dir}/new"))[1]


@pytest.mark.parametrize("attacker", ATTACKERS)
async def test_a_pod_cannot_read_the_home_of_the_user(tmp_path: Path, home: Path, attacker: str) -> None:
    async with start_pod(tmp_path) as pod:
        _, text = await pod.run(*attacker.split(), f"umount -l {home} 2>/dev/null; ls -A {home}; cat {home}/secret")
    assert text == f"cat: {home}/secret: No such file or directory"


@pytest.mark.usefixtures("home")
async def test_a_pod_cannot_read_the_homes_of_other_users(tmp_path: Path) -> None:
    """The home of the current user is elsewhere. Only the Python that runs this program is visible, if it is in one of them."""
    programs = [Path(mount.target) for mount in program_mounts(())]
    async with start_pod(tmp_path) as pod:
        _, text = await pod.shell("find /home /root -mindepth 1 -maxdepth 1 ! -type l")
    visible = [path for path in text.splitlines() if not any(program.is_relative_to(path) for program in programs)]
    assert visible == []


async def test_a_pod_reads_what_a_mount_names_in_the_home_and_nothing_else(tmp_path: Path, home: Path) -> None:
    async with start_pod(tmp_path, Mount.at_same_path(home / "project")) as pod:
        assert (await pod.shell(f"ls -A {home}; cat {home}/project/data"))[1] == "project\ndata"


@pytest.mark.skipif(not os.access(_SOCKET_DIR, os.W_OK), reason="the current user cannot create a socket in /run")
async def test_a_pod_cannot_connect_to_a_socket_in_run(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=_SOCKET_DIR) as directory, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{directory}/socket")
        server.listen()
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{directory}/socket')"
        async with start_pod(tmp_path) as pod:
            assert "FileNotFoundError" in (await pod.run(sys.executable, "-c", connect))[1]
            assert (await pod.shell("find /run/user -mindepth 1 2>/dev/null"))[1] == ""
            shown = (Path.cwd(), Path(sys.prefix), Path(sys.base_prefix))
            for home in ("/home", "/root"):
                shown_in_home = {path.relative_to(home).parts[0] for path in shown if path.is_relative_to(home)}
                assert set((await pod.shell(f"ls -A {home} 2>/dev/null"))[1].split()) <= shown_in_home


async def test_links_in_run_are_kept(tmp_path: Path) -> None:
    links = [name for name in names_in(Path("/run")) if (Path("/run") / name).is_symlink()]
    async with start_pod(tmp_path) as pod:
        assert (await pod.shell("ls -A /run"))[1].split() == links


async def test_a_pod_has_no_disks_and_no_terminals_of_the_host(tmp_path: Path) -> None:
    terminal, other_side = os.openpty()
    async with start_pod(tmp_path) as pod:
        assert (await pod.shell("find /dev -type b; ls /dev/pts"))[1] == "ptmx"
        assert (await pod.shell("ls /dev/null /dev/zero /dev/urandom /dev/tty && echo > /dev/null"))[0].code == 0
        own_terminal = "import os; print(os.ttyname(os.openpty()[1]))"
        assert (await pod.run(sys.executable, "-c", own_terminal))[1] == "/dev/pts/0"
    os.close(terminal)
    os.close(other_side)


async def test_a_pod_cannot_change_kernel_settings(tmp_path: Path) -> None:
    # In namespaces this one is harmless: it is the host name of the pod.
    async with start_pod(tmp_path) as pod:
        assert "Read-only file system" in (await pod.shell("echo changed > /proc/sys/kernel/hostname"))[1]
        assert (await pod.shell("hostname"))[1] == "pod"


async def test_containers_and_their_execs_have_the_default_capabilities_of_a_cluster(tmp_path: Path) -> None:
    script = "grep CapEff /proc/self/status"
    async with start_pod(tmp_path) as pod:
        container = await pod.start("sleep", "1000")
        assert (await pod.shell(script))[1].split()[1] == _DEFAULT_CAPABILITIES
        assert (await pod.shell(script, join=container))[1].split()[1] == _DEFAULT_CAPABILITIES


# --- the node's files and secrets ------------------------------------------------------------------------------------------


@asynccontextmanager
async def start_protected_pod(directory: Path) -> AsyncIterator[Pod]:
    """A pod of a node whose files and kubeconfig are in one directory, which pods can also mount."""
    node_dir = directory / "node"
    node_dir.mkdir()
    (node_dir / "token").write_text("node-hush")
    (directory / "kubeconfig").write_text("admin-hush")
    runtime = NamespacesRuntime(mounts=[Mount.at_same_path(directory)])
    runtime.protect(node_dir, secret_dirs=[directory])
    async with start_pods(runtime, node_dir) as pods:
        yield await pods.pod()


@pytest.mark.parametrize("attacker", ATTACKERS)
async def test_a_pod_cannot_read_secrets_whatever_it_mounts(tmp_path: Path, attacker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    monkeypatch.chdir(cluster)
    (tmp_path / "link").symlink_to(cluster)
    sources = (cluster, tmp_path / "link", tmp_path, Path("/"), Path("/proc/self/cwd"))
    mounts = tuple(Mount(source, f"/mounts/{index}") for index, source in enumerate(sources))
    script = f"""
        umount -l {cluster} /mounts/* 2>/dev/null
        grep -rs hush {cluster} /mounts/0 /mounts/1 /mounts/2 /mounts/3{cluster} /mounts/4/kubeconfig
        ls -A {cluster} /mounts/0 | grep -v :
    """
    async with start_protected_pod(cluster) as pod:
        assert (await pod.run(*attacker.split(), script, mounts=mounts))[1] == ""
        container = await pod.start("sleep", "1000", mounts=mounts)
        (cluster / "new").write_text("new-hush")
        (cluster / "new").replace(cluster / "kubeconfig")
        assert (await pod.run(*attacker.split(), script, join=container))[1] == ""
    assert (cluster / "kubeconfig").read_text() == "new-hush"


@pytest.mark.parametrize("source", ["{}/kubeconfig", "/proc/self/cwd/kubeconfig", "/proc/{pid}/cwd/kubeconfig"])
async def test_a_secret_file_cannot_be_mounted_by_its_path(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(source.format(tmp_path, pid=os.getpid()))
    async with start_protected_pod(tmp_path) as pod:
        with pytest.raises(LaunchError, match=r"no such file or directory|invalid argument|permission denied"):
            await pod.start("true", mounts=(Mount(path, "/kubeconfig"),))


async def test_the_kubelet_can_mount_files_of_the_node(tmp_path: Path) -> None:
    async with start_protected_pod(tmp_path) as pod:
        assert (await pod.shell("cat /token", mounts=(Mount(tmp_path / "node" / "token", "/token"),)))[1] == "node-hush"


async def test_a_mount_of_the_temporary_directory_does_not_show_the_files_of_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, cluster = tmp_path / "temporary", tmp_path / "cluster"
    temporary.mkdir()
    cluster.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    async with start_protected_pod(cluster) as pod:
        (launcher_dir,) = temporary.iterdir()
        assert (await pod.shell("find /it/*", mounts=(Mount(temporary, "/it"),)))[1] == f"/it/{launcher_dir.name}"


async def test_a_link_to_the_files_of_the_launcher_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, cluster = tmp_path / "temporary", tmp_path / "cluster"
    temporary.mkdir()
    cluster.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    async with start_protected_pod(cluster) as pod:
        private = launcher_mounts_in(temporary)
        # The node, the shared memory of pods, and the file system that contains both.
        assert len(private) == 3
        for index, path in enumerate(private):
            (temporary / str(index)).symlink_to(path)
            with pytest.raises(LaunchError, match=r"no such file or directory|invalid argument"):
                await pod.start("true", mounts=(Mount(temporary / str(index), "/it"),))


@pytest.mark.parametrize(("path", "message"), [("link", "too many levels of symbolic links"), ("link/token", "not a directory")])
async def test_a_link_in_a_volume_is_not_followed_when_the_volume_is_mounted(tmp_path: Path, path: str, message: str) -> None:
    """A pod can replace a directory of its volume, which another container mounts by a sub-path, at any time."""
    async with start_protected_pod(tmp_path) as pod:
        volume = tmp_path / "node" / "volume"
        volume.mkdir()
        (volume / "link").symlink_to("..")
        with pytest.raises(LaunchError, match=message):
            await pod.start("true", mounts=(Mount(volume / path, "/it"),))


async def test_a_pod_cannot_read_files_through_processes_of_the_host(tmp_path: Path) -> None:
    """With a hostPath volume of /proc: those of this process, of the launcher and of all others that are not in a pod."""
    script = f"""
        cat /it/[0-9]*/root{tmp_path}/kubeconfig /it/[0-9]*/cwd/kubeconfig /it/{os.getpid()}/environ 2>/dev/null
        ls -d /it/{os.getpid()}
    """
    async with start_protected_pod(tmp_path) as pod:
        for attacker in ATTACKERS:
            text = (await pod.run(*attacker.split(), script, mounts=(Mount(Path("/proc"), "/it"),)))[1]
            assert text == f"/it/{os.getpid()}"


async def test_the_temporary_directory_may_be_in_a_secret_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with start_protected_pod(tmp_path) as pod:
        assert (await pod.shell("echo works"))[1] == "works"


# --- old kernels -----------------------------------------------------------------------------------------------------------

_WITHOUT_MOUNT_SETATTR = """
import errno, os, sys
from dlop.embedded.kubelet.runtime.launcher import rootfs
from dlop.embedded.kubelet.runtime.launcher.syscalls import MS_BIND, mount
from dlop.embedded.kubelet.runtime.launcher.user_namespace import enter_user_namespace
def missing(target):
    raise OSError(errno.ENOSYS, "missing")
rootfs.set_read_only = missing
enter_user_namespace()
if os.fork():
    os.wait()
    sys.exit()
new_root, inner = sys.argv[1:]
mount(inner, inner, flags=MS_BIND)
rootfs.enter_new_root(new_root, hidden_dirs=[], mounts=[], directories=[])
for path in (inner + "/new", "/usr/new", "/sys/new"):
    try:
        open(path, "w")
    except OSError as error:
        print(error.strerror)
"""


async def test_files_are_also_read_only_on_kernels_without_mount_setattr(tmp_path: Path, shared_dir: Path) -> None:
    inner = shared_dir / "an inner mount"
    inner.mkdir()
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-c", _WITHOUT_MOUNT_SETATTR, str(tmp_path), str(inner)),
        cwd=PROJECT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert (await program.communicate())[0].decode() == "Read-only file system\n" * 3
