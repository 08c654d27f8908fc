"""The operator: installed and removed kinds, namespaces, leader election, shutdown, bugs and metrics."""

from __future__ import annotations

import asyncio
import copy

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from dlop.api.crd import build_crds
from dlop.api.types import ForceDeletion, JobType, Options
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.registry import RegistryError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES
from dlop.kube.transport import Request, Response
from dlop.kube.types import JsonObject
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings
from dlop.replica import Replica
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_CRD, RING_JOBS, OperatorEnv, RecordingTransport, operator_env, ring, settle
from tests.sim.ring_job import RingJob

PRESERVED: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PRESERVED_LIST: JsonObject = {"type": "array", "items": PRESERVED}
FORBIDDEN: JsonObject = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "forbidden"}

UNAUTHORIZED: JsonObject = {"kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}


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


class StarJob(RingJob):
    job_type = JobType(group="example.org", version="v1", kind="StarJob")


STAR_JOBS = StarJob.job_type.resource
RING_PODS = [f"ring-worker-{index}" for index in range(3)]


async def submit_star(env: OperatorEnv) -> None:
    """Install the CRD of StarJob and submit a job."""
    for crd in build_crds([StarJob]):
        await env.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
    await settle(1)
    await env.client.create(STAR_JOBS, {**ring("star"), "kind": "StarJob"}, namespace=NAMESPACE)


@pytest.mark.parametrize("verb", [None, "watch"])
@virtual_time
async def test_a_forbidden_kind_does_not_block_others_and_is_reconciled_once_it_is_allowed(verb: str | None) -> None:
    async with operator_env() as env:
        await submit_star(env)
        env.faults.fail_before(FORBIDDEN, match=RequestMatch(verb=verb, plural="starjobs"), times=3)
        with capture_logs() as lines:
            async with env.run_operator(job_class=RingJob, extra_classes=(StarJob,)) as operator:
                await env.submit(ring())
                await settle(2)
                assert (operator.is_synced, await env.pod_names()) == (True, RING_PODS)
                await settle(300)
                assert "star-worker-2" in await env.pod_names()
        errors = [line for line in lines if "not allowed to read kind" in line["event"]]
        assert [line["kind"] for line in errors] == ["starjobs.example.org"] * 3


@pytest.mark.parametrize("namespaces", [(), (NAMESPACE, "other")])
@virtual_time
async def test_a_kind_that_the_server_cannot_list_does_not_block_others(namespaces: tuple[str, ...]) -> None:
    broken: JsonObject = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "conversion failed"}
    async with operator_env() as env:
        await submit_star(env)
        fault = env.faults.fail_before(broken, match=RequestMatch(plural="starjobs"), times=1_000_000)
        await env.submit(ring())
        async with asyncio.timeout(120), env.run_operator(extra_classes=(StarJob,), namespaces=namespaces) as operator:
            await settle(2)
            assert (operator.is_synced, await env.pod_names()) == (True, RING_PODS)
            assert fault.hits > 0
            env.faults.clear()
            await settle(55)
            assert "star-worker-2" in await env.pod_names()


@virtual_time
async def test_nodes_that_the_server_cannot_list_do_not_block_the_kinds() -> None:
    broken: JsonObject = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "broken"}
    async with operator_env() as env:
        env.faults.fail_before(broken, match=RequestMatch(plural="nodes"), times=1_000_000)
        await env.submit(ring())
        async with asyncio.timeout(120), env.run_operator(options=Options(force_deletion=ForceDeletion.NODE_DOWN)):
            await settle(60)
            assert await env.pod_names() == RING_PODS


@virtual_time
async def test_a_kind_removed_during_a_refresh_of_its_cache_does_not_block_others() -> None:
    async with operator_env() as env:
        await submit_star(env)
        await env.submit(ring())
        async with env.run_operator(extra_classes=(StarJob,)):
            await settle(1)
            env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
            env.faults.hold_watches(match=RequestMatch(plural="starjobs"))
            await env.set_pod_phases("Running")
            await settle(1)
            env.faults.delay(1_000_000, match=RequestMatch(plural="ringjobs", verb="watch"), times=1000)
            await env.set_pod_phases("Succeeded")  # waits until the caches show the status, first that of ring
            await settle(12)
            await env.client.delete(CUSTOM_RESOURCE_DEFINITIONS, RING_CRD["metadata"]["name"])
            await settle(120)
            star = await env.client.get(STAR_JOBS, "star", namespace=NAMESPACE)
            assert {condition["type"]: condition["status"] for condition in star["status"]["conditions"]}["Succeeded"] == "True"


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


@pytest.mark.parametrize("verb", [None, "watch"])
@virtual_time
async def test_without_permission_to_read_crds_installed_kinds_are_reconciled(verb: str | None) -> None:
    async with operator_env() as env:
        env.faults.fail_before(FORBIDDEN, match=RequestMatch(verb=verb, plural=CUSTOM_RESOURCE_DEFINITIONS.plural), times=1000)
        async with asyncio.timeout(60), env.run_operator():
            await env.submit(ring())
            await settle()
            assert len(await env.pods()) == 3


class BrokenDiscovery(RecordingTransport):
    """Discovery of one group fails until `is_repaired` is set."""

    is_repaired = False

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        if request.path == "/apis/stars.example.org/v1" and not self.is_repaired:
            return Response(500, {}, b"no")
        return await super().send(request, timeout_seconds=timeout_seconds)


@virtual_time
async def test_a_kind_that_cannot_be_discovered_does_not_block_others() -> None:
    class DistantStarJob(RingJob):
        job_type = JobType(group="stars.example.org", version="v1", kind="StarJob")

    async with operator_env() as env:
        for crd in build_crds([DistantStarJob]):
            await env.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        await settle(1)
        star = {**ring("star"), "apiVersion": "stars.example.org/v1", "kind": "StarJob"}
        await env.client.create(DistantStarJob.job_type.resource, star, namespace=NAMESPACE)
        await env.submit(ring())
        env.faults.fail_before(FORBIDDEN, match=RequestMatch(plural=CUSTOM_RESOURCE_DEFINITIONS.plural), times=1000)
        transport = BrokenDiscovery(env.cluster.transport())
        async with asyncio.timeout(300), env.run_operator(job_class=DistantStarJob, extra_classes=(RingJob,), transport=transport):
            await settle(5)
            assert await env.pod_names() == RING_PODS
            transport.is_repaired = True
            await settle(60)
            assert "star-worker-2" in await env.pod_names()


@virtual_time
async def test_rejected_credentials_at_the_start_do_not_end_the_watch_for_kinds_installed_later() -> None:
    async with operator_env(installed=False) as env:
        env.faults.fail_before(UNAUTHORIZED, match=RequestMatch(plural=CUSTOM_RESOURCE_DEFINITIONS.plural), times=5)
        async with env.run_operator():
            await env.install_crd()
            await env.submit(ring())
            await settle()
            assert len(await env.pods()) == 3


@virtual_time
async def test_rejected_credentials_are_not_reported_as_missing_permissions() -> None:
    async with operator_env() as env:
        await env.submit(ring())
        env.faults.fail_before(UNAUTHORIZED, match=RequestMatch(plural=RING_JOBS.plural), times=4)
        with capture_logs() as lines:
            async with asyncio.timeout(120), env.run_operator():
                await settle(60)
                assert len(await env.pods()) == 3
        events = [line["event"] for line in lines]
        assert "credentials rejected, retrying" in events
        assert not any("not allowed" in event for event in events)


@pytest.mark.parametrize("failure", [UNAUTHORIZED, None], ids=["unauthorized", "no connection"])
def test_installed_kinds_are_reconciled_when_the_server_denies_crds_only_after_other_failures(failure: JsonObject | None) -> None:
    @virtual_time
    async def check() -> None:
        async with operator_env() as env:
            crds = RequestMatch(plural=CUSTOM_RESOURCE_DEFINITIONS.plural)
            env.faults.fail_before(failure, match=crds, times=6)
            env.faults.fail_before(FORBIDDEN, match=crds, times=1000)
            async with asyncio.timeout(120), env.run_operator():
                await env.submit(ring())
                await settle()
                assert len(await env.pods()) == 3

    check()


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
async def test_an_operator_without_the_lease_writes_nothing_and_continues_when_it_leads_again() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True) as operator:
        await settle(5)
        env.faults.fail_before(None, match=RequestMatch(plural="leases"), times=100_000)
        env.faults.delay(60, match=RequestMatch(verb="create", plural="pods"), times=1000)
        await env.submit(ring("one"))
        await settle(30)
        was_leading = operator.is_leading
        env.clear_requests()
        await env.submit(ring("two"))
        await settle(120)
        assert env.writes() == []
        env.faults.clear()
        await settle(60)
        assert (was_leading, operator.is_leading) == (False, True)
        assert len(await env.pods()) == 6
        assert env.create_count("pods") <= 6


@virtual_time
async def test_an_outage_of_the_api_server_longer_than_the_lease_does_not_end_the_operator() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True) as operator:
        await env.submit(ring("one"))
        await settle(5)
        env.faults.fail_before(None, times=100_000)
        env.faults.drop_watches()
        await settle(120)
        was_leading = operator.is_leading
        env.faults.clear()
        await env.set_pod_phases("Running")
        await env.submit(ring("two"))
        await settle(60)
        assert (was_leading, operator.is_leading) == (False, True)
        assert "Running" in await env.conditions("one")
        assert len(await env.pods()) == 6


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
        assert not running.done()
        lost_at = loop.time()
        env.faults.fail_before(None, match=RequestMatch(plural="leases"), times=1000)
        await settle(50)
        running.cancel()
        await asyncio.wait((running,))
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
    def broken(self: RingJob, _: Replica, pod: JsonObject) -> JsonObject:
        if self.metadata.name == "broken":
            raise ZeroDivisionError
        return pod

    monkeypatch.setattr(RingJob, "customize_pod", broken)
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
