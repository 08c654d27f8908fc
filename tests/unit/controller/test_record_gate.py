"""A record of another operator instance is used once the pod cache is as fresh as the one it is based on."""

from __future__ import annotations

import asyncio

import msgspec

from dlop.controller.record_gate import RecordGate
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.read_your_writes import ReadYourWrites
from dlop.kube.resources import PODS, Resource


class PodCache:
    """A cache with a resource version and no content."""

    def __init__(self, version: int) -> None:
        self.resource_version = version
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def wait_for_version(self, resource_version: int) -> asyncio.Future[None]:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((resource_version, waiter))
        return waiter

    def advance(self, version: int) -> None:
        self.resource_version = version
        for awaited, waiter in self._waiters:
            if awaited <= version:
                waiter.set_result(None)


async def fail_on_refresh(_: Resource) -> None:
    raise AssertionError("unexpected refresh")


def make_record_gate(pods: PodCache) -> RecordGate:
    return RecordGate(ReadYourWrites({PODS: pods}, refresh=fail_on_refresh))


def job(version: int, status: str) -> CustomObject:
    metadata = ObjectMeta(name="ring", namespace="default", uid="u", resource_version=str(version))
    return CustomObject(metadata=metadata, status=msgspec.Raw(status.encode()))


def fail_on_wake() -> None:
    raise AssertionError("unexpected wake-up")


RECORD = '{"dlop":{"attempt":1}}'


async def test_a_record_newer_than_the_pod_cache_waits_for_it() -> None:
    wake_ups: list[str] = []
    record_gate = make_record_gate(pods := PodCache(10))
    assert not record_gate.ready(job(12, RECORD), wake=lambda: wake_ups.append("wake"))
    pods.advance(12)
    await asyncio.sleep(0)
    assert wake_ups == ["wake"]
    assert record_gate.ready(job(12, RECORD), wake=fail_on_wake)


async def test_a_record_waits_for_the_pod_version_that_it_is_based_on_and_not_for_that_of_the_job() -> None:
    record = '{"dlop":{"attempt":1,"podsVersion":"12"}}'
    wake_ups: list[str] = []
    record_gate = make_record_gate(pods := PodCache(10))
    # The versions of jobs are those of another etcd, once higher and once lower.
    for version in (500, 5):
        assert not record_gate.ready(job(version, record), wake=lambda: wake_ups.append("wake"))
    pods.advance(12)
    await asyncio.sleep(0)
    assert wake_ups == ["wake"]
    assert record_gate.ready(job(500, record), wake=fail_on_wake)


async def test_a_record_with_a_malformed_pod_version_does_not_wait() -> None:
    assert make_record_gate(PodCache(10)).ready(job(12, '{"dlop":{"podsVersion":"soon"}}'), wake=fail_on_wake)


async def test_a_record_older_than_the_pod_cache_is_used() -> None:
    assert make_record_gate(PodCache(10)).ready(job(10, RECORD), wake=fail_on_wake)


async def test_a_job_without_a_record_does_not_wait() -> None:
    assert make_record_gate(PodCache(10)).ready(job(12, '{"conditions":[]}'), wake=fail_on_wake)


async def test_other_changes_of_the_status_do_not_wait() -> None:
    record_gate = make_record_gate(PodCache(10))
    assert record_gate.ready(job(9, RECORD), wake=fail_on_wake)
    assert record_gate.ready(job(12, '{"conditions":[],"dlop":{"attempt":1}}'), wake=fail_on_wake)
    assert record_gate.ready(job(13, "[]"), wake=fail_on_wake)


async def test_a_record_that_the_operator_wrote_itself_does_not_wait() -> None:
    record_gate = make_record_gate(PodCache(10))
    record_gate.record_write("u", b'{"metadata":{},"status":{"dlop": {"attempt": 1}}}')
    assert record_gate.ready(job(12, RECORD), wake=fail_on_wake)


async def test_a_new_resource_version_with_a_known_record_does_not_wait() -> None:
    record_gate = make_record_gate(PodCache(10))
    assert record_gate.ready(job(9, RECORD), wake=fail_on_wake)
    assert record_gate.ready(job(12, RECORD), wake=fail_on_wake)


async def test_a_deleted_job_is_forgotten() -> None:
    record_gate = make_record_gate(PodCache(10))
    assert record_gate.ready(job(9, RECORD), wake=fail_on_wake)
    assert len(record_gate) == 1
    record_gate.forget("u")
    assert len(record_gate) == 0


async def test_a_refreshed_cache_is_used_whatever_its_version() -> None:
    async def refresh(_: Resource) -> None:
        """etcd was restored from a backup, so its versions are smaller than before."""

    woken = asyncio.Event()
    gate = ReadYourWrites({PODS: PodCache(10)}, refresh=refresh, refresh_after_seconds=0.0)
    record_gate = RecordGate(gate)
    running = asyncio.create_task(gate.run())
    try:
        assert not record_gate.ready(job(12, RECORD), wake=woken.set)
        await woken.wait()
        assert record_gate.ready(job(12, RECORD), wake=fail_on_wake)
    finally:
        running.cancel()
