"""The operator as a whole: kinds that come and go, namespaces, leadership, the end."""

from __future__ import annotations

import asyncio
import copy

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from dlop.api.crd import definitions
from dlop.api.types import JobType
from dlop.embedded.apiserver.faults import Match
from dlop.frameworks.registry import RegistryError
from dlop.kube.leader_election import LeadershipLostError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES
from dlop.kube.types import JsonObject
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings
from dlop.testing.virtual_time import virtual_time
from tests.sim.control_world import DEFINITION, NAMESPACE, RINGS, NotingTransport, RingJob, World, a_while, ring, world

PRESERVED: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PRESERVED_LIST: JsonObject = {"type": "array", "items": PRESERVED}
FORBIDDEN: JsonObject = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "you may not"}


async def holder(w: World) -> str:
    lease = await w.client.get(LEASES, "dlop", namespace=NAMESPACE)
    return str(lease["spec"].get("holderIdentity") or "")


# --- kinds -------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_kind_that_is_installed_later_is_looked_after() -> None:
    async with world(installed=False) as w, w.operating() as operator:
        assert operator.is_synced
        await w.install()
        await w.submit(ring())
        await a_while()
        assert len(await w.pods()) == 3


@virtual_time
async def test_a_kind_that_goes_and_comes_back_is_looked_after_again() -> None:
    async with world() as w, w.operating():
        await w.submit(ring("one"))
        await a_while()
        await w.client.delete(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION["metadata"]["name"])
        await a_while(60)
        await w.install()
        await w.submit(ring("two"))
        await a_while(60)
        assert {"two-worker-0", "two-worker-1", "two-worker-2"} <= set(await w.pod_names())


@virtual_time
async def test_a_kind_that_may_not_be_read_keeps_no_other_waiting_and_is_looked_after_once_it_may() -> None:
    class StarJob(RingJob):
        job_type = JobType(group="example.org", version="v1", kind="StarJob")

    async with world() as w:
        for definition in definitions([StarJob]):
            await w.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await a_while(1)
        await w.client.create(StarJob.job_type.resource, {**ring("star"), "kind": "StarJob"}, namespace=NAMESPACE)
        w.faults.fail_before(FORBIDDEN, match=Match(plural="starjobs"), times=3)
        with capture_logs() as lines:
            async with w.operating(job_class=RingJob, more_classes=(StarJob,)) as operator:
                await w.submit(ring())
                await a_while(2)
                assert (operator.is_synced, await w.pod_names()) == (True, [f"ring-worker-{index}" for index in range(3)])
                assert operator.watch_age_seconds() < 60
                await a_while(300)
                assert "star-worker-2" in await w.pod_names()
        refusals = [line for line in lines if "may not be read" in line["event"]]
        assert [line["kind"] for line in refusals] == ["starjobs.example.org"] * 3


@virtual_time
async def test_a_definition_that_drops_the_record_makes_no_hot_loop_also_where_nobody_may_look_at_it() -> None:
    schema = {
        "type": "object",
        "properties": {"spec": PRESERVED, "status": {"type": "object", "properties": {"conditions": PRESERVED_LIST}}},
    }
    forgetful = copy.deepcopy(DEFINITION)
    forgetful["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    async with world(installed=False) as w:
        await w.client.create(CUSTOM_RESOURCE_DEFINITIONS, forgetful)
        await a_while(1)
        w.faults.fail_before(FORBIDDEN, match=Match(plural=CUSTOM_RESOURCE_DEFINITIONS.plural), times=1000)
        with capture_logs() as lines:
            async with w.operating():
                await w.submit(ring())
                await a_while(60)
        assert len(w.writes()) < 30
        assert any("drops status.dlop" in str(line.get("error")) for line in lines)


@virtual_time
async def test_without_the_right_to_see_definitions_what_is_installed_is_looked_after() -> None:
    async with world() as w:
        w.faults.fail_before(FORBIDDEN, match=Match(plural=CUSTOM_RESOURCE_DEFINITIONS.plural), times=1000)
        async with w.operating():
            await w.submit(ring())
            await a_while()
            assert len(await w.pods()) == 3


@virtual_time
async def test_a_kind_that_nobody_knows_is_refused_at_the_start() -> None:
    async with world() as w:
        with pytest.raises(RegistryError, match=r"ringjobs\.example\.org"):
            Operator(Settings(kinds=("StringJob",)), [RingJob], transport=w.notes)


# --- namespaces ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_only_the_named_namespaces_are_looked_after() -> None:
    async with world() as w:
        for name in ("one", "two", "three"):
            await w.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        async with w.operating(namespaces=("one", "two")):
            for name in ("one", "two", "three"):
                await w.client.create(RINGS, ring(), namespace=name)
            await a_while()
            assert {request.path.split("/")[4] for request in w.writes(plural="pods")} == {"one", "two"}
            assert w.creates("pods") == 6


# --- leadership ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_of_two_operators_only_one_works() -> None:
    async with world() as w:
        standby = NotingTransport(w.cluster.transport())
        async with w.operating(leader_election=True) as first:
            await a_while(1)
            async with w.operating(identity="two", transport=standby, leader_election=True) as second:
                await w.submit(ring())
                await a_while(60)
                assert (first.is_working, second.is_working) == (True, False)
                assert second.is_synced
                assert len(await w.pods()) == 3
                assert not [request for request in standby.requests if request.is_write]


@virtual_time
async def test_a_standby_takes_over_at_once_from_one_that_stops() -> None:
    async with world() as w, w.operating(leader_election=True) as first:
        await a_while(1)
        async with w.operating(identity="two", leader_election=True) as second:
            await a_while(30)
            first.stop()
            await a_while(3)
            assert second.is_working
            assert await holder(w) == "two"
            await w.submit(ring())
            await a_while()
            assert w.creates("pods") == 3


@virtual_time
async def test_a_standby_takes_over_from_one_that_died() -> None:
    async with world() as w:
        async with w.operating(leader_election=True):
            await w.submit(ring("one"))
            await a_while()
            w.faults.fail_before(None, match=Match(plural="leases"), times=10)  # it cannot even release the lease
        w.faults.clear()
        async with w.operating(identity="two", leader_election=True) as second:
            await w.submit(ring("two"))
            await a_while(60)
            assert second.is_working
            assert len(await w.pods()) == 6
            assert w.creates("pods") == 6


@virtual_time
async def test_an_operator_that_loses_the_lease_ends_and_writes_no_more() -> None:
    async with world() as w:
        settings = Settings(leader_election=True)
        operator = Operator(settings, [RingJob], transport=w.notes, clock=w.clock, identity="one")
        running = asyncio.create_task(operator.run())
        await a_while(5)
        w.faults.fail_before(None, match=Match(plural="leases"), times=1000)
        w.faults.delay(60, match=Match(verb="create", plural="pods"), times=1000)
        await w.submit(ring())
        with pytest.raises(LeadershipLostError):
            await running
        w.forget_requests()
        await a_while(120)
        assert w.notes.requests == []


@virtual_time
async def test_work_that_does_not_end_with_leadership_is_ended_with_the_process() -> None:
    async with world() as w:
        exits: list[tuple[int, float]] = []
        loop = asyncio.get_running_loop()

        async def stubborn() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(100)
                raise

        operator = Operator(
            Settings(leader_election=True),
            [RingJob],
            transport=w.notes,
            clock=w.clock,
            identity="one",
            exit_process=lambda code: exits.append((code, loop.time())),
        )
        operator._machinery.controller.run = stubborn  # type: ignore[method-assign]
        running = asyncio.create_task(operator.run())
        await a_while(20)
        began = loop.time()
        w.faults.fail_before(None, match=Match(plural="leases"), times=1000)
        with pytest.raises(LeadershipLostError):
            await running
        ((code, moment),) = exits
        assert code == 1
        assert moment - began < 15


# --- the end ---------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_an_operator_that_is_stopped_finishes_what_it_has_begun() -> None:
    async with world() as w, w.operating() as operator:
        w.faults.delay(5, match=Match(verb="create", plural="services"), times=3)
        await w.submit(ring("one"))
        await asyncio.sleep(1)
        operator.stop()
        await w.submit(ring("two"))
        await a_while(30)
        assert await w.pod_names() == ["one-worker-0", "one-worker-1", "one-worker-2"]
        assert "Created" in await w.conditions("one")
        assert await w.conditions("two") == {}


@virtual_time
async def test_a_standby_that_is_stopped_ends_at_once() -> None:
    async with world() as w, w.operating(leader_election=True):
        await a_while(1)
        async with w.operating(identity="two", leader_election=True) as second:
            second.stop()
            await a_while(1)
            assert await holder(w) == "one"


# --- our own mistakes --------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_mistake_in_a_framework_stays_that_job_s_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RingJob.make_pod

    def broken(self: RingJob, *arguments: object, **more: object) -> JsonObject:
        if self.metadata.name == "broken":
            raise ZeroDivisionError
        return original(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(RingJob, "make_pod", broken)
    with capture_logs() as lines:
        async with world() as w, w.operating() as operator:
            await w.submit(ring("broken"))
            await w.submit(ring("good"))
            await a_while(600)
            await _check_the_damage(w, operator)
    assert {line["exc_info"] for line in lines if line["log_level"] == "error"} == {True}


async def _check_the_damage(w: World, operator: Operator) -> None:
    assert await w.pod_names() == ["good-worker-0", "good-worker-1", "good-worker-2"]
    text = generate_latest(operator.metrics.registry).decode()
    errors = next(line for line in text.splitlines() if line.startswith("controller_runtime_reconcile_errors_total"))
    assert 5 < float(errors.rsplit(" ", 1)[1]) < 40


@virtual_time
async def test_the_metrics_tell_how_jobs_have_fared() -> None:
    async with world() as w, w.operating() as operator:
        await w.submit(ring())
        await a_while(10)
        await w.report("Running", names=("ring-worker-0",))
        await a_while(10)
        await w.report("Running")
        await a_while(10)
        await w.report("Succeeded")
        await a_while(10)
        lines = generate_latest(operator.metrics.registry).decode().splitlines()
    labels = '{kind="ringjobs.example.org",namespace="default"}'
    assert f"dlop_jobs_created_total{labels} 1.0" in lines
    assert f"dlop_jobs_succeeded_total{labels} 1.0" in lines
    assert 'dlop_job_first_pod_running_seconds_count{kind="ringjobs.example.org"} 1.0' in lines
    assert 'dlop_job_all_pods_running_seconds_count{kind="ringjobs.example.org"} 1.0' in lines
    assert 'dlop_job_all_pods_running_seconds_bucket{kind="ringjobs.example.org",le="10.0"} 0.0' in lines
