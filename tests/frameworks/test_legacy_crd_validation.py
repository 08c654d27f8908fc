"""The CRDs of fioravanzo.org and mpba.fbk.eu reject invalid jobs."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlop.api.crd import build_crds
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.registry import load_registry
from dlop.jobs.render import parse_job
from dlop.kube.errors import InvalidError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time

EXAMPLES = Path(__file__).parents[2] / "examples"
REGISTRY = load_registry()
LINEAR: JsonObject = yaml.safe_load((EXAMPLES / "01-mxnet-linear" / "job.yaml").read_text())
LISTED: JsonObject = yaml.safe_load((EXAMPLES / "02-mxnet-poc" / "job.yaml").read_text())

Change = Callable[[Any], object]


def set_chief(**fields: object) -> Change:
    return lambda spec: spec.update(terminationPolicy={"chief": fields})


LINEAR_CASES: dict[str, tuple[Change, str]] = {
    "no scheduler": (lambda spec: spec["replicaSpecs"].pop(0), "exactly one entry of type SCHEDULER"),
    "two entries for the scheduler": (lambda spec: spec["replicaSpecs"][1].pop("mxReplicaType"), "exactly one entry of type SCHEDULER"),
    "two schedulers": (lambda spec: spec["replicaSpecs"][0].update(replicas=2), "replicas of SCHEDULER must be exactly 1"),
    "duplicate worker entry": (
        lambda spec: spec["replicaSpecs"][1].update(mxReplicaType="WORKER"),
        "at most one entry for each of SERVER and WORKER",
    ),
    "unknown type": (lambda spec: spec["replicaSpecs"][1].update(mxReplicaType="PS"), "replicaSpecs[1].mxReplicaType"),
    "container with another name": (
        lambda spec: spec["replicaSpecs"][2]["template"]["spec"]["containers"][0].update(name="main"),
        "a container named mxnet",
    ),
    "unknown restart policy": (
        lambda spec: spec["replicaSpecs"][2]["template"]["spec"].update(restartPolicy="Sometimes"),
        "replicaSpecs[2].template.spec.restartPolicy",
    ),
    "chief with an unknown role": (set_chief(replicaName="MASTER"), "terminationPolicy.chief must refer to an existing replica"),
    "chief index out of range": (
        set_chief(replicaName="WORKER", replicaIndex=1),
        "terminationPolicy.chief must refer to an existing replica",
    ),
    "no chief": (lambda spec: spec.update(terminationPolicy={}), "terminationPolicy.chief"),
    "runtime id": (lambda spec: spec.update(RuntimeId="NOT FIT FOR A NAME"), "RuntimeId"),
    "run policy": (lambda spec: spec.update(runPolicy={"backoffLimit": -1}), "runPolicy.backoffLimit"),
}
LISTED_CASES: dict[str, tuple[Change, str]] = {
    "no scheduler": (lambda spec: spec.pop(0), "exactly one entry of type SCHEDULER"),
    "two schedulers": (lambda spec: spec[0].update(replicas=2), "replicas of SCHEDULER must be exactly 1"),
    "duplicate worker entry": (lambda spec: spec[1].update(replicaType="WORKER"), "at most one entry for each type"),
    "unknown type": (lambda spec: spec[1].update(replicaType="server"), "spec[1].replicaType"),
    "no replicas": (lambda spec: spec[1].pop("replicas"), "spec[1].replicas"),
}


def changed(manifest: JsonObject, change: Change) -> JsonObject:
    copied = copy.deepcopy(manifest)
    change(copied["spec"])
    return copied


async def submit(manifest: JsonObject) -> None:
    kind = REGISTRY.get(manifest["apiVersion"], manifest["kind"])
    async with EmbeddedCluster() as cluster:
        client = cluster.client()
        for definition in build_crds([kind]):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await asyncio.sleep(1)  # until the CRD is established
        await client.create(kind.job_type.resource, manifest, namespace="default")


@pytest.mark.parametrize("manifest", [LINEAR, LISTED, changed(LINEAR, set_chief(replicaName="WORKER")), changed(LINEAR, set_chief())])
@virtual_time
async def test_a_valid_job_is_accepted(manifest: JsonObject) -> None:
    await submit(manifest)


@pytest.mark.parametrize(("manifest", "entries"), [(LINEAR, ("replicaSpecs",)), (LISTED, ())], ids=["fioravanzo", "mpba"])
@virtual_time
async def test_a_scheduler_without_a_number_is_one_scheduler(manifest: JsonObject, entries: tuple[str, ...]) -> None:
    def remove_number(spec: Any) -> None:
        (spec[entries[0]] if entries else spec)[0].pop("replicas", None)

    await submit(changed(manifest, remove_number))
    assert parse_job(changed(manifest, remove_number), REGISTRY).spec.roles[0].replicas == 1


@pytest.mark.parametrize("case", LINEAR_CASES)
@virtual_time
async def test_an_invalid_mxjob_of_fioravanzo_is_rejected(case: str) -> None:
    change, expected = LINEAR_CASES[case]
    with pytest.raises(InvalidError) as caught:
        await submit(changed(LINEAR, change))
    assert expected in str(caught.value)


@pytest.mark.parametrize("case", LISTED_CASES)
@virtual_time
async def test_an_invalid_mxjob_of_mpba_is_rejected(case: str) -> None:
    change, expected = LISTED_CASES[case]
    with pytest.raises(InvalidError) as caught:
        await submit(changed(LISTED, change))
    assert expected in str(caught.value)
