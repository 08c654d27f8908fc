"""Jobs in the host network get ports that no other job uses, and keep them."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings, SettingsError
from dlop.testing.kit import STANDALONE, OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.paddle_manifests import batch_job, batch_role


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


@pytest.mark.parametrize("value", ["36000", "a-b", "40000-30000", "1-70000", "0-10"])
def test_a_wrong_range_is_rejected(value: str) -> None:
    with pytest.raises(SettingsError, match=r"--host-port-range: invalid value .* must be two ports, like 36000-55999"):
        Settings.load({"host_port_range": value}, {})
