"""Security boundaries and resource limits of `dlop local`: listening addresses, file modes, open files."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.local.local_jobs import job, write_manifests
from tests.local.local_process import SIGINT, run_local, start_local

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

_LISTENING = "0A"
_FEW_FILES = 1000


async def test_it_listens_on_the_loopback_interface_only(tmp_path: Path) -> None:
    async with start_local(folder=tmp_path) as dlop:
        await dlop.kubeconfig()
        addresses = list(_listening_addresses(dlop.process.pid))
        # The API server and the kubelet.
        assert [address.is_loopback for address in addresses] == [True, True]
        assert not _sockets(dlop.process.pid) & {line.split()[9] for line in _table("tcp6")}
        await dlop.wait_for_exit(SIGINT)


async def test_files_in_a_shared_directory_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "open"
    directory.mkdir(mode=0o755)
    async with start_local("--folder", str(directory), folder=tmp_path) as dlop:
        await dlop.kubeconfig()
        modes = {path.name: path.stat().st_mode & 0o077 for path in directory.iterdir()}
        assert (modes["kubeconfig"], modes["node"], modes["dlop.log"]) == (0, 0, 0)
        await dlop.wait_for_exit(SIGINT)


@pytest.fixture
def few_files() -> Iterator[None]:
    """A soft limit of open files below the hard limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FEW_FILES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
async def test_it_raises_its_limit_of_open_files_but_not_the_limit_of_pods(tmp_path: Path) -> None:
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    file = write_manifests(tmp_path, job(scheduler="echo limit $(ulimit -n); sleep 1000"))
    async with start_local(file, "--logs", folder=tmp_path) as dlop:
        match = await dlop.wait_for_output(r"limit (\d+)")
        assert int(match[1]) == _FEW_FILES
        assert resource.prlimit(dlop.process.pid, resource.RLIMIT_NOFILE) == (hard_limit, hard_limit)
        await dlop.wait_for_exit(SIGINT)


async def test_a_job_for_another_scheduler_runs_too(tmp_path: Path) -> None:
    body = job(scheduler="echo here")
    for role in body["spec"]["replicaSpecs"]:
        role["template"]["spec"]["schedulerName"] = "volcano"
    result = await run_local(write_manifests(tmp_path, body), "--timeout", "30s", folder=tmp_path)
    assert result.code == 0, result.out


def _listening_addresses(pid: int) -> Iterator[IPv4Address]:
    own_sockets = _sockets(pid)
    for line in _table("tcp"):
        address, state, inode = line.split()[1], line.split()[3], line.split()[9]
        if state == _LISTENING and inode in own_sockets:
            yield IPv4Address(int.from_bytes(bytes.fromhex(address.partition(":")[0]), sys.byteorder))


def _table(name: str) -> list[str]:
    return Path(f"/proc/net/{name}").read_text().splitlines()[1:]


def _sockets(pid: int) -> set[str]:
    """The inodes of the sockets of a process."""
    names = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    return {name[len("socket:[") : -1] for name in names if name.startswith("socket:[")}
