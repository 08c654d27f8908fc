"""`.ci/run` skips no required test unless `DLOP_CI_WITHOUT` names it, and builds the image where it can."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.hack.scripts import ROOT, run

_REQUIRED = 'echo "cluster=$DLOP_REQUIRE_CLUSTER mpi=$DLOP_REQUIRE_MPI mxnet=$DLOP_REQUIRE_MXNET"'
_ALL = "cluster=1 mpi=1 mxnet=1\n"
# Records its subcommands. `install` succeeds from the given attempt on.
_APT = """echo "$1" >>{folder}/commands
[ "$1" = update ] && exit {update}
[ "$(grep -c install {folder}/commands)" -ge {succeeds_at} ] || exit 100
printf '#!/bin/sh\\n' >{folder}/bin/mpirun && chmod +x {folder}/bin/mpirun
"""


class Machine:
    """A project that contains only `.ci/run`, and a PATH that contains only the programs added to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name in ("bash", "dirname", "grep", "chmod"):
            (folder / "bin" / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
        self.script = folder / ".ci" / "run"
        self.script.parent.mkdir()
        self.script.write_bytes((ROOT / ".ci" / "run").read_bytes())
        for name in ("hack/check", ".venv/bin/python"):
            self.add_program(name, "exit 0")
        self.add_program("hack/test", _REQUIRED)
        self.add_program("hack/image", 'echo "image built" >&2')
        self.add_program("hack/chaos", f'echo "$@" >{folder}/chaos-arguments')
        self.add_program("bin/id", "echo 0")

    def add_program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def add_apt(self, *, succeeds_at: int, update: int = 0) -> None:
        self.add_program("bin/apt-get", _APT.format(folder=self.folder, succeeds_at=succeeds_at, update=update))

    @property
    def apt_commands(self) -> list[str]:
        return (self.folder / "commands").read_text().split()

    def run(self, *, without: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.folder / "bin"), "DLOP_CI_WITHOUT": without}
        return run("/bin/bash", self.script, environment={**environment, **dict.fromkeys(_UNSET)})


_NOT_BUILT = "the image is not built: this needs root, mount namespaces, and the Debian packages buildah and debootstrap"
_UNSET = ("DLOP_REQUIRE_CLUSTER", "DLOP_REQUIRE_MPI", "DLOP_REQUIRE_MXNET")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_real_server_and_mpi_and_mxnet_are_required(machine: Machine) -> None:
    machine.add_program("bin/mpirun", "exit 0")
    process = machine.run()
    assert (process.returncode, process.stdout, process.stderr) == (0, _ALL, f"{_NOT_BUILT}\n")


def test_the_tests_are_followed_by_one_minute_of_chaos_that_must_pass(machine: Machine) -> None:
    machine.add_program("bin/mpirun", "exit 0")
    machine.run()
    assert (machine.folder / "chaos-arguments").read_text() == "--minutes 1 --seed 1\n"
    machine.add_program("hack/chaos", "exit 1")
    assert machine.run().returncode == 1


def test_mpi_is_installed_if_it_is_missing(machine: Machine) -> None:
    machine.add_apt(succeeds_at=1)
    assert machine.run().stdout == _ALL
    assert machine.apt_commands == ["install"]


@pytest.mark.parametrize("update", [0, 100])
def test_package_lists_are_updated_if_mpi_is_not_found_and_a_failed_update_is_ignored(machine: Machine, update: int) -> None:
    machine.add_apt(succeeds_at=2, update=update)
    assert machine.run().stdout == _ALL
    assert machine.apt_commands == ["install", "update", "install"]


def test_a_failed_installation_is_retried(machine: Machine) -> None:
    machine.add_apt(succeeds_at=3)
    assert machine.run().stdout == _ALL
    assert machine.apt_commands == ["install", "update", "install", "update", "install"]


def test_if_mpi_cannot_be_installed_no_test_runs_and_the_error_names_the_options(machine: Machine) -> None:
    machine.add_apt(succeeds_at=100)
    process = machine.run()
    assert (process.returncode, process.stdout) == (1, "")
    assert "mpirun not found, and OpenMPI cannot be installed" in process.stderr
    assert "DLOP_CI_WITHOUT=mpi" in process.stderr


def test_without_root_nothing_is_installed(machine: Machine) -> None:
    machine.add_program("bin/id", "echo 1000")
    machine.add_apt(succeeds_at=1)
    assert machine.run().returncode == 1
    assert not (machine.folder / "commands").exists()


@pytest.mark.parametrize(
    ("without", "required"),
    [("mpi", "cluster=1 mpi=0 mxnet=1\n"), ("mpi mxnet", "cluster=1 mpi=0 mxnet=0\n")],
)
def test_skipped_examples_are_reported_and_not_required(machine: Machine, without: str, required: str) -> None:
    process = machine.run(without=without)
    assert (process.returncode, process.stdout) == (0, required)
    expected = [f"DLOP_CI_WITHOUT: examples of {name} are not required" for name in without.split()]
    assert [line.partition(" and ")[0] for line in process.stderr.splitlines() if line != _NOT_BUILT] == expected


def test_other_requirements_cannot_be_skipped(machine: Machine) -> None:
    process = machine.run(without="cluster")
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr == "DLOP_CI_WITHOUT: unknown value cluster; valid values are mpi, mxnet and image\n"


def test_the_image_is_built_where_buildah_runs(machine: Machine) -> None:
    for name in ("mpirun", "unshare", "buildah", "debootstrap"):
        machine.add_program(f"bin/{name}", "exit 0")
    process = machine.run()
    assert (process.returncode, process.stdout, process.stderr) == (0, _ALL, "image built\n")


def test_buildah_is_installed_if_it_is_missing(machine: Machine) -> None:
    for name in ("mpirun", "unshare"):
        machine.add_program(f"bin/{name}", "exit 0")
    machine.add_apt(succeeds_at=1)
    assert machine.run().stderr == "image built\n"
    assert machine.apt_commands == ["install"]


@pytest.mark.parametrize("obstacle", ["no root", "no mount namespaces", "not installable"])
def test_the_tests_run_where_the_image_cannot_be_built(machine: Machine, obstacle: str) -> None:
    machine.add_program("bin/mpirun", "exit 0")
    machine.add_program("bin/id", f"echo {1000 if obstacle == 'no root' else 0}")
    machine.add_program("bin/unshare", f"exit {1 if obstacle == 'no mount namespaces' else 0}")
    if obstacle == "not installable":
        machine.add_apt(succeeds_at=100)
    else:
        machine.add_program("bin/buildah", "exit 0")
        machine.add_program("bin/debootstrap", "exit 0")
    process = machine.run()
    assert (process.returncode, process.stdout, process.stderr) == (0, _ALL, f"{_NOT_BUILT}\n")


def test_the_image_can_be_skipped(machine: Machine) -> None:
    for name in ("mpirun", "unshare", "buildah", "debootstrap"):
        machine.add_program(f"bin/{name}", "exit 0")
    process = machine.run(without="image")
    assert (process.returncode, process.stdout, process.stderr) == (0, _ALL, "DLOP_CI_WITHOUT: the image is not built\n")


def test_an_image_that_cannot_be_started_fails_the_run(machine: Machine) -> None:
    for name in ("mpirun", "unshare", "buildah", "debootstrap"):
        machine.add_program(f"bin/{name}", "exit 0")
    machine.add_program("hack/image", "exit 1")
    process = machine.run()
    assert (process.returncode, process.stdout) == (1, "")
