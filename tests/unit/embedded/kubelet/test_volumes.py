from __future__ import annotations

import base64
from pathlib import Path

import pytest

from dlop.embedded.kubelet.environment import ConfigSources, ContainerConfigError, DownwardValues
from dlop.embedded.kubelet.volumes import (
    EmptyDir,
    HostPath,
    ProjectedFile,
    ProjectedFiles,
    VolumeError,
    VolumeInputs,
    container_mounts,
    plan_volume,
    referenced_sources,
    set_up_volume,
)
from dlop.kube.types import JsonObject

_POD: JsonObject = {"metadata": {"name": "p", "namespace": "ns", "labels": {"a": "1"}}, "spec": {"containers": []}}


def _plan(volume: JsonObject, *, tokens: dict[tuple[str, str], str] | None = None, **sources: dict[str, JsonObject | None]) -> object:
    return plan_volume(_POD, {"name": "v", **volume}, VolumeInputs(DownwardValues("h", "p"), ConfigSources(**sources), tokens or {}))


def test_a_volume_without_a_source_is_an_empty_directory() -> None:
    assert _plan({}) == EmptyDir()
    assert _plan({"emptyDir": {"medium": "Memory"}}) == EmptyDir()


def test_text_and_binary_data_of_a_config_map_become_files() -> None:
    config_map = {"data": {"a": "x"}, "binaryData": {"b": base64.b64encode(b"\xff").decode()}}
    files = _plan({"configMap": {"name": "c"}}, config_maps={"c": config_map})
    assert files == ProjectedFiles({"a": ProjectedFile(b"x"), "b": ProjectedFile(b"\xff")})


def test_a_selected_key_that_is_missing_is_an_error_unless_optional() -> None:
    items = [{"key": "k", "path": "f"}]
    with pytest.raises(VolumeError, match="references non-existent config key: k"):
        _plan({"configMap": {"name": "c", "items": items}}, config_maps={"c": {"data": {}}})
    assert _plan({"configMap": {"name": "c", "items": items, "optional": True}}, config_maps={"c": {"data": {}}}) == ProjectedFiles({})


def test_a_token_file_is_readable_by_its_owner_only() -> None:
    projected = {"sources": [{"serviceAccountToken": {"path": "t"}}]}
    assert _plan({"projected": projected}, tokens={("v", "t"): "secret"}) == ProjectedFiles({"t": ProjectedFile(b"secret", 0o600)})


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "."])
def test_a_file_must_stay_inside_its_volume(path: str) -> None:
    with pytest.raises(VolumeError, match="must stay inside"):
        _plan({"configMap": {"name": "c", "items": [{"key": "k", "path": path}]}}, config_maps={"c": {"data": {"k": "x"}}})


def test_a_sub_path_must_stay_inside_its_volume(tmp_path: Path) -> None:
    container = {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(WHERE)"}]}
    with pytest.raises(ContainerConfigError, match="must stay inside"):
        container_mounts(_POD, container, volume_paths={"v": tmp_path}, environment={"WHERE": "../.."})


def test_the_names_of_all_sources_are_returned() -> None:
    projected = {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "d"}}, {"downwardAPI": {}}]}
    volumes = [{"configMap": {"name": "a"}}, {"secret": {"secretName": "b"}}, {"projected": projected}]
    config_maps, secrets = referenced_sources({**_POD, "spec": {"volumes": volumes}})
    assert sorted(config_maps) == ["a", "c"]
    assert sorted(secrets) == ["b", "d"]


def test_files_are_written_with_their_modes_and_can_be_replaced(tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        set_up_volume(ProjectedFiles({"deep/er": ProjectedFile(content, 0o400)}), tmp_path / "v")
    file = tmp_path / "v" / "deep" / "er"
    assert file.read_bytes() == b"two"
    assert file.stat().st_mode & 0o777 == 0o400


def test_a_host_path_is_created_if_its_type_allows_it(tmp_path: Path) -> None:
    assert set_up_volume(HostPath(tmp_path / "d", "DirectoryOrCreate"), tmp_path).is_dir()
    assert set_up_volume(HostPath(tmp_path / "f", "FileOrCreate"), tmp_path).is_file()
    with pytest.raises(VolumeError, match="is not a directory"):
        set_up_volume(HostPath(tmp_path / "none", "Directory"), tmp_path)


def test_an_unsupported_volume_type_is_an_error() -> None:
    with pytest.raises(VolumeError, match='volume type "nfs" is not supported by this node'):
        _plan({"nfs": {"server": "s", "path": "/"}})
