"""The selection of the Kubernetes version of the real control plane."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes_build import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    PROGRAMS,
    VERSION_VARIABLE,
    AssetsError,
    cache_directory,
    find_assets,
    kubernetes_version,
)


def install(folder: Path) -> None:
    folder.mkdir(parents=True)
    for program in PROGRAMS:
        (folder / program).touch(mode=0o755)


@pytest.mark.parametrize(
    ("selected", "version"),
    [("", NEWEST_VERSION), ("newest", NEWEST_VERSION), ("oldest", OLDEST_VERSION), ("1.33.0", "v1.33.0"), ("v1.33.0", "v1.33.0")],
)
def test_the_variable_selects_the_version(selected: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERSION_VARIABLE, selected)
    assert kubernetes_version() == version


@pytest.mark.parametrize("selected", ["1.33", "latest", "v", "../1.33.0"])
def test_an_invalid_version_is_rejected(selected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERSION_VARIABLE, selected)
    with pytest.raises(AssetsError, match=f"{VERSION_VARIABLE}={selected}: must be newest, oldest or a version"):
        kubernetes_version()


def test_programs_of_another_version_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    monkeypatch.delenv(VERSION_VARIABLE, raising=False)
    install(tmp_path / "assets")
    install(cache_directory())
    assert find_assets(("kubectl",)) == {"kubectl": tmp_path / "assets" / "kubectl"}
    monkeypatch.setenv(VERSION_VARIABLE, "oldest")
    assert find_assets() is None
    install(cache_directory())
    assert find_assets(("kubectl",)) == {"kubectl": cache_directory() / "kubectl"}
