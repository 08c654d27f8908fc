"""Where a `dlop local` ends: who can reach it, who can read its files, and what it takes and leaves of the machine's limits."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.local.local_jobs import job, written
from tests.local.local_program import SIGINT, run, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

_LISTENING = "0A"
_FEW_FILES = 1000


async def test_it_listens_on_the_loopback_only(tmp_path: Path) -> None:
    async with running(folder=tmp_path) as program:
        await program.kubeconfig()
        addresses = list(_listened_on(program.process.pid))
        # The API server's, and the kubelet's.
        assert [address.is_loopback for address in addresses] == [True, True]
        assert not _sockets(program.process.pid) & {line.split()[9] for line in _table("tcp6")}
        await program.ends(SIGINT)


async def test_in_a_folder_that_everybody_may_enter_nobody_else_reads_what_is_secret(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    async with running("--folder", str(place), folder=tmp_path) as program:
        await program.kubeconfig()
        modes = {path.name: path.stat().st_mode & 0o077 for path in place.iterdir()}
        assert (modes["kubeconfig"], modes["node"], modes["dlop.log"]) == (0, 0, 0)
        await program.ends(SIGINT)


@pytest.fixture
def few_files() -> Iterator[None]:
    """A machine on which programs may not open as many files as they could if they asked for it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FEW_FILES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
async def test_it_may_open_as_many_files_as_the_machine_allows_and_its_pods_as_many_as_elsewhere(tmp_path: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    file = written(tmp_path, job(scheduler="echo limit $(ulimit -n); sleep 1000"))
    async with running(file, "--logs", folder=tmp_path) as program:
        told = await program.hears(r"limit (\d+)")
        assert int(told[1]) == _FEW_FILES
        assert resource.prlimit(program.process.pid, resource.RLIMIT_NOFILE) == (most, most)
        await program.ends(SIGINT)


async def test_a_job_for_another_scheduler_runs_all_the_same(tmp_path: Path) -> None:
    wanted = job(scheduler="echo here")
    for role in wanted["spec"]["replicaSpecs"]:
        role["template"]["spec"]["schedulerName"] = "volcano"
    ended = await run(written(tmp_path, wanted), "--timeout", "30s", folder=tmp_path)
    assert ended.code == 0, ended.out


def _listened_on(process: int) -> Iterator[IPv4Address]:
    own = _sockets(process)
    for line in _table("tcp"):
        place, state, inode = line.split()[1], line.split()[3], line.split()[9]
        if state == _LISTENING and inode in own:
            yield IPv4Address(int.from_bytes(bytes.fromhex(place.partition(":")[0]), sys.byteorder))


def _table(name: str) -> list[str]:
    return Path(f"/proc/net/{name}").read_text().splitlines()[1:]


def _sockets(process: int) -> set[str]:
    """The numbers of the sockets that a process has."""
    names = [str(each.readlink()) for each in Path(f"/proc/{process}/fd").iterdir() if each.is_symlink()]
    return {name[len("socket:[") : -1] for name in names if name.startswith("socket:[")}
