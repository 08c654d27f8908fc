from __future__ import annotations

import base64
from pathlib import Path

import pytest

from dlop.embedded.kubelet.environment import ConfigurationProblem, DownwardValues, Sources
from dlop.embedded.kubelet.volumes import (
    EmptyFolder,
    File,
    Files,
    HostPath,
    VolumeInputs,
    VolumeProblem,
    make,
    mounts,
    named_sources,
    planned,
)
from dlop.kube.types import JsonObject

_POD: JsonObject = {"metadata": {"name": "p", "namespace": "ns", "labels": {"a": "1"}}, "spec": {"containers": []}}


def _plan(volume: JsonObject, *, tokens: dict[tuple[str, str], str] | None = None, **sources: dict[str, JsonObject | None]) -> object:
    return planned(_POD, {"name": "v", **volume}, VolumeInputs(DownwardValues("h", "p"), Sources(**sources), tokens or {}))


def test_a_volume_of_no_kind_is_an_empty_folder() -> None:
    assert _plan({}) == EmptyFolder()
    assert _plan({"emptyDir": {"medium": "Memory"}}) == EmptyFolder()


def test_text_and_binary_data_of_a_config_map_become_files() -> None:
    found = {"data": {"a": "x"}, "binaryData": {"b": base64.b64encode(b"\xff").decode()}}
    assert _plan({"configMap": {"name": "c"}}, config_maps={"c": found}) == Files({"a": File(b"x"), "b": File(b"\xff")})


def test_a_key_that_is_picked_and_missing_is_a_problem_unless_optional() -> None:
    items = [{"key": "k", "path": "f"}]
    with pytest.raises(VolumeProblem, match="references non-existent config key: k"):
        _plan({"configMap": {"name": "c", "items": items}}, config_maps={"c": {"data": {}}})
    assert _plan({"configMap": {"name": "c", "items": items, "optional": True}}, config_maps={"c": {"data": {}}}) == Files({})


def test_a_token_becomes_a_file_for_its_owner_only() -> None:
    projected = {"sources": [{"serviceAccountToken": {"path": "t"}}]}
    assert _plan({"projected": projected}, tokens={("v", "t"): "secret"}) == Files({"t": File(b"secret", 0o600)})


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "."])
def test_no_file_leaves_its_volume(path: str) -> None:
    with pytest.raises(VolumeProblem, match="must stay inside"):
        _plan({"configMap": {"name": "c", "items": [{"key": "k", "path": path}]}}, config_maps={"c": {"data": {"k": "x"}}})


def test_a_sub_path_does_not_leave_its_volume(tmp_path: Path) -> None:
    container = {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(WHERE)"}]}
    with pytest.raises(ConfigurationProblem, match="must stay inside"):
        mounts(container, made={"v": tmp_path}, known={"WHERE": "../.."})


def test_all_sources_of_a_pod_are_found() -> None:
    projected = {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "d"}}, {"downwardAPI": {}}]}
    volumes = [{"configMap": {"name": "a"}}, {"secret": {"secretName": "b"}}, {"projected": projected}]
    config_maps, secrets = named_sources({**_POD, "spec": {"volumes": volumes}})
    assert sorted(config_maps) == ["a", "c"]
    assert sorted(secrets) == ["b", "d"]


def test_files_are_written_with_their_modes_and_again_over_themselves(tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        make(Files({"deep/er": File(content, 0o400)}), tmp_path / "v")
    file = tmp_path / "v" / "deep" / "er"
    assert file.read_bytes() == b"two"
    assert file.stat().st_mode & 0o777 == 0o400


def test_what_a_host_path_may_make_is_made(tmp_path: Path) -> None:
    assert make(HostPath(tmp_path / "d", "DirectoryOrCreate"), tmp_path).is_dir()
    assert make(HostPath(tmp_path / "f", "FileOrCreate"), tmp_path).is_file()
    with pytest.raises(VolumeProblem, match="is not a directory"):
        make(HostPath(tmp_path / "none", "Directory"), tmp_path)


def test_a_volume_that_does_not_exist_here_says_so() -> None:
    with pytest.raises(VolumeProblem, match="kind nfs do not exist on this node"):
        _plan({"nfs": {"server": "s", "path": "/"}})
