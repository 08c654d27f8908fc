"""Services and pods of a job are created exactly once, services first, even if requests or watches fail."""

from __future__ import annotations

import asyncio

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.resources import PODS, SERVICES
from dlop.kube.transport import Request, Response
from dlop.operator.operator import Operator
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_JOBS, RecordingTransport, operator_env, ring, settle


def pass_count(operator: Operator) -> int:
    labels = {"controller": "ringjobs.example.org", "result": "success"}
    value = operator.metrics.registry.get_sample_value("controller_runtime_reconcile_total", labels)
    return int(value or 0)


RING_NAMES = ["ring-worker-0", "ring-worker-1", "ring-worker-2"]


@virtual_time
async def test_services_and_then_pods_are_created_once_each() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        assert await env.pod_names() == RING_NAMES
        assert await env.service_names() == RING_NAMES
        posts = [request.path.rsplit("/", 1)[1] for request in env.writes(method="POST")]
        assert posts == ["services"] * 3 + ["pods"] * 3
        assert "Created" in await env.conditions()


@virtual_time
async def test_watch_events_of_own_writes_cause_no_further_passes() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        await env.submit(ring())
        await settle()
        await env.set_pod_phases("Running")
        await settle()
        assert "Running" in await env.conditions()
        assert len(env.writes(method="PATCH")) == 2
        assert pass_count(operator) == 2


@virtual_time
async def test_a_status_modified_by_a_user_right_after_a_status_write_is_restored() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        await env.client.patch(RING_JOBS, "ring", {"status": {"conditions": None}}, namespace=NAMESPACE, subresource="status")
        await settle()
        assert "Created" in await env.conditions()


@virtual_time
async def test_a_pod_that_fails_while_others_are_created_is_restarted() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.delay(3.0, match=RequestMatch(verb="create", plural="pods"), times=3)
        await env.submit(ring())
        await settle(3.5)
        await env.set_pod_phase("Running", "ring-worker-0")
        await env.set_pod_phase("Failed", "ring-worker-0", exit_code=1)
        await settle(30)
        assert (await env.status())["dlop"]["restarts"] == {"Worker": 1}


@virtual_time
async def test_the_job_is_the_controller_of_its_pods() -> None:
    async with operator_env() as env, env.run_operator():
        job = await env.submit(ring())
        await settle()
        for pod in await env.pods():
            (owner,) = pod["metadata"]["ownerReferences"]
            assert owner["uid"] == job["metadata"]["uid"]
            assert owner["controller"] is True


@virtual_time
async def test_a_thousand_pods_are_created_once_each() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring(workers=1000))
        await settle()
        assert len(await env.pods()) == 1000
        assert env.create_count("pods") == 1000
        assert env.create_count("services") == 1000


@virtual_time
async def test_changes_of_the_job_while_pods_are_created_cause_no_duplicates() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.delay(0.5, match=RequestMatch(verb="create", plural="pods"), times=100)
        await env.submit(ring(workers=20))
        for number in range(50):
            await env.client.patch(RING_JOBS, "ring", {"metadata": {"labels": {"number": str(number)}}}, namespace=NAMESPACE)
            await asyncio.sleep(0.05)
        await settle(30)
        assert env.create_count("pods") == 20
        assert env.create_count("services") == 20


@virtual_time
async def test_delayed_watch_events_cause_no_duplicates() -> None:
    async with operator_env() as env, env.run_operator():
        hold = env.faults.hold_watches(match=RequestMatch(plural="pods"))
        await env.submit(ring())
        await settle(5)
        await env.client.patch(RING_JOBS, "ring", {"metadata": {"labels": {"a": "b"}}}, namespace=NAMESPACE)
        await settle(2)
        hold.release()
        await settle(60)
        assert env.create_count("pods") == 3
        assert await env.pod_names() == RING_NAMES


@virtual_time
async def test_a_create_whose_response_is_lost_is_not_repeated() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.fail_after(None, match=RequestMatch(verb="create", plural="pods", name=None), times=1)
        await env.submit(ring())
        await settle(30)
        assert await env.pod_names() == RING_NAMES
        assert env.create_count("pods") == 3


@virtual_time
async def test_a_create_whose_response_is_lost_while_watch_events_are_delayed_is_not_repeated() -> None:
    async with operator_env() as env, env.run_operator():
        hold = env.faults.hold_watches(match=RequestMatch(plural="pods"))
        env.faults.fail_after(None, match=RequestMatch(verb="create", plural="pods"), times=1)
        await env.submit(ring(workers=1))
        await settle(8)
        hold.release()
        await settle(30)
        assert await env.pod_names() == RING_NAMES[:1]
        assert env.create_count("pods") == 1


@virtual_time
async def test_a_create_that_was_never_received_is_repeated() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.fail_before(None, match=RequestMatch(verb="create", plural="pods"), times=1)
        await env.submit(ring())
        await settle(30)
        assert await env.pod_names() == RING_NAMES
        assert env.create_count("pods") == 4


@virtual_time
async def test_server_errors_are_retried() -> None:
    async with operator_env() as env, env.run_operator():
        error = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "boom"}
        env.faults.fail_before(error, match=RequestMatch(verb="create", plural="services"), times=3)
        env.faults.fail_before(error, match=RequestMatch(verb="create", plural="pods"), times=3)
        env.faults.fail_before(error, match=RequestMatch(verb="patch", plural="ringjobs"), times=3)
        await env.submit(ring())
        await settle(30)
        assert await env.pod_names() == RING_NAMES


@virtual_time
async def test_broken_watches_lose_no_changes() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring("one"))
        await settle()
        env.faults.drop_watches()
        await env.submit(ring("two"))
        env.faults.compact()
        await settle(60)
        assert len(await env.pods()) == 6
        assert env.create_count("pods") == 6


@virtual_time
async def test_a_new_operator_completes_the_creates_of_a_killed_one() -> None:
    async with operator_env() as env:
        async with env.run_operator():
            env.faults.delay(1.0, match=RequestMatch(verb="create", plural="pods"), times=100)
            await env.submit(ring(workers=50))
            await asyncio.sleep(1.5)
        pods_before = len(await env.pods())
        env.faults.clear()
        async with env.run_operator(identity="two"):
            await settle(30)
            assert 0 < pods_before < 50
            assert len(await env.pods()) == 50
            assert len(await env.service_names()) == 50


@virtual_time
async def test_a_job_created_before_the_operator_started_is_reconciled() -> None:
    async with operator_env() as env:
        await env.submit(ring())
        async with env.run_operator():
            await settle()
            assert await env.pod_names() == RING_NAMES


@virtual_time
async def test_a_pod_deleted_by_a_user_is_replaced() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        await env.set_pod_phases("Running")
        await settle()
        before = (await env.client.get(PODS, "ring-worker-1", namespace=NAMESPACE))["metadata"]["uid"]
        await env.client.delete(PODS, "ring-worker-1", namespace=NAMESPACE, grace_seconds=0)
        await settle(30)
        after = (await env.client.get(PODS, "ring-worker-1", namespace=NAMESPACE))["metadata"]["uid"]
        assert before != after
        assert env.create_count("pods") == 4


@virtual_time
async def test_a_service_deleted_by_a_user_is_created_again() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        await env.client.delete(SERVICES, "ring-worker-1", namespace=NAMESPACE)
        await settle()
        assert await env.service_names() == RING_NAMES


@virtual_time
async def test_a_pod_created_and_deleted_while_the_watch_was_broken_is_created_again() -> None:
    async with operator_env() as env, env.run_operator():
        hold = env.faults.hold_watches(match=RequestMatch(plural="pods"))
        await env.submit(ring())
        await settle(2)
        await env.client.delete(PODS, "ring-worker-1", namespace=NAMESPACE, grace_seconds=0)
        env.faults.drop_watches(match=RequestMatch(plural="pods"))
        env.faults.compact()
        hold.release()
        await settle(60)
        assert await env.pod_names() == RING_NAMES
        assert env.create_count("pods") == 4


class MeasuringTransport(RecordingTransport):
    """Measures the size of the creates in flight."""

    bytes_in_flight = 0
    max_bytes_in_flight = 0

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        size = len(request.body or b"") if request.method == "POST" else 0
        self.bytes_in_flight += size
        self.max_bytes_in_flight = max(self.max_bytes_in_flight, self.bytes_in_flight)
        try:
            return await super().send(request, timeout_seconds=timeout_seconds)
        finally:
            self.bytes_in_flight -= size


@virtual_time
async def test_the_creates_in_flight_of_a_job_with_large_pods_are_limited_in_bytes() -> None:
    async with operator_env() as env:
        transport = MeasuringTransport(env.cluster.transport())
        env.faults.delay(1.0, match=RequestMatch(verb="create", plural="pods"), times=100)
        job = ring(workers=100)
        (container,) = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        container["env"] = [{"name": "PEERS", "value": "x" * 200_000}]
        async with env.run_operator(transport=transport):
            await env.submit(job)
            await settle(60)
        assert len(await env.pods()) == 100
        # Without a limit there are 64 creates in flight. All of the first eight creates end at the same time, and each adds another one.
        assert transport.max_bytes_in_flight < 4_000_000
