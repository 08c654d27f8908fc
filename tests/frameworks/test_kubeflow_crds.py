"""The CRDs of the kinds of kubeflow.org: size, fields, defaults, printer columns and subresources."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop.api.crd import build_crd
from dlop.deploy.kustomize import to_yaml
from dlop.job import DLJob
from dlop.kube.types import JsonObject
from tests.frameworks.takeover_jobs import ALL_KINDS

BY_KIND = pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.job_type.kind)
MAX_BYTES = 100_000
"""`kubectl apply` stores a copy of the object in an annotation, and annotations are limited to 256 KB."""
SCALED = {"PyTorchJob": "pytorchReplicaSpecs", "PaddleJob": "paddleReplicaSpecs", "JAXJob": "jaxReplicaSpecs"}


def version_of(kind: type[DLJob]) -> JsonObject:
    version: JsonObject
    [version] = build_crd(kind)["spec"]["versions"]
    return version


def run_policy_of(kind: type[DLJob]) -> dict[str, Any]:
    spec = version_of(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fields: dict[str, Any] = spec["properties"]["runPolicy"]["properties"]
    return fields


def test_there_are_seven_kinds() -> None:
    names = sorted(build_crd(kind)["metadata"]["name"] for kind in ALL_KINDS)
    assert names == [f"{name}jobs.kubeflow.org" for name in ("jax", "mpi", "mx", "paddle", "pytorch", "tf", "xgboost")]


@BY_KIND
def test_a_crd_is_small_enough_for_kubectl_apply(kind: type[DLJob]) -> None:
    crd = build_crd(kind)
    assert len(msgspec.json.encode(crd)) < MAX_BYTES
    assert len(to_yaml(crd)) < MAX_BYTES


@BY_KIND
def test_the_run_policy_has_the_fields_of_kubeflows_operator_and_the_restart_scope(kind: type[DLJob]) -> None:
    policy = run_policy_of(kind)
    fields = {
        "cleanPodPolicy",
        "ttlSecondsAfterFinished",
        "activeDeadlineSeconds",
        "backoffLimit",
        "schedulingPolicy",
        "suspend",
        "managedBy",
    }
    assert fields <= policy.keys()
    assert policy["restartScope"]["enum"] == ["Replica", "Role", "Job"]


@BY_KIND
def test_suspend_is_the_only_field_with_a_default(kind: type[DLJob]) -> None:
    assert defaults_in(build_crd(kind)) == [("suspend", False)]


def defaults_in(schema: Any) -> list[tuple[str, Any]]:
    """Names and defaults of all fields with a default, at any depth."""
    if not isinstance(schema, dict):
        return [default for item in schema for default in defaults_in(item)] if isinstance(schema, list) else []
    own = [(name, child["default"]) for name, child in schema.items() if isinstance(child, dict) and "default" in child]
    return own + [default for child in schema.values() for default in defaults_in(child)]


@BY_KIND
def test_the_printer_columns_are_those_of_kubeflows_operator(kind: type[DLJob]) -> None:
    visible = [column for column in version_of(kind)["additionalPrinterColumns"] if not column.get("priority")]
    columns = [(column["name"], column["jsonPath"]) for column in visible]
    state, age = ("State", ".status.conditions[-1:].type"), ("Age", ".metadata.creationTimestamp")
    assert columns == ([age, state] if kind.job_type.kind == "MPIJob" else [state, age])


@BY_KIND
def test_the_same_kinds_as_in_kubeflows_operator_have_a_scale_subresource(kind: type[DLJob]) -> None:
    subresources, field = version_of(kind)["subresources"], SCALED.get(kind.job_type.kind)
    scale = {
        "specReplicasPath": f".spec.{field}.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
    assert subresources == {"status": {}, **({"scale": scale} if field else {})}


@BY_KIND
def test_a_crd_is_namespaced_with_one_version_and_without_short_names(kind: type[DLJob]) -> None:
    spec, version = build_crd(kind)["spec"], version_of(kind)
    assert (spec["group"], spec["scope"], version["name"], version["served"], version["storage"]) == (
        "kubeflow.org",
        "Namespaced",
        "v1",
        True,
        True,
    )
    assert {"shortNames", "categories"}.isdisjoint(spec["names"])
