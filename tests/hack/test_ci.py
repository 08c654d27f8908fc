"""What `.ci/run` asks for: nothing that it should have tested is skipped unless somebody has said so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.hack.scripts import ROOT, run

_REQUIRED = 'echo "cluster=$DLOP_REQUIRE_CLUSTER mpi=$DLOP_REQUIRE_MPI mxnet=$DLOP_REQUIRE_MXNET"'
_ALL = "cluster=1 mpi=1 mxnet=1\n"
# It notes what it is asked for. It installs at the attempt that it is told, and does not know the package before.
_APT = """echo "$1" >>{folder}/asked
[ "$1" = update ] && exit {update}
[ "$(grep -c install {folder}/asked)" -ge {succeeds_at} ] || exit 100
printf '#!/bin/sh\\n' >{folder}/bin/mpirun && chmod +x {folder}/bin/mpirun
"""


class Machine:
    """A project with nothing in it but `.ci/run`, on a machine with nothing on it but what is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name in ("bash", "dirname", "grep", "chmod"):
            (folder / "bin" / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
        self.script = folder / ".ci" / "run"
        self.script.parent.mkdir()
        self.script.write_bytes((ROOT / ".ci" / "run").read_bytes())
        for name in ("hack/check", ".venv/bin/python"):
            self.program(name, "exit 0")
        self.program("hack/test", _REQUIRED)
        self.program("bin/id", "echo 0")

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def apt(self, *, succeeds_at: int, update: int = 0) -> None:
        self.program("bin/apt-get", _APT.format(folder=self.folder, succeeds_at=succeeds_at, update=update))

    @property
    def asked(self) -> list[str]:
        """What apt-get was asked for."""
        return (self.folder / "asked").read_text().split()

    def run(self, *, without: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.folder / "bin"), "DLOP_CI_WITHOUT": without}
        return run("/bin/bash", self.script, environment={**environment, **dict.fromkeys(_UNSET)})


_UNSET = ("DLOP_REQUIRE_CLUSTER", "DLOP_REQUIRE_MPI", "DLOP_REQUIRE_MXNET")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_real_server_and_mpi_and_mxnet_are_required(machine: Machine) -> None:
    machine.program("bin/mpirun", "exit 0")
    answer = machine.run()
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, _ALL, "")


def test_mpi_is_installed_where_it_is_missing(machine: Machine) -> None:
    machine.apt(succeeds_at=1)
    assert machine.run().stdout == _ALL
    assert machine.asked == ["install"]


@pytest.mark.parametrize("update", [0, 100])
def test_the_list_of_packages_is_fetched_where_it_does_not_name_mpi_and_failing_that_is_no_harm(machine: Machine, update: int) -> None:
    machine.apt(succeeds_at=2, update=update)
    assert machine.run().stdout == _ALL
    assert machine.asked == ["install", "update", "install"]


def test_a_mirror_gets_a_second_chance(machine: Machine) -> None:
    machine.apt(succeeds_at=3)
    assert machine.run().stdout == _ALL
    assert machine.asked == ["install", "update", "install", "update", "install"]


def test_where_mpi_cannot_be_installed_nothing_is_tested_and_a_sentence_says_what_to_do(machine: Machine) -> None:
    machine.apt(succeeds_at=100)
    answer = machine.run()
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "there is no mpirun, and it cannot be installed" in answer.stderr
    assert "DLOP_CI_WITHOUT=mpi" in answer.stderr


def test_without_root_nothing_is_installed(machine: Machine) -> None:
    machine.program("bin/id", "echo 1000")
    machine.apt(succeeds_at=1)
    assert machine.run().returncode == 1
    assert not (machine.folder / "asked").exists()


@pytest.mark.parametrize(
    ("without", "required"),
    [("mpi", "cluster=1 mpi=0 mxnet=1\n"), ("mpi mxnet", "cluster=1 mpi=0 mxnet=0\n")],
)
def test_what_is_left_out_on_purpose_is_announced_and_not_required(machine: Machine, without: str, required: str) -> None:
    answer = machine.run(without=without)
    assert (answer.returncode, answer.stdout) == (0, required)
    announced = [f"DLOP_CI_WITHOUT: the examples of {name} are not required" for name in without.split()]
    assert [line.partition(",")[0] for line in answer.stderr.splitlines()] == announced


def test_nothing_else_can_be_left_out(machine: Machine) -> None:
    answer = machine.run(without="cluster")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "DLOP_CI_WITHOUT says cluster, and only mpi and mxnet can be left out\n"
