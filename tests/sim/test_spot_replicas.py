"""Spot replicas are replaced after disruptions, which are counted apart, and are created on demand after too many of them."""

from __future__ import annotations

from typing import Any

import msgspec

from dlop.api.constants import SPOT_ANNOTATION
from dlop.console.describe_page import render_page
from dlop.deploy.apply import apply
from dlop.jobs.lookup import JobHandle
from dlop.jobs.view import build_view
from dlop.kube.objects import Pod, object_decoder
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit, Evict
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.pod_groups import BY_PLUGINS, PLUGINS, PodGroups, pod_group_crd
from tests.sim.operator_env import settle
from tests.sim.pair_job import PairJob, pair

_decode_pod = object_decoder(Pod)


def spot_pair(*, spot: int = 2, maximum: int | None = 2, workers: int = 3, **run_policy: Any) -> JsonObject:
    """A job whose last workers are spot replicas."""
    manifest = pair(workers=workers, **run_policy)
    options = {"replicas": spot, "priorityClassName": "", "labels": {"tier": "spot"}}
    manifest["spec"]["replicaSpecs"]["Worker"]["spotReplicas"] = options | ({} if maximum is None else {"maxDisruptions": maximum})
    return manifest


def spot_pods(job: ObservedJob) -> list[str]:
    """The spot pods, which have the label of the manifest."""
    marked = sorted(name for name, pod in job.pods.items() if SPOT_ANNOTATION in (pod["metadata"].get("annotations") or {}))
    assert marked == sorted(name for name, pod in job.pods.items() if pod["metadata"]["labels"].get("tier") == "spot")
    return marked


def counts(job: ObservedJob) -> tuple[int, int, int]:
    """Restarts, disruptions, and disruptions of spot replicas."""
    record = job.status.get("dlop") or {}
    restarts, disruptions, spot = (sum(record.get(name, {}).values()) for name in ("restarts", "disruptions", "spotDisruptions"))
    return restarts, disruptions, spot


async def evict(kit: OperatorKit, job: ObservedJob, pod: str, *, expected: tuple[int, int, int], pods: int = 4) -> None:
    """Evict a pod, and wait until it is replaced and the counts are as expected."""
    await kit.kubelet.perform(f"default/{pod}", Evict())
    await kit.until(job, reached=lambda view: counts(view) == expected and is_running(view, pods), within_seconds=600)
    await settle(60)
    assert counts(job) == expected


def is_running(job: ObservedJob, pods: int = 4) -> bool:
    return [phase for phase in job.pod_phases.values() if phase == "Running"] == ["Running"] * pods


def fallback_events(job: ObservedJob) -> list[str]:
    return [note for reason, note in job.events if reason == "SpotFallback"]


@virtual_time
async def test_disruptions_of_spot_replicas_are_counted_apart_and_never_reach_the_disruption_limit() -> None:
    async with OperatorKit([PairJob]) as kit:
        job = await kit.submit(spot_pair(maximum=None, disruptionLimit=1))
        await kit.until(job, phase="Running", reached=is_running)
        assert spot_pods(job) == ["pair-worker-1", "pair-worker-2"]
        for number in range(1, 4):
            await evict(kit, job, "pair-worker-2", expected=(0, 0, number))
        await evict(kit, job, "pair-worker-0", expected=(0, 1, 3))
        assert spot_pods(job) == ["pair-worker-1", "pair-worker-2"]
        assert fallback_events(job) == []
        await kit.kubelet.perform("default/pair-server-0", Evict())
        await kit.until(job, phase="Failed")
        assert counts(job) == (0, 2, 3)


@virtual_time
async def test_after_the_maximum_of_disruptions_pods_are_created_on_demand_across_a_crash_of_the_operator() -> None:
    async with OperatorKit([PairJob], operator=False) as kit:
        operator = await kit.start_operator()
        job = await kit.submit(spot_pair(maximum=2))
        await kit.until(job, phase="Running", reached=is_running)
        await evict(kit, job, "pair-worker-2", expected=(0, 0, 1))
        assert spot_pods(job) == ["pair-worker-1", "pair-worker-2"]
        await operator.crash()
        await kit.kubelet.perform("default/pair-worker-2", Evict())
        operator = await kit.start_operator()
        await kit.until(job, reached=lambda view: counts(view) == (0, 0, 2) and is_running(view), within_seconds=600)
        assert spot_pods(job) == ["pair-worker-1"]
        await operator.crash()
        await kit.start_operator()
        await settle(60)
        assert counts(job) == (0, 0, 2)
        # The last spot pod still counts as one, and the pods on demand as usual.
        await evict(kit, job, "pair-worker-1", expected=(0, 0, 3))
        assert spot_pods(job) == []
        await evict(kit, job, "pair-worker-1", expected=(0, 1, 3))
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_one_event_says_that_a_role_falls_back() -> None:
    async with OperatorKit([PairJob]) as kit:
        job = await kit.submit(spot_pair(maximum=2))
        await kit.until(job, phase="Running", reached=is_running)
        await evict(kit, job, "pair-worker-2", expected=(0, 0, 1))
        assert fallback_events(job) == []
        await evict(kit, job, "pair-worker-2", expected=(0, 0, 2))
        await evict(kit, job, "pair-worker-1", expected=(0, 0, 3))
        (event,) = fallback_events(job)
        assert event == (
            "Worker: 2 disruptions of spot replicas, and spec.replicaSpecs.Worker.spotReplicas.maxDisruptions is 2; "
            "new pods are created on demand"
        )


@virtual_time
async def test_failures_of_spot_replicas_are_counted_as_failures() -> None:
    async with OperatorKit([PairJob]) as kit:
        job = await kit.submit(spot_pair(maximum=1))
        await kit.until(job, phase="Running", reached=is_running)
        await kit.kubelet.perform("default/pair-worker-2", ContainerExit(137))
        await kit.until(job, reached=lambda view: counts(view) == (1, 0, 0) and is_running(view))
        assert spot_pods(job) == ["pair-worker-1", "pair-worker-2"]


@virtual_time
async def test_a_deleted_spot_pod_is_a_disruption_of_a_spot_replica() -> None:
    async with OperatorKit([PairJob], operator=False) as kit:
        operator = await kit.start_operator()
        job = await kit.submit(spot_pair(maximum=5))
        await kit.until(job, phase="Running", reached=is_running)
        await operator.crash()
        for pod in ("pair-worker-0", "pair-worker-1"):
            await kit.client.delete(PODS, pod, namespace="default", grace_seconds=0)
        await kit.start_operator()
        await kit.until(job, reached=lambda view: counts(view) == (0, 1, 1) and is_running(view))


@virtual_time
async def test_a_restart_of_the_whole_job_counts_once_and_for_the_replica_on_demand() -> None:
    async with OperatorKit([PairJob], operator=False) as kit:
        operator = await kit.start_operator()
        manifest = spot_pair(maximum=1, restartScope="Job")
        roles = manifest["spec"]["replicaSpecs"]
        roles["Server"]["spotReplicas"] = {**roles["Worker"]["spotReplicas"], "replicas": 1}
        job = await kit.submit(manifest)
        await kit.until(job, phase="Running", reached=is_running)
        await operator.crash()
        for pod in ("pair-server-0", "pair-worker-0", "pair-worker-1"):
            await kit.kubelet.perform(f"default/{pod}", Evict())
        await kit.start_operator()
        await kit.until(job, reached=lambda view: counts(view) == (0, 1, 0) and is_running(view), within_seconds=600)
        await evict(kit, job, "pair-worker-2", expected=(0, 1, 1))
        assert spot_pods(job) == ["pair-server-0"]


@virtual_time
async def test_spot_pods_that_wait_for_a_node_are_replaced_when_the_role_falls_back() -> None:
    async with OperatorKit([PairJob]) as kit:
        kit.script.when("pair-worker-1", times=1).until_released().run()
        job = await kit.submit(spot_pair(maximum=1))
        await kit.until(job, reached=lambda view: list(view.pod_phases.values()).count("Running") == 3)
        assert job.pod_phases["pair-worker-1"] == "Pending"
        await evict(kit, job, "pair-worker-2", expected=(0, 0, 1))
        assert spot_pods(job) == []
        assert ("ReplacedPods", "Replaced 1 spot pod that had not started, because spot replicas are created on demand now") in job.events
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_change_of_the_options_replaces_only_pods_that_have_not_started() -> None:
    async with OperatorKit([PairJob]) as kit:
        kit.script.when("pair-worker-2", times=1).until_released().run()
        job = await kit.submit(spot_pair(spot=2))
        await kit.until(job, reached=lambda view: list(view.pod_phases.values()).count("Running") == 3)
        before = {name: pod["metadata"]["uid"] for name, pod in job.pods.items()}
        await kit.edit(job, {"spec": {"replicaSpecs": {"Worker": {"spotReplicas": {"labels": {"zone": "b"}}}}}})
        await kit.until(job, reached=is_running)
        after = {name: pod["metadata"]["uid"] for name, pod in job.pods.items()}
        assert [name for name in after if after[name] != before[name]] == ["pair-worker-2"]
        assert job.pods["pair-worker-2"]["metadata"]["labels"]["zone"] == "b"
        assert counts(job) == (0, 0, 0)


@virtual_time
async def test_the_page_of_a_job_shows_the_spot_replicas_and_that_they_are_created_on_demand() -> None:
    def facts(job: ObservedJob) -> list[str]:
        handle = JobHandle.decode(PairJob, msgspec.json.encode(job.body))
        view = build_view(handle, [_decode_pod(msgspec.json.encode(pod)) for pod in job.pods.values()])
        return [text.strip() for _, text in render_page(view, now=2e9) if "Spot:" in text]

    async with OperatorKit([PairJob]) as kit:
        job = await kit.submit(spot_pair(maximum=1))
        await kit.until(job, phase="Running", reached=is_running)
        assert facts(job) == ["Spot:         2 Worker, 0 disruptions"]
        await evict(kit, job, "pair-worker-2", expected=(0, 0, 1))
        assert facts(job) == ["Spot:         2 Worker, 1 disruption, now created on demand"]


@virtual_time
async def test_the_pod_group_of_a_job_does_not_change_when_its_spot_replicas_are_disrupted() -> None:
    async with OperatorKit([PairJob], operator=False, options=BY_PLUGINS) as kit:
        await apply(kit.client, [pod_group_crd(PLUGINS)], report=lambda _: None)
        await kit.start_operator()
        groups = PodGroups(kit.client, PLUGINS)
        job = await kit.submit(spot_pair(maximum=1))
        await kit.until(job, phase="Running", reached=is_running)
        before = await groups.get("pair")
        assert before is not None
        assert before["spec"]["minMember"] == 4
        await evict(kit, job, "pair-worker-2", expected=(0, 0, 1))
        assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in job.pods.values()} == {"pair"}
        assert await groups.get("pair") == before


@virtual_time
async def test_a_job_with_bad_spot_options_says_so_and_disturbs_no_other_job() -> None:
    async with OperatorKit([PairJob]) as kit:
        other = await kit.submit(spot_pair() | {"metadata": {"name": "other", "namespace": "default"}})
        bad = await kit.submit(spot_pair(spot=9))
        await kit.until(bad, phase="Invalid")
        await settle(5)
        assert "spec.replicaSpecs.Worker.spotReplicas: has 9 replicas, but Worker has only 3; use at most 3" in str(bad.events)
        assert bad.pods == {}
        await kit.until(other, phase="Running")
