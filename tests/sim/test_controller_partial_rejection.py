"""An invalid pod does not affect the other pods of its job."""

from __future__ import annotations

from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.cluster.edited_kinds import CrewJob


def crew() -> JsonObject:
    """A chief whose pod is invalid, and a helper."""
    helper = {"name": "main", "image": "i"}
    chief = {**helper, "env": [{"name": "A=B", "value": "1"}]}
    roles = {name: {"template": {"spec": {"containers": [main]}}} for name, main in (("Chief", chief), ("Helper", helper))}
    return {"apiVersion": "edits.dlop.dev/v1", "kind": "CrewJob", "metadata": {"name": "crew"}, "spec": {"replicaSpecs": roles}}


@virtual_time
async def test_a_pod_is_replaced_while_another_pod_of_its_job_is_rejected() -> None:
    async with OperatorKit(frameworks=[CrewJob]) as kit:
        job = await kit.submit(crew())
        await kit.until(job, reached=lambda job: list(job.pods) == ["crew-helper-0"] and "blocked" in job.status.get("dlop", {}))
        first = job.pods["crew-helper-0"]["metadata"]["uid"]
        await kit.client.delete(PODS, "crew-helper-0", namespace="default")
        await kit.until(
            job, reached=lambda job: [pod["metadata"]["uid"] != first for pod in job.pods.values()] == [True], within_seconds=600
        )
        assert job.status["dlop"]["blocked"]["object"] == "pod crew-chief-0"
