"""What a schema can say, the API server says: a job that cannot be run is refused before it is stored."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlop.api.crd import definitions
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.registry import load_registry
from dlop.kube.errors import InvalidError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time

EXAMPLES = Path(__file__).parents[2] / "examples"
REGISTRY = load_registry()
LINEAR: JsonObject = yaml.safe_load((EXAMPLES / "01-mxnet-linear" / "job.yaml").read_text())
LISTED: JsonObject = yaml.safe_load((EXAMPLES / "02-mxnet-poc" / "job.yaml").read_text())

Change = Callable[[Any], object]


def chief(**found: object) -> Change:
    return lambda spec: spec.update(terminationPolicy={"chief": found})


LINEAR_CASES: dict[str, tuple[Change, str]] = {
    "no scheduler": (lambda spec: spec["replicaSpecs"].pop(0), "exactly one entry of type SCHEDULER"),
    "two entries for the scheduler": (lambda spec: spec["replicaSpecs"][1].pop("mxReplicaType"), "exactly one entry of type SCHEDULER"),
    "two schedulers": (lambda spec: spec["replicaSpecs"][0].update(replicas=2), "replicas of SCHEDULER must be exactly 1"),
    "workers twice": (lambda spec: spec["replicaSpecs"][1].update(mxReplicaType="WORKER"), "one entry for each of SERVER and WORKER"),
    "unknown type": (lambda spec: spec["replicaSpecs"][1].update(mxReplicaType="PS"), "replicaSpecs[1].mxReplicaType"),
    "another container": (
        lambda spec: spec["replicaSpecs"][2]["template"]["spec"]["containers"][0].update(name="main"),
        "a container named mxnet",
    ),
    "unknown restart policy": (
        lambda spec: spec["replicaSpecs"][2]["template"]["spec"].update(restartPolicy="Sometimes"),
        "replicaSpecs[2].template.spec.restartPolicy",
    ),
    "chief of no role": (chief(replicaName="MASTER"), "terminationPolicy.chief must be a replica"),
    "chief beyond the last": (chief(replicaName="WORKER", replicaIndex=1), "terminationPolicy.chief must be a replica"),
    "no chief": (lambda spec: spec.update(terminationPolicy={}), "terminationPolicy.chief"),
    "runtime id": (lambda spec: spec.update(RuntimeId="NOT FIT FOR A NAME"), "RuntimeId"),
    "run policy": (lambda spec: spec.update(runPolicy={"backoffLimit": -1}), "runPolicy.backoffLimit"),
}
LISTED_CASES: dict[str, tuple[Change, str]] = {
    "no scheduler": (lambda spec: spec.pop(0), "exactly one entry of type SCHEDULER"),
    "two schedulers": (lambda spec: spec[0].update(replicas=2), "replicas of SCHEDULER must be exactly 1"),
    "workers twice": (lambda spec: spec[1].update(replicaType="WORKER"), "one entry for each type"),
    "unknown type": (lambda spec: spec[1].update(replicaType="server"), "spec[1].replicaType"),
    "no number": (lambda spec: spec[1].pop("replicas"), "spec[1].replicas"),
}


def changed(manifest: JsonObject, change: Change) -> JsonObject:
    found = copy.deepcopy(manifest)
    change(found["spec"])
    return found


async def submit(manifest: JsonObject) -> None:
    kind = REGISTRY.get(manifest["apiVersion"], manifest["kind"])
    async with EmbeddedCluster() as cluster:
        client = cluster.client()
        for definition in definitions([kind]):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await asyncio.sleep(1)  # until it is served
        await client.create(kind.job_type.resource, manifest, namespace="default")


@pytest.mark.parametrize("manifest", [LINEAR, LISTED, changed(LINEAR, chief(replicaName="WORKER")), changed(LINEAR, chief())])
@virtual_time
async def test_a_good_job_is_taken(manifest: JsonObject) -> None:
    await submit(manifest)


@pytest.mark.parametrize("case", LINEAR_CASES)
@virtual_time
async def test_an_mxjob_of_fioravanzo_that_cannot_be_run_is_refused(case: str) -> None:
    change, expected = LINEAR_CASES[case]
    with pytest.raises(InvalidError) as refusal:
        await submit(changed(LINEAR, change))
    assert expected in str(refusal.value)


@pytest.mark.parametrize("case", LISTED_CASES)
@virtual_time
async def test_a_listed_mxjob_that_cannot_be_run_is_refused(case: str) -> None:
    change, expected = LISTED_CASES[case]
    with pytest.raises(InvalidError) as refusal:
        await submit(changed(LISTED, change))
    assert expected in str(refusal.value)
