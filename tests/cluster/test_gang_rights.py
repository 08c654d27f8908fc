"""Gang scheduling on the real API server: the operator as a process with its flag, and with the rights that are asked for by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.api.gang import VOLCANO
from dlop.deploy.apply import apply
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import Kubelet
from dlop.testing.script import Script
from tests.cluster.test_operator_with_its_rights import JOBS, PATIENCE_SECONDS, has, job, operator_process, until
from tests.cluster.test_rights import deployed
from tests.frameworks.pod_groups import Groups, definition


@pytest.mark.parametrize("one_namespace", [False, True], ids=["cluster-wide", "one namespace"])
async def test_a_gang_has_its_group_from_the_beginning_to_the_end_with_the_rights_for_it(
    real_cluster: RealCluster, tmp_path: Path, *, one_namespace: bool
) -> None:
    log, script = tmp_path / "operator.log", Script()
    script.when("first-*").run().after(3).succeed()
    async with deployed(real_cluster, tmp_path, one_namespace=one_namespace, rights=("gang",)) as place:
        own, admin = place.chosen.namespace, place.admin
        await apply(admin, [definition(VOLCANO)], say=lambda _: None)
        flags = ("--gang-scheduler-name", VOLCANO, *(("--namespaces", own) if one_namespace else ()))
        async with Kubelet(admin, script, namespace=own), operator_process(place, tmp_path / "operator.kubeconfig", log, *flags):
            await admin.create(JOBS, job("first"), namespace=own)
            groups = Groups(admin, VOLCANO, namespace=own)
            assert (await appeared(groups))["spec"] == {"minMember": 3, "queue": "default"}
            assert "first" not in {pod["metadata"]["name"].split("-")[0] for pod in (await admin.list(PODS, namespace=own))["items"]}
            await groups.say("Inqueue", "first")
            await until(admin, "first", own, has("Running"))
            await groups.edit({"spec": {"minMember": 1}}, "first")
            await until(admin, "first", own, lambda found: found is None)
            assert await groups.get("first") is None
        assert refused(log) == ({"priorityclasses"} if one_namespace else set())


async def appeared(groups: Groups) -> JsonObject:
    """The group of the job, as soon as it is there. The server takes its time before it lets anybody watch a new kind of object."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await groups.get("first")
            if found is not None:
                return found
            await asyncio.sleep(0.1)


def refused(log: Path) -> set[str]:
    """What the server has refused to the operator, definitions apart, which one of a single namespace may not watch."""
    lines = [line for line in log.read_text().splitlines() if "forbidden" in line.lower()]
    return {"priorityclasses" if "priorityclasses" in line else line for line in lines if "custom resource definitions" not in line}
