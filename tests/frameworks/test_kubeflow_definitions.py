"""The definitions of all seven kinds of kubeflow.org: what clients and other programs find in them, and that they stay small."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop.api.crd import definition
from dlop.deploy.kustomize import to_yaml
from dlop.job import DLJob
from dlop.kube.types import JsonObject
from tests.frameworks.old_operator import ALL_KINDS

EACH = pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.job_type.kind)
MOST_BYTES = 100_000
"""`kubectl apply` notes a second copy of what it applies on the object, and the server takes 256 KB of such notes."""
SCALED = {"PyTorchJob": "pytorchReplicaSpecs", "PaddleJob": "paddleReplicaSpecs", "JAXJob": "jaxReplicaSpecs"}


def version_of(kind: type[DLJob]) -> JsonObject:
    [found] = definition(kind)["spec"]["versions"]
    version: JsonObject = found
    return version


def run_policy_of(kind: type[DLJob]) -> dict[str, Any]:
    found: dict[str, Any] = version_of(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["runPolicy"]["properties"]
    return found


def test_there_are_seven() -> None:
    names = sorted(definition(kind)["metadata"]["name"] for kind in ALL_KINDS)
    assert names == [f"{name}jobs.kubeflow.org" for name in ("jax", "mpi", "mx", "paddle", "pytorch", "tf", "xgboost")]


@EACH
def test_a_definition_is_small_enough_for_a_plain_apply(kind: type[DLJob]) -> None:
    found = definition(kind)
    assert len(msgspec.json.encode(found)) < MOST_BYTES
    assert len(to_yaml(found)) < MOST_BYTES


@EACH
def test_every_kind_takes_the_policies_of_the_old_operator_and_the_restart_scope(kind: type[DLJob]) -> None:
    policy = run_policy_of(kind)
    old = {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy", "suspend", "managedBy"}
    assert old <= policy.keys()
    assert policy["restartScope"]["enum"] == ["Replica", "Role", "Job"]


@EACH
def test_the_only_default_that_is_written_into_specs_is_the_one_that_always_was(kind: type[DLJob]) -> None:
    assert defaults_in(definition(kind)) == [("suspend", False)]


def defaults_in(schema: Any) -> list[tuple[str, Any]]:
    """The fields that have a default, wherever they are."""
    if not isinstance(schema, dict):
        return [found for each in schema for found in defaults_in(each)] if isinstance(schema, list) else []
    own = [(name, child["default"]) for name, child in schema.items() if isinstance(child, dict) and "default" in child]
    return own + [found for child in schema.values() for found in defaults_in(child)]


@EACH
def test_the_columns_are_those_that_kubectl_has_always_shown(kind: type[DLJob]) -> None:
    shown = [column for column in version_of(kind)["additionalPrinterColumns"] if not column.get("priority")]
    columns = [(column["name"], column["jsonPath"]) for column in shown]
    state, age = ("State", ".status.conditions[-1:].type"), ("Age", ".metadata.creationTimestamp")
    assert columns == ([age, state] if kind.job_type.kind == "MPIJob" else [state, age])


@EACH
def test_workers_can_be_scaled_where_they_always_could(kind: type[DLJob]) -> None:
    subresources, field = version_of(kind)["subresources"], SCALED.get(kind.job_type.kind)
    scale = {
        "specReplicasPath": f".spec.{field}.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
    assert subresources == {"status": {}, **({"scale": scale} if field else {})}


@EACH
def test_a_definition_is_of_one_version_in_namespaces_without_short_names(kind: type[DLJob]) -> None:
    found, version = definition(kind)["spec"], version_of(kind)
    assert (found["group"], found["scope"], version["name"], version["served"], version["storage"]) == (
        "kubeflow.org",
        "Namespaced",
        "v1",
        True,
        True,
    )
    assert {"shortNames", "categories"}.isdisjoint(found["names"])
