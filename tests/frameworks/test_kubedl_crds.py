"""The CRDs of training.kubedl.io accept KubeDL's specs and reject values that the operator could not use."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.frameworks.kubedl.elasticdljob import ElasticDLJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.kubedl.xgboostjob import XGBoostJob
from dlop.kube.errors import InvalidError
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubedl_manifests import KINDS, ROLES, kubedl_job, role


async def create(kind: type[KubeDLJob], manifest: JsonObject) -> JsonObject:
    async with EmbeddedCluster() as cluster:
        client = cluster.client()
        await apply(client, build_crds([kind]), report=lambda _: None)
        return await client.create(kind.job_type.resource, manifest, namespace="default")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.job_type.kind)
@virtual_time
async def test_the_fields_of_kubedl_are_stored(kind: type[KubeDLJob]) -> None:
    spot = {"spotReplicaNumber": 1, "priorityClassName": "cheap", "labels": {"spot": "yes"}}
    roles = {name.upper(): role(replicas, restartPolicy="ExitCode", spotReplicaSpec=spot) for name, replicas in ROLES[kind].items()}
    fields: dict[str, Any] = {
        "cleanPodPolicy": "All",
        "ttlSecondsAfterFinished": 1,
        "activeDeadlineSeconds": 2**33,
        "backoffLimit": 3,
        "schedulingPolicy": {"minAvailable": 1, "priority": 2, "priorityClassName": "high", "queue": "q"},
        "cronPolicy": {"schedule": "* * * * *", "historyLimit": 3},
        "modelVersion": {"modelName": "m", "storage": {"nfs": {"server": "s"}}},
        "cacheBackend": {"dataset": {"dataSources": [{"location": "l"}]}},
    }
    manifest = kubedl_job(kind, roles, **fields)
    assert (await create(kind, manifest))["spec"] == manifest["spec"]


@pytest.mark.parametrize(
    ("kind", "roles", "spec", "message"),
    [
        (TFJob, None, {"successPolicy": "Some"}, "spec.successPolicy: Unsupported value"),
        (TFJob, None, {"cleanPodPolicy": "Some"}, "spec.cleanPodPolicy: Unsupported value"),
        (TFJob, {"Worker": role(restartPolicy="Some")}, {}, "spec.tfReplicaSpecs.Worker.restartPolicy: Unsupported value"),
        (TFJob, {}, {}, "spec.tfReplicaSpecs"),
        (PyTorchJob, None, {"backoffLimit": -1}, "spec.backoffLimit in body should be greater than or equal to 0"),
        (PyTorchJob, {"Worker": role(-1)}, {}, "spec.pytorchReplicaSpecs.Worker.replicas"),
        (
            PyTorchJob,
            {"Worker": role(spotReplicaSpec={"spotReplicaNumber": -1})},
            {},
            "spec.pytorchReplicaSpecs.Worker.spotReplicaSpec.spotReplicaNumber in body should be greater than or equal to 0",
        ),
        (XGBoostJob, None, {"ttlSecondsAfterFinished": "soon"}, 'spec.ttlSecondsAfterFinished: Invalid value: "string"'),
        (XDLJob, None, {"minFinishWorkRate": 101}, "spec.minFinishWorkRate in body should be less than or equal to 100"),
        (XDLJob, None, {"minFinishWorkNum": -1}, "spec.minFinishWorkNum in body should be greater than or equal to 0"),
        (MarsJob, None, {"webHost": 3}, 'spec.webHost: Invalid value: "integer"'),
        (
            MarsJob,
            None,
            {"workerMemoryTuningPolicy": {"workerCachePercentage": -1}},
            "spec.workerMemoryTuningPolicy.workerCachePercentage in body should be greater than or equal to 0",
        ),
        (ElasticDLJob, None, {"schedulingPolicy": {"priorityClassName": 3}}, "spec.schedulingPolicy.priorityClassName"),
    ],
)
@virtual_time
async def test_values_that_cannot_be_used_are_rejected(kind: type[KubeDLJob], roles: Any, spec: JsonObject, message: str) -> None:
    with pytest.raises(InvalidError) as rejection:
        await create(kind, kubedl_job(kind, roles, **spec))
    assert message in str(rejection.value)
