"""The operator: installed and removed kinds, namespaces, leader election, shutdown, bugs and metrics."""

from __future__ import annotations

import asyncio
import copy

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from dlop.api.crd import build_crds
from dlop.api.types import JobType
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.registry import RegistryError
from dlop.kube.leader_election import LeadershipLostError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES
from dlop.kube.types import JsonObject
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_CRD, RING_JOBS, OperatorEnv, RecordingTransport, operator_env, ring, settle
from tests.sim.ring_job import RingJob

PRESERVED: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PRESERVED_LIST: JsonObject = {"type": "array", "items": PRESERVED}
FORBIDDEN: JsonObject = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "forbidden"}


async def lease_holder(env: OperatorEnv) -> str:
    lease = await env.client.get(LEASES, "dlop", namespace=NAMESPACE)
    return str(lease["spec"].get("holderIdentity") or "")


# --- kinds -----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_kind_installed_later_is_reconciled() -> None:
    async with operator_env(installed=False) as env, env.run_operator() as operator:
        assert operator.is_synced
        await env.install_crd()
        await env.submit(ring())
        await settle()
        assert len(await env.pods()) == 3


@virtual_time
async def test_a_kind_removed_and_installed_again_is_reconciled() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring("one"))
        await settle()
        await env.client.delete(CUSTOM_RESOURCE_DEFINITIONS, RING_CRD["metadata"]["name"])
        await settle(60)
        await env.install_crd()
        await env.submit(ring("two"))
        await settle(60)
        assert {"two-worker-0", "two-worker-1", "two-worker-2"} <= set(await env.pod_names())


@virtual_time
async def test_a_forbidden_kind_does_not_block_others_and_is_reconciled_once_it_is_allowed() -> None:
    class StarJob(RingJob):
        job_type = JobType(group="example.org", version="v1", kind="StarJob")

    async with operator_env() as env:
        for crd in build_crds([StarJob]):
            await env.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        await settle(1)
        await env.client.create(StarJob.job_type.resource, {**ring("star"), "kind": "StarJob"}, namespace=NAMESPACE)
        env.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="starjobs"), times=3)
        with capture_logs() as lines:
            async with env.run_operator(job_class=RingJob, extra_classes=(StarJob,)) as operator:
                await env.submit(ring())
                await settle(2)
                assert (operator.is_synced, await env.pod_names()) == (True, [f"ring-worker-{index}" for index in range(3)])
                assert operator.watch_age_seconds() < 60
                await settle(300)
                assert "star-worker-2" in await env.pod_names()
        errors = [line for line in lines if "not allowed to read kind" in line["event"]]
        assert [line["kind"] for line in errors] == ["starjobs.example.org"] * 3


@virtual_time
async def test_a_crd_that_drops_the_record_causes_no_hot_loop_where_crds_cannot_be_read() -> None:
    schema = {
        "type": "object",
        "properties": {"spec": PRESERVED, "status": {"type": "object", "properties": {"conditions": PRESERVED_LIST}}},
    }
    pruning_crd = copy.deepcopy(RING_CRD)
    pruning_crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    async with operator_env(installed=False) as env:
        await env.client.create(CUSTOM_RESOURCE_DEFINITIONS, pruning_crd)
        await settle(1)
        env.faults.fail_before(FORBIDDEN, match=RequestMatch(plural=CUSTOM_RESOURCE_DEFINITIONS.plural), times=1000)
        with capture_logs() as lines:
            async with env.run_operator():
                await env.submit(ring())
                await settle(60)
        assert len(env.writes()) < 30
        assert any("drops status.dlop" in str(line.get("error")) for line in lines)


@virtual_time
async def test_without_permission_to_read_crds_installed_kinds_are_reconciled() -> None:
    async with operator_env() as env:
        env.faults.fail_before(FORBIDDEN, match=RequestMatch(plural=CUSTOM_RESOURCE_DEFINITIONS.plural), times=1000)
        async with env.run_operator():
            await env.submit(ring())
            await settle()
            assert len(await env.pods()) == 3


@virtual_time
async def test_an_unknown_kind_is_rejected_at_the_start() -> None:
    async with operator_env() as env:
        with pytest.raises(RegistryError, match=r"ringjobs\.example\.org"):
            Operator(Settings(kinds=("StringJob",)), [RingJob], transport=env.transport)


# --- namespaces ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_only_the_named_namespaces_are_watched() -> None:
    async with operator_env() as env:
        for name in ("one", "two", "three"):
            await env.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        async with env.run_operator(namespaces=("one", "two")):
            for name in ("one", "two", "three"):
                await env.client.create(RING_JOBS, ring(), namespace=name)
            await settle()
            assert {request.path.split("/")[4] for request in env.writes(plural="pods")} == {"one", "two"}
            assert env.create_count("pods") == 6


# --- leader election -------------------------------------------------------------------------------------------------


@virtual_time
async def test_only_one_of_two_operators_reconciles() -> None:
    async with operator_env() as env:
        standby = RecordingTransport(env.cluster.transport())
        async with env.run_operator(leader_election=True) as first:
            await settle(1)
            async with env.run_operator(identity="two", transport=standby, leader_election=True) as second:
                await env.submit(ring())
                await settle(60)
                assert (first.is_leading, second.is_leading) == (True, False)
                assert second.is_synced
                assert len(await env.pods()) == 3
                assert not [request for request in standby.requests if request.is_write]


@virtual_time
async def test_a_standby_takes_over_at_once_from_a_stopped_leader() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True) as first:
        await settle(1)
        async with env.run_operator(identity="two", leader_election=True) as second:
            await settle(30)
            first.stop()
            await settle(3)
            assert second.is_leading
            assert await lease_holder(env) == "two"
            await env.submit(ring())
            await settle()
            assert env.create_count("pods") == 3


@virtual_time
async def test_a_standby_takes_over_from_a_killed_leader() -> None:
    async with operator_env() as env:
        async with env.run_operator(leader_election=True):
            await env.submit(ring("one"))
            await settle()
            env.faults.fail_before(None, match=RequestMatch(plural="leases"), times=10)  # the lease cannot be released
        env.faults.clear()
        async with env.run_operator(identity="two", leader_election=True) as second:
            await env.submit(ring("two"))
            await settle(60)
            assert second.is_leading
            assert len(await env.pods()) == 6
            assert env.create_count("pods") == 6


@virtual_time
async def test_an_operator_that_loses_the_lease_stops_and_writes_nothing() -> None:
    async with operator_env() as env:
        settings = Settings(leader_election=True)
        operator = Operator(settings, [RingJob], transport=env.transport, clock=env.clock, identity="one")
        running = asyncio.create_task(operator.run())
        await settle(5)
        env.faults.fail_before(None, match=RequestMatch(plural="leases"), times=1000)
        env.faults.delay(60, match=RequestMatch(verb="create", plural="pods"), times=1000)
        await env.submit(ring())
        with pytest.raises(LeadershipLostError):
            await running
        env.clear_requests()
        await settle(120)
        assert env.transport.requests == []


@virtual_time
async def test_the_process_exits_if_workers_do_not_stop_after_leadership_is_lost() -> None:
    async with operator_env() as env:
        exits: list[tuple[int, float]] = []
        loop = asyncio.get_running_loop()

        async def ignore_cancellation() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(100)
                raise

        operator = Operator(
            Settings(leader_election=True),
            [RingJob],
            transport=env.transport,
            clock=env.clock,
            identity="one",
            exit_process=lambda code: exits.append((code, loop.time())),
        )
        operator._manager.controller.run = ignore_cancellation  # type: ignore[method-assign]
        running = asyncio.create_task(operator.run())
        await settle(20)
        lost_at = loop.time()
        env.faults.fail_before(None, match=RequestMatch(plural="leases"), times=1000)
        with pytest.raises(LeadershipLostError):
            await running
        ((code, exited_at),) = exits
        assert code == 1
        assert exited_at - lost_at < 15


# --- shutdown --------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_stopped_operator_finishes_running_passes() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        env.faults.delay(5, match=RequestMatch(verb="create", plural="services"), times=3)
        await env.submit(ring("one"))
        await asyncio.sleep(1)
        operator.stop()
        await env.submit(ring("two"))
        await settle(30)
        assert await env.pod_names() == ["one-worker-0", "one-worker-1", "one-worker-2"]
        assert "Created" in await env.conditions("one")
        assert await env.conditions("two") == {}


@virtual_time
async def test_a_stopped_standby_exits_at_once() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True):
        await settle(1)
        async with env.run_operator(identity="two", leader_election=True) as second:
            second.stop()
            await settle(1)
            assert await lease_holder(env) == "one"


# --- bugs and metrics ------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_bug_in_a_framework_affects_only_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RingJob.make_pod

    def broken(self: RingJob, *arguments: object, **more: object) -> JsonObject:
        if self.metadata.name == "broken":
            raise ZeroDivisionError
        return original(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(RingJob, "make_pod", broken)
    with capture_logs() as lines:
        async with operator_env() as env, env.run_operator() as operator:
            await env.submit(ring("broken"))
            await env.submit(ring("good"))
            await settle(600)
            await _check_only_good_job_runs(env, operator)
    assert {line["exc_info"] for line in lines if line["log_level"] == "error"} == {True}


async def _check_only_good_job_runs(env: OperatorEnv, operator: Operator) -> None:
    assert await env.pod_names() == ["good-worker-0", "good-worker-1", "good-worker-2"]
    text = generate_latest(operator.metrics.registry).decode()
    errors = next(line for line in text.splitlines() if line.startswith("controller_runtime_reconcile_errors_total"))
    assert 5 < float(errors.rsplit(" ", 1)[1]) < 40


@virtual_time
async def test_the_metrics_count_the_transitions_of_jobs() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        await env.submit(ring())
        await settle(10)
        await env.set_pod_phases("Running", names=("ring-worker-0",))
        await settle(10)
        await env.set_pod_phases("Running")
        await settle(10)
        await env.set_pod_phases("Succeeded")
        await settle(10)
        lines = generate_latest(operator.metrics.registry).decode().splitlines()
    labels = '{kind="ringjobs.example.org",namespace="default"}'
    assert f"dlop_jobs_created_total{labels} 1.0" in lines
    assert f"dlop_jobs_succeeded_total{labels} 1.0" in lines
    assert 'dlop_job_first_pod_running_seconds_count{kind="ringjobs.example.org"} 1.0' in lines
    assert 'dlop_job_all_pods_running_seconds_count{kind="ringjobs.example.org"} 1.0' in lines
    assert 'dlop_job_all_pods_running_seconds_bucket{kind="ringjobs.example.org",le="10.0"} 0.0' in lines
