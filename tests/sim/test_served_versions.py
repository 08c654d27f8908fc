"""A kind that is served in several versions has one controller."""

from __future__ import annotations

from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.kinds_for_crds import TwoVersions


def twin_job(api_version: str, name: str) -> JsonObject:
    template = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
    spec = {"replicaSpecs": {"Worker": {"replicas": 2, "template": template}}}
    return {"apiVersion": api_version, "kind": "TwinJob", "metadata": {"name": name}, "spec": spec}


@virtual_time
async def test_jobs_of_all_versions_run_and_refer_to_the_main_version() -> None:
    async with OperatorKit(frameworks=[TwoVersions]) as kit:
        kit.script.when("*").run().after(60).succeed()
        for version, name in (("v1", "new"), ("v1alpha1", "old")):
            view = await kit.submit(twin_job(f"crds.dlop.dev/{version}", name))
            await kit.until(view, phase="Running")
            owners = [pod["metadata"]["ownerReferences"][0]["apiVersion"] for pod in view.pods.values()]
            assert owners == ["crds.dlop.dev/v1"] * 2
            await kit.until(view, phase="Succeeded")
        assert await kit.writes_when_idle() == []
