"""Volumes and variables of accelerators, and the legacy resource name of GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import SpecError
from dlop.frameworks.fioravanzo.accelerators import read_accelerators, with_accelerators

FILE = {
    "accelerators": {
        "alpha.kubernetes.io/nvidia-gpu": {
            "volumes": [{"name": "lib", "hostPath": "/usr/local/nvidia", "mountPath": "/driver"}],
            "envVars": [{"name": "LD_LIBRARY_PATH", "value": "/driver/lib64"}],
        }
    },
    "grpcServerFilePath": "ignored",
}


def pod(*, gpu: str | None = "nvidia.com/gpu", part: str = "limits", **container: Any) -> dict[str, Any]:
    resources = {"resources": {part: {gpu: 1, "cpu": "2"}}} if gpu else {}
    return {"containers": [{"name": "mxnet", **resources, **container}, {"name": "sidecar", **resources}]}


def with_gpu(spec: dict[str, Any]) -> dict[str, Any]:
    return with_accelerators(spec, container="mxnet", accelerators=read_accelerators(FILE))


@pytest.mark.parametrize("part", ["limits", "requests"])
@pytest.mark.parametrize("gpu", ["nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu"])
def test_a_container_that_requests_a_gpu_by_either_name_gets_its_volumes_and_variables(gpu: str, part: str) -> None:
    result = with_gpu(pod(gpu=gpu, part=part))
    assert result["volumes"] == [{"name": "lib", "hostPath": {"path": "/usr/local/nvidia"}}]
    container = result["containers"][0]
    assert container["volumeMounts"] == [{"name": "lib", "mountPath": "/driver"}]
    assert container["env"] == [{"name": "LD_LIBRARY_PATH", "value": "/driver/lib64"}]
    assert container["resources"] == {part: {"nvidia.com/gpu": 1, "cpu": "2"}}


def test_other_containers_are_not_changed() -> None:
    spec = pod(gpu="alpha.kubernetes.io/nvidia-gpu")
    assert with_gpu(spec)["containers"][1] == spec["containers"][1]


def test_a_container_without_a_gpu_is_not_changed() -> None:
    assert with_gpu(pod(gpu=None)) == pod(gpu=None)


def test_variables_and_mounts_of_the_user_take_precedence() -> None:
    user_fields: dict[str, Any] = {
        "env": [{"name": "LD_LIBRARY_PATH", "value": "/mine"}],
        "volumeMounts": [{"name": "lib", "mountPath": "/mine"}],
    }
    container = with_gpu(pod(**user_fields))["containers"][0]
    assert {name: container[name] for name in user_fields} == user_fields


def test_the_template_is_not_modified() -> None:
    spec = pod(gpu="alpha.kubernetes.io/nvidia-gpu")
    with_gpu(spec)
    assert spec == pod(gpu="alpha.kubernetes.io/nvidia-gpu")


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ([], "file: must be an object"),
        (
            {"accelerators": {"gpu": {"volumes": [{"name": "x", "hostPath": "/y"}]}}},
            r"file\.accelerators\.gpu\.volumes\[0\]\.mountPath: is missing",
        ),
        ({"accelerators": {"gpu": {"envVars": {}}}}, r"file\.accelerators\.gpu\.envVars: must be a list"),
    ],
)
def test_an_invalid_file_is_rejected_with_the_path(file: Any, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        read_accelerators(file)


@pytest.mark.parametrize("file", [None, {}, {"accelerators": None}])
def test_a_file_without_accelerators_is_valid(file: Any) -> None:
    assert read_accelerators(file) == {}
