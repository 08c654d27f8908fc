"""What a manifest asks for: the field of the run policy, and the annotation of KubeDL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlop import SpecError
from dlop.api.crd import build_crds
from dlop.api.tensorboard import TensorBoard, TensorBoardIngress, tensorboard_name
from tests.unit.job.jobs import PairJob, make, pair_spec

ANNOTATION = "kubedl.io/tensorboard-config"
AT = f"metadata.annotations[{ANNOTATION}]"
FIELD = "spec.runPolicy.tensorBoard"


def by_field(value: Any) -> TensorBoard | None:
    return make(PairJob, pair_spec(run_policy={"tensorBoard": value})).spec.run_policy.tensorboard


def by_annotation(config: Any, *, field: Any = None) -> TensorBoard | None:
    text = config if isinstance(config, str) else json.dumps(config)
    policy = {} if field is None else {"tensorBoard": field}
    return make(PairJob, pair_spec(run_policy=policy), annotations={ANNOTATION: text}).spec.run_policy.tensorboard


def problems_of_field(value: Any) -> list[str]:
    with pytest.raises(SpecError) as raised:
        by_field(value)
    return [str(problem) for problem in raised.value.problems]


def problems_of_annotation(config: Any) -> list[str]:
    with pytest.raises(SpecError) as raised:
        by_annotation(config)
    return [str(problem) for problem in raised.value.problems]


def test_the_field_needs_only_a_log_directory() -> None:
    assert by_field({"logDir": "/logs"}) == TensorBoard(log_dir="/logs", ttl_seconds=3600)
    assert by_field(None) is None


def test_all_fields_are_read() -> None:
    ingress = {"host": "boards.example.org", "pathPrefix": "/tb/", "className": "nginx", "annotations": {"team": "blue"}}
    assert by_field({"logDir": "s3://logs", "image": "tb:2", "ttlSecondsAfterJobFinished": 0, "ingress": ingress}) == TensorBoard(
        log_dir="s3://logs",
        image="tb:2",
        ttl_seconds=0,
        path_prefix="/tb",
        ingress=TensorBoardIngress(host="boards.example.org", annotations={"team": "blue"}, class_name="nginx"),
    )


def test_the_annotation_of_kubedl_is_read() -> None:
    config = {
        "logDir": "/logs",
        "image": "tb:2",
        "ttlSecondsAfterJobFinished": 30,
        "updateTimestamp": "1970-01-01T00:01:40Z",
        "ingressSpec": {"host": "boards.example.org", "pathPrefix": "tb/x", "annotations": {"team": "blue"}},
    }
    assert by_annotation(config) == TensorBoard(
        log_dir="/logs",
        image="tb:2",
        ttl_seconds=30,
        updated_at=100.0,
        path_prefix="/tb/x",
        ingress=TensorBoardIngress(host="boards.example.org", annotations={"team": "blue"}, class_name="nginx"),
    )


def test_the_annotation_has_no_default_time_to_live_and_needs_no_ingress() -> None:
    assert by_annotation({"logDir": "/logs"}) == TensorBoard(log_dir="/logs", ttl_seconds=0)
    assert by_annotation({"logDir": "/logs", "updateTimestamp": None, "ingressSpec": {"pathPrefix": "/tb"}}) == TensorBoard(
        log_dir="/logs", ttl_seconds=0, path_prefix="/tb"
    )


def test_an_ingress_class_in_the_annotations_of_kubedl_is_kept() -> None:
    annotations = {"kubernetes.io/ingress.class": "traefik"}
    tensorboard = by_annotation({"logDir": "/logs", "ingressSpec": {"host": "h", "annotations": annotations}})
    assert tensorboard is not None
    assert tensorboard.ingress == TensorBoardIngress(host="h", annotations=annotations, class_name="")


def test_the_field_takes_precedence_over_the_annotation() -> None:
    tensorboard = by_annotation({"logDir": "/theirs"}, field={"logDir": "/mine"})
    assert tensorboard is not None
    assert tensorboard.log_dir == "/mine"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", ["must be an object, got 'x'", ".logDir: is missing; add the directory or URL in which the job writes its event files"]),
        ({}, [".logDir: is missing; add the directory or URL in which the job writes its event files"]),
        ({"logDir": ""}, [".logDir: is missing; add the directory or URL in which the job writes its event files"]),
        ({"logDir": 5}, [".logDir: must be a string, got 5"]),
        ({"logDir": "/l", "image": ["i"]}, [".image: must be a string, got a list"]),
        ({"logDir": "/l", "ttlSecondsAfterJobFinished": -1}, [".ttlSecondsAfterJobFinished: must be at least 0, got -1"]),
        ({"logDir": "/l", "ttlSecondsAfterJobFinished": "1h"}, [".ttlSecondsAfterJobFinished: must be an integer, got '1h'"]),
        (
            {"logDir": "/l", "ingress": "h"},
            [".ingress: must be an object, got 'h'", ".ingress.host: is missing; add the host name of the Ingress, or remove ingress"],
        ),
        ({"logDir": "/l", "ingress": {}}, [".ingress.host: is missing; add the host name of the Ingress, or remove ingress"]),
        (
            {"logDir": "/l", "ingress": {"host": "Boards!"}},
            [".ingress.host: must be a host name in lower case, such as boards.example.org, got 'Boards!'"],
        ),
        (
            {"logDir": "/l", "ingress": {"host": "h", "pathPrefix": "tb"}},
            [".ingress.pathPrefix: must start with a slash: write '/tb'"],
        ),
        (
            {"logDir": "/l", "ingress": {"host": "h", "pathPrefix": "/a/../b"}},
            [".ingress.pathPrefix: must consist of letters, digits and -._~/ without '..', got '/a/../b'"],
        ),
        (
            {"logDir": "/l", "ingress": {"host": "h", "pathPrefix": "/a b"}},
            [".ingress.pathPrefix: must consist of letters, digits and -._~/ without '..', got '/a b'"],
        ),
        ({"logDir": "/l", "ingress": {"host": "h", "annotations": {"a": 1}}}, [".ingress.annotations.a: must be a string, got 1"]),
        ({"logDir": "/l", "ingress": {"host": "h", "annotations": "a"}}, [".ingress.annotations: must be an object, got 'a'"]),
        ({"logDir": "/l", "ingress": {"host": "h", "className": 1}}, [".ingress.className: must be a string, got 1"]),
    ],
    ids=str,
)
def test_invalid_fields_are_named(value: Any, expected: list[str]) -> None:
    assert problems_of_field(value) == [f"{FIELD}{'' if text.startswith('.') else ': '}{text}" for text in expected]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            "[1]",
            [": must be an object, got a list", ".logDir: is missing; add the directory or URL in which the job writes its event files"],
        ),
        ("null", [".logDir: is missing; add the directory or URL in which the job writes its event files"]),
        ({"logDir": {}}, [".logDir: must be a string, got an object"]),
        (
            {"logDir": "/l", "updateTimestamp": "today"},
            [".updateTimestamp: must be a time such as 2024-01-31T12:00:00Z, got 'today'"],
        ),
        ({"logDir": "/l", "updateTimestamp": 5}, [".updateTimestamp: must be a string, got 5"]),
        ({"logDir": "/l", "ingressSpec": 5}, [".ingressSpec: must be an object, got 5"]),
        (
            {"logDir": "/l", "ingressSpec": {"host": "a..b"}},
            [".ingressSpec.host: must be a host name in lower case, such as boards.example.org, got 'a..b'"],
        ),
    ],
    ids=str,
)
def test_invalid_annotations_are_named(config: Any, expected: list[str]) -> None:
    assert problems_of_annotation(config) == [f"{AT}{text}" for text in expected]


def test_an_annotation_that_is_not_json_is_reported_once() -> None:
    (problem,) = problems_of_annotation("{logDir: /logs}")
    assert problem.startswith(f"{AT}: must be JSON: ")


def test_the_crd_describes_the_field() -> None:
    (crd,) = build_crds([PairJob])
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    schema = spec["runPolicy"]["properties"]["tensorBoard"]
    assert set(schema["properties"]) == {"logDir", "image", "ttlSecondsAfterJobFinished", "ingress"}
    assert schema["required"] == ["logDir"]
    assert schema["properties"]["ingress"]["required"] == ["host"]


@pytest.mark.parametrize(
    ("finished_at", "updated_at", "expires_at"), [(100.0, None, 160.0), (100.0, 50.0, 160.0), (100.0, 500.0, 560.0)], ids=str
)
def test_the_time_to_live_counts_from_the_end_or_from_a_later_update(
    finished_at: float, updated_at: float | None, expires_at: float
) -> None:
    assert TensorBoard(log_dir="/l", ttl_seconds=60, updated_at=updated_at).expires_at(finished_at) == expires_at


@pytest.mark.parametrize(("prefix", "path"), [("/", "/lab/train"), ("/tb", "/tb/lab/train")])
def test_the_path_has_the_namespace_and_the_name_of_the_job(prefix: str, path: str) -> None:
    assert TensorBoard(log_dir="/l", path_prefix=prefix).path("lab", "train") == path


def test_the_name_is_a_valid_name_of_a_service() -> None:
    assert tensorboard_name("train") == "train-tensorboard-0"
    assert len(tensorboard_name("x" * 253)) <= 63
