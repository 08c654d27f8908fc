"""The rendered pods of each kind stay the same across versions of dlop, and can be written as YAML.

After an upgrade of the operator, an edit of a job replaces all pods that have not started and whose hash has changed. A change of a hash
must therefore be intended. Even the order of environment variables affects it.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from dlop.api.constants import TEMPLATE_HASH_ANNOTATION
from dlop.api.schema import ListSchema, RoleFieldsSchema
from dlop.api.template_hash import parse_template_hash
from dlop.deploy.kustomize import to_yaml
from dlop.frameworks.registry import load_registry
from dlop.job import DLJob
from dlop.jobs.render import render
from tests.frameworks.example_manifests import by_name

REGISTRY = load_registry()
SINGLE = ("Master", "Scheduler", "SCHEDULER", "Launcher", "Evaluator", "AIMaster", "dlrover-master")
UNUSED = ("Chief", "TunerTracker", "TunerServer", "Tuner")
"""Roles that exclude other roles."""
HASHES = {
    "paddlejobs.paddlepaddle.org": {
        "demo-pserver-0": "4986b5e6e4e992e1",
        "demo-trainer-0": "512adda1f3a9cc9c",
    },
    "trainingjobs.paddlepaddle.org": {
        "demo-master-0": "a768fdf9559b1f5e",
        "demo-pserver-0": "20d50eb748301558",
        "demo-trainer-0": "9dd612dc079e3353",
    },
    "paddlejobs.batch.paddlepaddle.org": {
        "demo-ps-0": "2da4034ab08efad6",
        "demo-worker-0": "161a8d4772e2b0aa",
        "demo-heter-0": "e1ba3b5b38883bf1",
    },
    "mxjobs.fioravanzo.org": {
        "demo-scheduler-r1d0-0": "4251329b99ee7a93",
        "demo-server-r1d0-0": "9b5f81f603433e0c",
        "demo-worker-r1d0-0": "cceca1256a47c185",
    },
    "mxjobs.mpba.fbk.eu": {
        "scheduler-demo-0": "29d5fd138b06799c",
        "server-demo-0": "49a32a058bc894bd",
        "worker-demo-0": "52ae6f20c19fe1b8",
    },
    "tfjobs.mpba.fbk.eu": {
        "ps-demo-0": "dd7edfb53f90f692",
        "worker-demo-0": "2a6139d688de29f8",
    },
    "jaxjobs.kubeflow.org": {
        "demo-worker-0": "88d5f062c7864d80",
    },
    "mpijobs.kubeflow.org": {
        "demo-worker-0": "dafdf452ac4c4bdf",
        "demo-launcher": "5754ee1dc9ce5465",
    },
    "mxjobs.kubeflow.org": {
        "demo-scheduler-0": "e717521fe5be5791",
        "demo-server-0": "51327a24cf4c78d0",
        "demo-worker-0": "ae83b275c237ca8d",
    },
    "paddlejobs.kubeflow.org": {
        "demo-master-0": "b09e4c2ef265b888",
        "demo-worker-0": "6ab0423e894c5285",
    },
    "pytorchjobs.kubeflow.org": {
        "demo-master-0": "c43b2feb60802df0",
        "demo-worker-0": "60c06636084cb2b2",
    },
    "tfjobs.kubeflow.org": {
        "demo-ps-0": "b3f4ef88f49f4b84",
        "demo-master-0": "1ce6cb66feacbedc",
        "demo-worker-0": "6706e5cf66346720",
        "demo-evaluator-0": "731b26c79dd8453c",
    },
    "xgboostjobs.kubeflow.org": {
        "demo-master-0": "2458958f38df4110",
        "demo-worker-0": "b6390f5c59434204",
    },
    "elasticjobs.elastic.iml.github.io": {
        "elasticjob-demo-dlrover-master-0": "b4dd0a2795b6ac2e",
    },
    "tfjobs.training.kubedl.io": {
        "demo-aimaster-0": "04a7b09f0b3912c8",
        "demo-ps-0": "1b78baf02a1626a4",
        "demo-master-0": "908b55237283bff8",
        "demo-worker-0": "de3d98ec4747fa8a",
        "demo-evaluator-0": "941798ff734f1029",
    },
    "pytorchjobs.training.kubedl.io": {
        "demo-aimaster-0": "e29cba80f3b47bd2",
        "demo-master-0": "c7dee40d68c619f2",
        "demo-worker-0": "35b38f0b35b2d856",
    },
    "xgboostjobs.training.kubedl.io": {
        "demo-master-0": "de5fbf3d4b8e2261",
        "demo-worker-0": "4d493e8d03a1c3ea",
    },
    "xdljobs.training.kubedl.io": {
        "demo-ps-0": "efc57d02aca05807",
        "demo-scheduler-0": "e7b44ace0d18945d",
        "demo-worker-0": "4d3a71be442c7029",
        "demo-extendrole-0": "ba40eecf3f6bf955",
    },
    "marsjobs.training.kubedl.io": {
        "demo-scheduler-0": "ae102dc73c7cb45d",
        "demo-webservice-0": "b02fd1b5104dc615",
        "demo-worker-0": "10374b7a1dbec470",
    },
    "elasticdljobs.training.kubedl.io": {
        "elasticdl-demo-master": "9242f41b1c1e2862",
    },
    "mpijobs.training.kubedl.io": {
        "demo-worker-0": "93c61df8290901fc",
        "demo-launcher-0": "7a5ebaa1ad897875",
    },
}
"""By kind: the hash of the first pod of each role."""


def manifest(kind: type[DLJob]) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": kind.container_properties.name or "main", "image": "train:1"}]}}
    roles = {role.name: 1 if role.name in SINGLE else 2 for role in kind.replica_types if role.name not in UNUSED}
    schema = kind.schema
    spec: Any = {
        schema.field: {name: {"replicas": replicas, "template": template} for name, replicas in roles.items()},
        "jobMode": "MXTrain",
    }
    if isinstance(schema, RoleFieldsSchema):
        spec = {name: {"replicas": replicas, "template": template} for name, replicas in roles.items()} | {"fault_tolerant": True}
    if isinstance(schema, ListSchema):
        entries = [{schema.type_field: name, "replicas": replicas, "template": template} for name, replicas in roles.items()]
        spec = {schema.field: entries, "RuntimeId": "r1d0"} if schema.field else entries
    metadata = {"name": "demo", "generation": 1}
    return {"apiVersion": kind.job_type.api_version, "kind": kind.job_type.kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("kind", tuple(REGISTRY), ids=lambda kind: kind.job_type.resource.qualified_name)
def test_the_hash_of_the_rendered_pods_is_unchanged(kind: type[DLJob]) -> None:
    pods = by_name(render(manifest(kind), REGISTRY), "Pod")
    expected = HASHES[kind.job_type.resource.qualified_name]
    assert {name: parse_template_hash(pods[name]["metadata"]["annotations"][TEMPLATE_HASH_ANNOTATION])[1] for name in expected} == expected


@pytest.mark.parametrize("kind", tuple(REGISTRY), ids=lambda kind: kind.job_type.resource.qualified_name)
def test_the_rendered_children_can_be_written_as_yaml(kind: type[DLJob]) -> None:
    children = render(manifest(kind), REGISTRY)
    assert list(yaml.safe_load_all(to_yaml(*children))) == children
