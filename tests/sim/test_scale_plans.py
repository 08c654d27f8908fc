"""The operator executes the scale plans of ElasticJobs."""

from __future__ import annotations

from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.elastic_manifests import SCALE_PLANS, elastic_job, scale_plan

MASTER = "elasticjob-elastic-dlrover-master-0"


async def running_job(kit: OperatorKit, manifest: JsonObject | None = None) -> ObservedJob:
    view = await kit.submit(manifest or elastic_job())
    return await kit.until(view, reached=lambda view: view.pod_phases == {MASTER: "Running"}, within_seconds=60)


@virtual_time
async def test_a_plan_creates_the_pods_that_it_asks_for_and_is_deleted() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await running_job(kit)
        await kit.client.create(SCALE_PLANS, scale_plan(replicas={"worker": 3}, owner=view.body), namespace="default")
        names = [f"elastic-edljob-worker-{number}" for number in range(3)]
        await kit.until(
            view, reached=lambda view: view.pod_phases == {MASTER: "Running"} | dict.fromkeys(names, "Running"), within_seconds=60
        )
        assert await kit.writes_when_idle() == []
        assert [plan["metadata"]["name"] for plan in (await kit.client.list(SCALE_PLANS, namespace="default"))["items"]] == []
        assert view.status["phase"] == "Running"
