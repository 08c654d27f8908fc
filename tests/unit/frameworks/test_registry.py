"""Registration, selection and loading of frameworks."""

from __future__ import annotations

import sys
from abc import ABC
from pathlib import Path

import pytest
from pydantic import Field

from dlop import ApiModel, DLJob, FrameworkFlags, JobType, Schema
from dlop.cli.main import main
from dlop.frameworks.registry import BUILT_IN, Registry, RegistryError, load, load_registry
from tests.installed_packages import install
from tests.kinds_for_crds import TwoVersions
from tests.unit.job.jobs import PairJob


class OtherPairJob(PairJob):
    """Another class for the same kind."""


class NewPairJob(PairJob):
    """The same kind in another version."""

    job_type = JobType(group="example.org", version="v2", kind="PairJob")


def test_kinds_are_distinguished_by_group_version_and_kind() -> None:
    registry = load_registry()
    assert registry.get("fioravanzo.org/v1alpha1", "MXJob") is not registry.get("mpba.fbk.eu/v1", "MXJob")
    assert registry.find("mpba.fbk.eu/v2", "MXJob") is None
    assert len(Registry([PairJob, NewPairJob])) == 2


def test_a_kind_is_registered_once_for_all_its_versions() -> None:
    registry = Registry([TwoVersions])
    assert registry.find("crds.dlop.dev/v1", "TwinJob") is registry.find("crds.dlop.dev/v1alpha1", "TwinJob") is TwoVersions
    assert (list(registry), len(registry)) == ([TwoVersions], 1)


def test_an_unknown_kind_is_reported_with_the_known_ones() -> None:
    with pytest.raises(RegistryError, match=r"unknown kind example\.org/v1 Nothing; known kinds: example\.org/v1 PairJob$"):
        Registry([PairJob]).get("example.org/v1", "Nothing")


def test_two_classes_for_one_kind_are_rejected() -> None:
    with pytest.raises(RegistryError, match=r"example\.org/v1 PairJob is declared by both .*:PairJob and .*:OtherPairJob"):
        Registry([PairJob, OtherPairJob])


def test_registering_a_class_twice_has_no_effect() -> None:
    assert list(Registry([PairJob, PairJob])) == [PairJob]


@pytest.mark.parametrize("name", ["PairJob", "pairjob", "pairjobs", "pairjobs.example.org", "PairJob.example.org"])
def test_a_kind_is_selected_by_any_of_its_names(name: str) -> None:
    assert list(Registry([PairJob]).select([name])) == [PairJob]


def test_a_name_without_a_group_selects_the_kind_in_all_groups() -> None:
    selected = [str(kind.job_type) for kind in load_registry().select(["mxjob"])]
    assert selected == ["fioravanzo.org/v1alpha1 MXJob", "mpba.fbk.eu/v1 MXJob", "kubeflow.org/v1 MXJob"]


def test_selecting_an_unknown_name_is_an_error() -> None:
    with pytest.raises(RegistryError, match=r"unknown kind 'tfjob'; known kinds: pairjobs\.example\.org$"):
        Registry([PairJob]).select(["tfjob"])


def test_a_framework_is_loaded_by_module_and_class() -> None:
    assert load("tests.unit.job.jobs:PairJob") is PairJob
    assert load_registry(["tests.unit.job.jobs:PairJob"]).find("example.org/v1", "PairJob") is PairJob


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tests.unit.job.jobs", "is not a class reference; use module:Class"),
        ("no_such_module:Job", "cannot import module 'no_such_module' of 'no_such_module:Job': ModuleNotFoundError"),
        ("tests.unit.job.jobs:Nothing", "module 'tests.unit.job.jobs' has no attribute 'Nothing'"),
        ("tests.unit.job.jobs:make", "must be a subclass of dlop.DLJob"),
        ("dlop:DLJob", "must be a subclass of dlop.DLJob that declares a job_type"),
        ("tests.unit.frameworks.test_registry:BaseJob", "BaseJob must have a class attribute of type ContainerProperties"),
        ("tests.unit.frameworks.lazy_module:Job", "cannot load 'tests.unit.frameworks.lazy_module:Job': RuntimeError: no GPU"),
    ],
)
def test_a_framework_that_cannot_be_loaded_is_reported(reference: str, message: str) -> None:
    with pytest.raises(RegistryError) as caught:
        load(reference)
    assert message in str(caught.value)


def test_frameworks_of_installed_packages_are_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "pairs", "pairjob = tests.unit.job.jobs:PairJob")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert load_registry().find("example.org/v1", "PairJob") is PairJob


def test_a_package_whose_framework_cannot_be_loaded_is_named_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "broken-pairs", "abroken = no_such_module:PairJob")
    install(tmp_path, "conflicting-pairs", "conflict = tests.unit.frameworks.test_registry:OtherTFJob")
    install(tmp_path, "lazy-pairs", "lazy = tests.unit.frameworks.lazy_module:Job")
    install(tmp_path, "shapeless-pairs", "shapeless = tests.unit.frameworks.test_registry:ShapelessJob")
    install(tmp_path, "pairs", "pairjob = tests.unit.job.jobs:PairJob")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    registry = load_registry()
    assert registry.find("example.org/v1", "PairJob") is PairJob
    assert len(registry) == len(BUILT_IN) + 1
    broken, conflicting, lazy, shapeless = registry.skipped
    assert "entry point 'abroken' of package broken-pairs: cannot import module 'no_such_module'" in broken
    assert "entry point 'conflict' of package conflicting-pairs: kubeflow.org/v1 TFJob is declared by both" in conflicting
    assert "entry point 'lazy' of package lazy-pairs: cannot load 'tests.unit.frameworks.lazy_module:Job': RuntimeError: no GPU" in lazy
    assert "entry point 'shapeless' of package shapeless-pairs: cannot generate the CRD of example.org/v1 ShapelessJob" in shapeless


@pytest.mark.parametrize("command", [["crds"], ["manifests"]])
def test_a_broken_package_is_reported_by_commands_and_does_not_stop_them(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    before = capsys.readouterr()
    install(tmp_path, "broken-pairs", "broken = no_such_module:PairJob")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert main(command) == 0
    after = capsys.readouterr()
    assert after.out == before.out
    assert after.err.startswith("warning: skipped the framework of entry point 'broken' of package broken-pairs: cannot import module")


class BaseJob(DLJob, ABC):
    """A base class that has a job type, but is not a complete framework."""

    job_type = JobType(group="example.org", version="v1", kind="BaseJob")


class Union(ApiModel):
    size: int | bool


class ShapelessJob(PairJob):
    """A kind whose spec has no structural schema."""

    job_type = JobType(group="example.org", version="v1", kind="ShapelessJob")
    schema = Schema(model=Union)


class OtherTFJob(PairJob):
    """Declares a kind that dlop has already."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="TFJob")


class ReservedFlags(FrameworkFlags):
    workers: int = Field(default=1, description="A flag that the operator has already.")


class ReservedFlagJob(PairJob):
    flags = ReservedFlags


def test_a_framework_cannot_declare_a_flag_that_exists() -> None:
    with pytest.raises(RegistryError, match="ReservedFlagJob declares the flag --workers, which already exists"):
        load_registry(["tests.unit.frameworks.test_registry:ReservedFlagJob"], reserved_flags=["--workers"])
