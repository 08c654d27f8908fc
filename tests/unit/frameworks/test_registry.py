from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dlop import DLJob, JobType
from dlop.frameworks.registry import Registry, RegistryError, load, load_registry
from tests.unit.job.jobs import PairJob


class OtherPairJob(PairJob):
    """Another class for the same kind."""


class NewPairJob(PairJob):
    """The same kind in another version."""

    job_type = JobType(group="example.org", version="v2", kind="PairJob")


def test_kinds_are_told_apart_by_group_version_and_kind() -> None:
    registry = load_registry()
    assert registry.get("fioravanzo.org/v1alpha1", "MXJob") is not registry.get("mpba.fbk.eu/v1", "MXJob")
    assert registry.find("mpba.fbk.eu/v2", "MXJob") is None
    assert len(Registry([PairJob, NewPairJob])) == 2


def test_an_unknown_kind_is_told_with_those_that_there_are() -> None:
    with pytest.raises(RegistryError, match=r"example\.org/v1 Nothing is not a kind that dlop knows\. It knows: example\.org/v1 PairJob\."):
        Registry([PairJob]).get("example.org/v1", "Nothing")


def test_two_classes_for_one_kind_are_refused_by_name() -> None:
    with pytest.raises(RegistryError, match=r"example\.org/v1 PairJob is declared twice: by .*:PairJob and by .*:OtherPairJob"):
        Registry([PairJob, OtherPairJob])


def test_the_same_class_twice_is_one_kind() -> None:
    assert list(Registry([PairJob, PairJob])) == [PairJob]


@pytest.mark.parametrize("name", ["PairJob", "pairjob", "pairjobs", "pairjobs.example.org", "PairJob.example.org"])
def test_a_kind_is_chosen_by_any_of_its_names(name: str) -> None:
    assert list(Registry([PairJob]).select([name])) == [PairJob]


def test_a_name_without_a_group_chooses_all_kinds_of_that_name() -> None:
    found = [str(kind.job_type) for kind in load_registry().select(["mxjob"])]
    assert found == ["fioravanzo.org/v1alpha1 MXJob", "mpba.fbk.eu/v1 MXJob", "kubeflow.org/v1 MXJob"]


def test_a_name_that_fits_no_kind_is_refused() -> None:
    with pytest.raises(RegistryError, match=r"'tfjob' is not the name of a kind\. Write one of: pairjobs\.example\.org\."):
        Registry([PairJob]).select(["tfjob"])


def test_a_framework_is_loaded_by_module_and_class() -> None:
    assert load("tests.unit.job.jobs:PairJob") is PairJob
    assert load_registry(["tests.unit.job.jobs:PairJob"]).find("example.org/v1", "PairJob") is PairJob


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("tests.unit.job.jobs", "does not name a class. Write it as module:Class"),
        ("no_such_module:Job", "the module 'no_such_module' of 'no_such_module:Job' cannot be imported: ModuleNotFoundError"),
        ("tests.unit.job.jobs:Nothing", "does not exist: the module 'tests.unit.job.jobs' can be imported, but has no 'Nothing'."),
        ("tests.unit.job.jobs:make", "must be a class that extends dlop.DLJob"),
        ("dlop:DLJob", "must be a class that extends dlop.DLJob and declares a job_type"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_a_sentence(reference: str, sentence: str) -> None:
    with pytest.raises(RegistryError) as caught:
        load(reference)
    assert sentence in str(caught.value)


def test_an_installed_package_brings_its_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "pairs", "pairjob = tests.unit.job.jobs:PairJob")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert load_registry().find("example.org/v1", "PairJob") is PairJob


def test_a_package_whose_kind_does_not_load_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "broken-pairs", "pairjob = no_such_module:PairJob")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(RegistryError, match=r"the entry point 'pairjob' of the package broken-pairs does not work: the module"):
        load_registry()


def install(place: Path, package: str, entry_point: str) -> None:
    folder = place / f"{package.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[dlop.frameworks]\n{entry_point}\n")


def test_every_kind_that_comes_along_can_be_looked_at() -> None:
    for kind in load_registry():
        assert issubclass(kind, DLJob)
        assert kind.spec_model is not None
        assert kind.printer_columns
