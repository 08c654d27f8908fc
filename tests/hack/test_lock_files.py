"""The lock files of the image match pyproject.toml, and a change of the requirements is found without a network."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import lock_files
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.hack.scripts import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = lock_files.requirements_by_file(PYPROJECT)


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_the_locked_versions_satisfy_the_requirements(name: str) -> None:
    versions = dict(re.findall(r"^([a-z0-9._-]+)==([^ ]+)", (ROOT / name).read_text(), re.MULTILINE))
    for requirement in map(Requirement, REQUIREMENTS[name]):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_every_package_has_a_version_and_hashes_and_no_address(name: str) -> None:
    _, *packages = re.split(r"\n(?=[a-z])", (ROOT / name).read_text())
    for package in packages:
        first, *hashes = package.rstrip("\n").split(" \\\n")
        assert re.fullmatch(r"[a-z0-9._-]+==[^ ]+( ; .+)?", first), first
        assert hashes
        assert all(re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}", line) for line in hashes), first


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "hack").mkdir()
    for name in ("pyproject.toml", *REQUIREMENTS):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_lock_files_of_the_same_requirements_are_up_to_date(project: Path) -> None:
    assert lock_files.find_outdated_files(project) == {}


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ('"pyyaml>=6",', '"pyyaml>=6", "anyio>=4",', "hack/requirements.txt"),
        ('"hatchling>=1.27"', '"hatchling>=1.28"', "hack/build-requirements.txt"),
    ],
)
def test_a_changed_requirement_makes_its_lock_file_outdated(project: Path, old: str, new: str, name: str) -> None:
    pyproject = project / "pyproject.toml"
    assert old in pyproject.read_text()
    pyproject.write_text(pyproject.read_text().replace(old, new))
    assert list(lock_files.find_outdated_files(project)) == [name]


def test_changes_of_other_settings_need_no_new_lock_file(project: Path) -> None:
    pyproject = project / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace("line-length = 140", "line-length = 139"))
    assert lock_files.find_outdated_files(project) == {}


def test_a_missing_lock_file_is_outdated(project: Path) -> None:
    (project / "hack" / "requirements.txt").unlink()
    assert list(lock_files.find_outdated_files(project)) == ["hack/requirements.txt"]
