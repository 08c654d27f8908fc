"""Jobs in the host network get ports that no other job uses, and keep them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.api.crd import build_crds
from dlop.controller.host_ports import HostPortRange, HostPorts
from dlop.controller.kinds import JobKey
from dlop.deploy.apply import apply
from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob
from dlop.job import DLJob
from dlop.kube.cache import CacheChange
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.transport import Request, StreamResponse, Transport
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings, SettingsError
from dlop.testing.faulty_transport import FaultyTransport, Rejected
from dlop.testing.kit import STANDALONE, OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import Evict
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.paddle_manifests import batch_job, batch_role
from tests.sim.operator_env import OperatorEnv, RecordingTransport, operator_env, settle
from tests.sim.pair_job import PairJob, pair
from tests.thorough import examples


def host_job(name: str, **fields: Any) -> JsonObject:
    body = batch_job(name, intranet="Host", worker=batch_role(1), **fields)
    del body["spec"]["ps"]
    return body


def first_port(view: ObservedJob) -> int:
    """The first port of a job, which its record and its pods have."""
    assigned = view.status["dlop"]["hostPorts"]
    ports = [pod["spec"]["containers"][0]["ports"][-1]["containerPort"] for pod in view.pods.values()]
    assert (assigned["count"], ports) == (20, [assigned["first"]])
    return int(assigned["first"])


def host_pair(name: str = "pair", *, workers: int = 2, servers: int = 1, **policy: Any) -> JsonObject:
    """A job of a kind without support of its own."""
    return pair(workers=workers, servers=servers, hostNetwork=True, **policy) | {"metadata": {"name": name, "namespace": "default"}}


def host_ports(view: ObservedJob) -> dict[str, int]:
    """The host port of each pod, which is the port of its service, too."""
    pods = {name: pod for name, pod in view.pods.items() if "deletionTimestamp" not in pod["metadata"]}
    ports = {name: pod["spec"]["containers"][0]["ports"] for name, pod in pods.items()}
    assert [len(each) for each in ports.values()] == [1] * len(ports)
    assert all(view.services[name]["spec"]["ports"][0]["port"] == each[0]["hostPort"] for name, each in ports.items())
    return {name: each[0]["hostPort"] for name, each in ports.items()}


def server_addresses(view: ObservedJob) -> set[str]:
    """The addresses of the servers in the environment of all pods."""
    return {pod["spec"]["containers"][0]["env"][0]["value"] for pod in view.pods.values()}


def are_running(view: ObservedJob, count: int) -> bool:
    return [pod["status"]["phase"] for pod in view.pods.values() if "deletionTimestamp" not in pod["metadata"]] == ["Running"] * count


def with_range(ports: str) -> Settings:
    return STANDALONE.model_copy(update={"host_port_range": ports})


@virtual_time
async def test_jobs_get_different_ports_and_later_jobs_those_of_finished_ones() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        kit.script.when("job-0-*").run().after(60).succeed()
        views = [await kit.submit(host_job(f"job-{number}")) for number in range(3)]
        for view in views:
            await kit.until(view, phase="Running")
        assert sorted(map(first_port, views)) == [36_000, 36_020, 36_040]
        assert len([write for write in kit.writes if write.request.path.endswith("/job-1/status")]) == 2
        freed = first_port(views[0])
        await kit.until(views[0], phase="Succeeded")
        later = await kit.submit(host_job("later"))
        await kit.until(later, phase="Running")
        assert first_port(later) == freed
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_finished_job_gets_no_ports_again_when_it_is_reconciled() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        kit.script.when("finished-*").run().after(60).succeed()
        finished = await kit.submit(host_job("finished"))
        await kit.until(finished, phase="Succeeded")
        await kit.edit(finished, {"metadata": {"annotations": {"note": "keep"}}})
        await settle(60)
        later = await kit.submit(host_job("later"))
        await kit.until(later, phase="Running")
        assert first_port(later) == 36_000


@virtual_time
async def test_assignments_survive_a_restart_of_the_operator() -> None:
    async with OperatorKit(frameworks=[PaddleJob], operator=False) as kit:
        operator = await kit.start_operator()
        old = await kit.submit(host_job("old"))
        await kit.until(old, phase="Running")
        await operator.crash()
        new = await kit.submit(host_job("new"))
        await kit.start_operator()
        await kit.until(new, phase="Running")
        assert (first_port(old), first_port(new)) == (36_000, 36_020)


@virtual_time
async def test_an_operator_takes_over_assignments_of_other_leaders_for_jobs_to_which_it_had_assigned_other_ports() -> None:
    kinds: dict[str, Any] = {"job_class": PairJob, "leader_election": True}
    async with operator_env() as env:
        await apply(env.client, build_crds([PairJob]), report=lambda _: None)
        transport = FaultyTransport(env.cluster.transport())
        async with env.run_operator(identity="one", transport=transport, **kinds) as first:
            await settle(5)
            async with env.run_operator(identity="two", **kinds) as second:
                transport.inject_faults_by(lambda _, request: Rejected(500) if request.path.endswith("/status") else None)
                for name in ("a", "b"):
                    await env.client.create(PairJob.job_type.resource, host_pair(name), namespace="default")
                    await settle(5)
                transport.disconnect_leases()
                await env.client.delete(PairJob.job_type.resource, "a", namespace="default")
                await settle(60)
                assert second.is_leading
                ports = await assigned_ports(env, PairJob, "b")
            transport.inject_faults_by(lambda *_: None)
            transport.reconnect_leases()
            await settle(60)
            assert first.is_leading
            await env.client.create(PairJob.job_type.resource, host_pair("c"), namespace="default")
            await settle(60)
            assert ports == await assigned_ports(env, PairJob, "b")
            assert not ports & await assigned_ports(env, PairJob, "c")


@virtual_time
async def test_a_new_leader_that_has_not_seen_a_job_does_not_assign_its_ports() -> None:
    kinds: dict[str, Any] = {"job_class": PairJob, "extra_classes": (PaddleJob,), "leader_election": True}
    async with operator_env() as env, AsyncExitStack() as leader:
        await apply(env.client, build_crds([PairJob, PaddleJob]), report=lambda _: None)
        await leader.enter_async_context(env.run_operator(identity="one", **kinds))
        await settle(5)
        transport = SilentWatches(env.cluster.transport(), PairJob.job_type.plural)
        async with env.run_operator(identity="two", transport=transport, **kinds) as second:
            transport.silence()
            await env.client.create(PairJob.job_type.resource, host_pair("old"), namespace="default")
            await settle(5)
            await leader.aclose()
            await env.client.create(PaddleJob.job_type.resource, host_job("new"), namespace="default")
            await settle(20)
            assert second.is_leading
            old, new = await assigned_ports(env, PairJob, "old"), await assigned_ports(env, PaddleJob, "new")
            assert (len(old), len(new)) == (3, 20)
            assert not old & new


class SilentWatches(RecordingTransport):
    """The open watches of a resource may deliver no more events."""

    def __init__(self, transport: Transport, plural: str) -> None:
        super().__init__(transport)
        self._plural = plural
        self._term = 0

    def silence(self) -> None:
        self._term += 1

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        async with super().stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
            is_watched = request.path.endswith(f"/{self._plural}")
            yield replace(response, chunks=self._audible(response.chunks, self._term)) if is_watched else response

    async def _audible(self, chunks: AsyncIterator[bytes], term: int) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            if term != self._term:
                await asyncio.Event().wait()
            yield chunk


async def assigned_ports(env: OperatorEnv, kind: type[DLJob], name: str) -> set[int]:
    job = await env.client.get(kind.job_type.resource, name, namespace="default")
    ports = job.get("status", {}).get("dlop", {}).get("hostPorts", {"first": 0, "count": 0})
    return set(range(ports["first"], ports["first"] + ports["count"]))


@virtual_time
async def test_an_assignment_is_stored_before_a_pod_has_it() -> None:
    async with OperatorKit(frameworks=[PaddleJob], operator=False) as kit:
        operator = await kit.start_operator()
        view = await kit.submit(host_job("job"))
        await kit.until(view, reached=lambda view: "hostPorts" in (view.status.get("dlop") or {}))
        assert view.pods == {}
        await operator.crash()
        await kit.start_operator()
        await kit.until(view, phase="Running")
        assert first_port(view) == 36_000


@virtual_time
async def test_a_restarted_job_keeps_its_ports() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        kit.script.when("job-worker-0", times=1).run().after(30).evict()
        view = await kit.submit(host_job("job"))
        await kit.until(view, phase="Running")
        before = first_port(view)
        await kit.until(view, phase="Running", reached=lambda view: view.status["dlop"].get("attempt") == 1)
        assert first_port(view) == before


@virtual_time
async def test_a_job_waits_with_a_reason_until_ports_are_free() -> None:
    async with OperatorKit(frameworks=[PaddleJob], operator=False) as kit:
        await kit.start_operator(settings=with_range("40000-40039"))
        kit.script.when("job-1-*").run().after(300).succeed()
        views = [await kit.submit(host_job(f"job-{number}")) for number in range(2)]
        for view in views:
            await kit.until(view, phase="Running")
        waiting = await kit.submit(host_job("waiting"))
        await kit.until(waiting, reached=lambda view: view.condition("Blocked") is not None)
        condition = waiting.condition("Blocked")
        assert condition is not None
        assert condition["reason"] == "NoHostPorts"
        assert "start the operator with a larger --host-port-range" in condition["message"]
        assert waiting.pods == {}
        await kit.until(views[1], phase="Succeeded")
        await kit.until(waiting, phase="Running", within_seconds=60)
        assert first_port(waiting) == 40_020


@virtual_time
async def test_the_addresses_of_the_peers_have_the_assigned_port() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        for name in ("first", "second"):
            view = await kit.submit(host_job(name))
            await kit.until(view, reached=lambda view: "PADDLE_PORT" in (view.children("configmaps").get(view.name, {}).get("data") or {}))
        data = view.children("configmaps")["second"]["data"]
        assert (data["PADDLE_PORT"], data["PADDLE_TRAINER_ENDPOINTS"].rpartition(":")[2]) == ("36020", "36020")


@virtual_time
async def test_a_deleted_job_frees_its_ports() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        first = await kit.submit(host_job("first"))
        await kit.until(first, phase="Running")
        await kit.client.delete(PaddleJob.job_type.resource, "first", namespace="default")
        await kit.until(first, reached=lambda view: not view.exists)
        second = await kit.submit(host_job("second"))
        await kit.until(second, phase="Running")
        assert first_port(second) == 36_000


# --- kinds without support of their own ----------------------------------------------------------------------------------


@virtual_time
async def test_every_replica_of_every_job_has_its_own_port_and_knows_those_of_its_peers() -> None:
    async with OperatorKit([PairJob]) as kit:
        views = [await kit.submit(host_pair(name)) for name in ("one", "two")]
        for view in views:
            await kit.until(view, phase="Running")
        one, two = map(host_ports, views)
        assert sorted([*one.values(), *two.values()]) == list(range(36_000, 36_006))
        for view, ports in zip(views, (one, two), strict=True):
            (servers,) = server_addresses(view)
            assert servers.endswith(f":{ports[f'{view.name}-server-0']}")
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_replaced_pods_keep_their_ports_across_a_crash_of_the_operator() -> None:
    async with OperatorKit([PairJob], operator=False) as kit:
        operator = await kit.start_operator()
        view = await kit.submit(host_pair())
        await kit.until(view, phase="Running")
        before = host_ports(view)
        await operator.crash()
        await kit.kubelet.perform("default/pair-worker-1", Evict())
        await kit.start_operator()
        other = await kit.submit(host_pair("other"))
        await kit.until(other, phase="Running")
        await kit.until(view, reached=lambda view: view.status["dlop"].get("disruptions") == {"Worker": 1} and are_running(view, 3))
        assert host_ports(view) == before
        assert not {*before.values()} & {*host_ports(other).values()}


@virtual_time
async def test_a_job_that_grows_keeps_its_ports_if_the_next_ones_are_free() -> None:
    async with OperatorKit([PairJob]) as kit:
        view = await kit.submit(host_pair())
        await kit.until(view, phase="Running")
        before = host_ports(view)
        await kit.edit(view, {"spec": {"replicaSpecs": {"Worker": {"replicas": 4}}}})
        await kit.until(view, reached=lambda view: are_running(view, 5))
        assert host_ports(view) == before | {"pair-worker-2": 36_003, "pair-worker-3": 36_004}
        assert view.status["dlop"].get("attempt", 0) == 0
        later = await kit.submit(host_pair("later"))
        await kit.until(later, phase="Running")
        assert min(host_ports(later).values()) == 36_005
        await kit.edit(view, {"spec": {"replicaSpecs": {"Worker": {"replicas": 1}}}})
        await kit.until(view, reached=lambda view: are_running(view, 2))
        assert host_ports(view) == {"pair-server-0": 36_000, "pair-worker-0": 36_001}
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_job_that_grows_into_the_ports_of_another_restarts_with_new_ports() -> None:
    async with OperatorKit([PairJob]) as kit:
        view, other = [await kit.submit(host_pair(name)) for name in ("pair", "other")]
        for each in (view, other):
            await kit.until(each, phase="Running")
        taken = host_ports(other)
        first, second = (view, other) if min(host_ports(view).values()) < min(taken.values()) else (other, view)
        kept = host_ports(second)
        await kit.edit(first, {"spec": {"replicaSpecs": {"Worker": {"replicas": 3}}}})
        await kit.until(first, reached=lambda view: are_running(view, 4) and view.status["dlop"].get("attempt") == 1)
        await settle(30)
        assert sorted(host_ports(first).values()) == list(range(36_006, 36_010))
        assert {servers.rpartition(":")[2] for servers in server_addresses(first)} == {"36006"}
        assert host_ports(second) == kept
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_roles_that_get_other_ports_when_a_role_before_them_grows_restart_with_the_job() -> None:
    async with OperatorKit([PairJob]) as kit:
        view = await kit.submit(host_pair())
        await kit.until(view, phase="Running")
        await kit.edit(view, {"spec": {"replicaSpecs": {"Server": {"replicas": 2}}}})
        await kit.until(view, reached=lambda view: are_running(view, 4) and view.status["dlop"].get("attempt") == 1)
        names = ("pair-server-0", "pair-server-1", "pair-worker-0", "pair-worker-1")
        assert host_ports(view) == dict(zip(names, range(36_000, 36_004), strict=True))
        assert {servers.count(":") for servers in server_addresses(view)} == {2}


@virtual_time
async def test_a_job_with_more_pods_than_ports_waits_and_disturbs_no_other_job() -> None:
    async with OperatorKit([PairJob], operator=False) as kit:
        await kit.start_operator(settings=with_range("40000-40003"))
        large = await kit.submit(host_pair("large", workers=9))
        small = await kit.submit(host_pair("small"))
        await kit.until(small, phase="Running")
        await kit.until(large, reached=lambda view: view.condition("Blocked") is not None)
        condition = large.condition("Blocked")
        assert condition is not None
        assert (condition["reason"], large.pods) == ("NoHostPorts", {})
        assert "the job needs 10 consecutive ports of the host network" in condition["message"]
        await kit.edit(large, {"spec": {"replicaSpecs": {"Worker": {"replicas": 0}}}})
        await kit.until(large, reached=lambda view: are_running(view, 1))
        assert host_ports(large) == {"large-server-0": 40_003}


@virtual_time
async def test_a_running_job_that_waits_for_more_ports_keeps_running_and_restarts_when_it_gets_them() -> None:
    async with OperatorKit([PairJob], operator=False) as kit:
        await kit.start_operator(settings=with_range("40000-40007"))
        kit.script.when("other-*").run().after(300).succeed()
        view = await kit.submit(host_pair())
        await kit.until(view, phase="Running")
        other = await kit.submit(host_pair("other"))
        await kit.until(other, phase="Running")
        before = host_ports(view)
        await kit.edit(view, {"spec": {"replicaSpecs": {"Server": {"replicas": 3}}}})
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None)
        await settle(60)
        assert host_ports(view) == before
        assert are_running(view, 3)
        await kit.until(other, phase="Succeeded")
        await kit.until(view, reached=lambda view: are_running(view, 5) and view.status["dlop"].get("attempt") == 1)
        await settle(30)
        assert len({*host_ports(view).values()}) == 5
        assert view.status["dlop"].get("disruptions", {}) == {}
        assert await kit.writes_when_idle() == []


def test_a_status_that_is_older_than_an_assignment_does_not_free_its_ports() -> None:
    ports = HostPorts(HostPortRange(40_000, 40_009), on_free=lambda _: None)
    key, other = (JobKey(PairJob.job_type.resource, "default", name) for name in ("pair", "other"))

    def stored(count: int) -> CacheChange[CustomObject]:
        status = {"dlop": {"hostPorts": {"first": 40_000, "count": count}}}
        metadata = ObjectMeta(name="pair", namespace="default", uid="1")
        return CacheChange(None, CustomObject(metadata=metadata, status=msgspec.Raw(msgspec.json.encode(status))))

    assert ports.assign("1", key, 2) == 40_000
    ports.on_job(stored(2))
    assert ports.assign("1", key, 5) == 40_000
    ports.on_job(stored(2))
    assert ports.assign("2", other, 3) == 40_005
    ports.on_job(stored(5))
    ports.on_job(stored(2))
    assert ports.assign("3", other, 3) == 40_002


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=30))
def test_no_sequence_of_assignments_growth_and_ends_gives_two_jobs_the_same_port(steps: list[tuple[int, int]]) -> None:
    """Each step is a job and the number of ports that it needs then; 0 ends it."""
    ports = HostPorts(HostPortRange(40_000, 40_014), on_free=lambda _: None)
    assigned: dict[int, range] = {}
    for job, count in steps:
        metadata = ObjectMeta(name=str(job), namespace="default", uid=str(job))
        stored = CustomObject(metadata=metadata)
        first = ports.assign(str(job), JobKey(PairJob.job_type.resource, "default", str(job)), count) if count else None
        if not count:
            ports.on_job(CacheChange(stored, None))
            assigned.pop(job, None)
        elif first is not None:
            assigned[job] = range(first, first + max(count, len(assigned.get(job, ()))))
    used = [port for each in assigned.values() for port in each]
    assert len(used) == len(set(used))
    assert set(used) <= set(range(40_000, 40_015))


@pytest.mark.parametrize("value", ["36000", "a-b", "40000-30000", "1-70000", "0-10"])
def test_a_wrong_range_is_rejected(value: str) -> None:
    with pytest.raises(SettingsError, match=r"--host-port-range: invalid value .* must be two ports, like 36000-55999"):
        Settings.load({"host_port_range": value}, {})


@virtual_time
async def test_a_job_that_is_suspended_from_the_start_takes_no_ports_until_it_is_resumed() -> None:
    async with OperatorKit([PairJob], operator=False) as kit:
        await kit.start_operator(settings=with_range("40000-40002"))
        kit.script.when("other-*").run().after(300).succeed()
        queued = await kit.submit(host_pair("queued", suspend=True))
        await kit.until(queued, phase="Suspended")
        other = await kit.submit(host_pair("other"))
        await kit.until(other, phase="Running")
        await kit.edit(queued, {"spec": {"runPolicy": {"suspend": False}}})
        await kit.until(queued, reached=lambda view: view.condition("Blocked") is not None)
        await kit.until(other, phase="Succeeded")
        await kit.until(queued, phase="Running")
        assert sorted(host_ports(queued).values()) == [40_000, 40_001, 40_002]


@virtual_time
async def test_a_suspended_job_keeps_the_ports_that_it_has() -> None:
    async with OperatorKit([PairJob], operator=False) as kit:
        await kit.start_operator(settings=with_range("40000-40005"))
        view = await kit.submit(host_pair())
        await kit.until(view, phase="Running")
        before = host_ports(view)
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(view, phase="Suspended")
        other = await kit.submit(host_pair("other"))
        await kit.until(other, phase="Running")
        assert not {*before.values()} & {*host_ports(other).values()}
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": False}}})
        await kit.until(view, phase="Running")
        assert host_ports(view) == before


@virtual_time
async def test_a_running_job_restarts_when_it_moves_into_the_host_network_and_out_of_it() -> None:
    async with OperatorKit([PairJob]) as kit:
        view = await kit.submit(pair(workers=1, servers=1))
        await kit.until(view, phase="Running")
        for is_in_host_network, servers in ((True, ":36000"), (False, ":7000")):
            await kit.edit(view, {"spec": {"runPolicy": {"hostNetwork": is_in_host_network}}})
            await kit.until(view, phase="Restarting")
            await kit.until(view, phase="Running", reached=lambda view: are_running(view, 2))
            assert {pod["spec"].get("hostNetwork", False) for pod in view.pods.values()} == {is_in_host_network}
            assert [address.removeprefix("pair-server-0") for address in server_addresses(view)] == [servers]
            assert await kit.writes_when_idle() == []
