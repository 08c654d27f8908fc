from __future__ import annotations

from typing import Any

import pytest

from dlop import SpecError
from dlop.frameworks.fioravanzo.accelerators import read_accelerators, with_devices

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


def finished(spec: dict[str, Any]) -> dict[str, Any]:
    return with_devices(spec, container="mxnet", accelerators=read_accelerators(FILE))


@pytest.mark.parametrize("part", ["limits", "requests"])
@pytest.mark.parametrize("gpu", ["nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu"])
def test_a_container_that_asks_for_a_gpu_by_either_name_gets_what_belongs_to_it(gpu: str, part: str) -> None:
    result = finished(pod(gpu=gpu, part=part))
    assert result["volumes"] == [{"name": "lib", "hostPath": {"path": "/usr/local/nvidia"}}]
    container = result["containers"][0]
    assert container["volumeMounts"] == [{"name": "lib", "mountPath": "/driver"}]
    assert container["env"] == [{"name": "LD_LIBRARY_PATH", "value": "/driver/lib64"}]
    assert container["resources"] == {part: {"nvidia.com/gpu": 1, "cpu": "2"}}


def test_other_containers_are_left_alone() -> None:
    given = pod(gpu="alpha.kubernetes.io/nvidia-gpu")
    assert finished(given)["containers"][1] == given["containers"][1]


def test_a_container_that_asks_for_nothing_gets_nothing() -> None:
    assert finished(pod(gpu=None)) == pod(gpu=None)


def test_what_the_user_has_set_stays() -> None:
    mine: dict[str, Any] = {"env": [{"name": "LD_LIBRARY_PATH", "value": "/mine"}], "volumeMounts": [{"name": "lib", "mountPath": "/mine"}]}
    container = finished(pod(**mine))["containers"][0]
    assert {name: container[name] for name in mine} == mine


def test_nothing_of_the_template_is_changed() -> None:
    given = pod(gpu="alpha.kubernetes.io/nvidia-gpu")
    finished(given)
    assert given == pod(gpu="alpha.kubernetes.io/nvidia-gpu")


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
def test_a_file_that_makes_no_sense_is_refused_with_the_path(file: Any, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        read_accelerators(file)


@pytest.mark.parametrize("file", [None, {}, {"accelerators": None}])
def test_a_file_without_accelerators_has_none(file: Any) -> None:
    assert read_accelerators(file) == {}
