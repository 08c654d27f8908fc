"""Jobs that were stored under the definitions of Kubeflow's operator are still readable, and run."""

from __future__ import annotations

import copy

from dlop.api.crd import definitions
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.client import PatchType
from dlop.kube.errors import JsonObject
from dlop.manifests.applying import apply
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.compat.kubeflow_manifests import manifest, role

ANYTHING: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def old_definition() -> JsonObject:
    """It takes what the new one does not."""
    [found] = definitions([PyTorchJob])
    schema = {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}
    changed = copy.deepcopy(found)
    changed["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return changed


@virtual_time
async def test_a_job_that_would_be_refused_today_goes_on_under_the_new_definition() -> None:
    async with OperatorKit(frameworks=[PyTorchJob], operator=False) as kit:
        kit.script.when("*").run().after(600).succeed()
        await apply(kit.client, [old_definition()], say=lambda _: None)
        job = await kit.submit(manifest(PyTorchJob, {"Master": role(PyTorchJob, None), "Worker": 2}, unheardOf={"of": 1}))
        status = {"conditions": [{"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "as before"}]}
        resource = PyTorchJob.job_type.resource
        await kit.client.patch(resource, "demo", {"status": status}, namespace="default", patch_type=PatchType.MERGE, subresource="status")
        await apply(kit.client, definitions([PyTorchJob]), say=lambda _: None)
        await kit.start_operator()
        await kit.until(job, phase="Succeeded")
        assert job.status["conditions"][0]["message"] == "as before"
        assert sorted(job.pods) == ["demo-master-0", "demo-worker-0", "demo-worker-1"]
