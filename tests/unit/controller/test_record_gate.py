"""A record of somebody else's making is looked at when the cache of pods is as new."""

from __future__ import annotations

import asyncio

import msgspec

from dlop.controller.record_gate import RecordGate
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.read_your_writes import ReadYourWrites
from dlop.kube.resources import PODS, Resource


class Pods:
    """A cache of pods that shows a version."""

    def __init__(self, version: int) -> None:
        self.resource_version = version
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def reached(self, resource_version: int) -> asyncio.Future[None]:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((resource_version, waiter))
        return waiter

    def show(self, version: int) -> None:
        self.resource_version = version
        for wanted, waiter in self._waiters:
            if wanted <= version:
                waiter.set_result(None)


async def _never(_: Resource) -> None:
    raise AssertionError("nothing has to be read anew")


def made(pods: Pods) -> RecordGate:
    return RecordGate(ReadYourWrites({PODS: pods}, refresh=_never))


def job(version: int, status: str) -> CustomObject:
    metadata = ObjectMeta(name="ring", namespace="default", uid="u", resource_version=str(version))
    return CustomObject(metadata=metadata, status=msgspec.Raw(status.encode()))


def nobody() -> None:
    raise AssertionError("nobody waits")


RECORD = '{"dlop":{"attempt":1}}'


async def test_a_status_that_is_newer_than_the_pods_waits_until_they_are_seen() -> None:
    woken: list[str] = []
    hindsight = made(pods := Pods(10))
    assert not hindsight.ready(job(12, RECORD), wake=lambda: woken.append("now"))
    pods.show(12)
    await asyncio.sleep(0)
    assert woken == ["now"]
    assert hindsight.ready(job(12, RECORD), wake=nobody)


async def test_a_status_that_is_older_than_the_pods_is_believed() -> None:
    assert made(Pods(10)).ready(job(10, RECORD), wake=nobody)


async def test_a_job_without_a_record_tells_nothing_of_pods() -> None:
    assert made(Pods(10)).ready(job(12, '{"conditions":[]}'), wake=nobody)


async def test_whatever_else_is_changed_beside_a_known_record_is_no_news() -> None:
    hindsight = made(Pods(10))
    assert hindsight.ready(job(9, RECORD), wake=nobody)
    assert hindsight.ready(job(12, '{"conditions":[],"dlop":{"attempt":1}}'), wake=nobody)
    assert hindsight.ready(job(13, "[]"), wake=nobody)


async def test_what_the_operator_has_written_itself_is_no_news() -> None:
    hindsight = made(Pods(10))
    hindsight.wrote("u", b'{"metadata":{},"status":{"dlop": {"attempt": 1}}}')
    assert hindsight.ready(job(12, RECORD), wake=nobody)


async def test_a_changed_spec_beside_a_known_status_is_no_news() -> None:
    hindsight = made(Pods(10))
    assert hindsight.ready(job(9, RECORD), wake=nobody)
    assert hindsight.ready(job(12, RECORD), wake=nobody)


async def test_nothing_is_kept_of_a_job_that_is_gone() -> None:
    hindsight = made(Pods(10))
    assert hindsight.ready(job(9, RECORD), wake=nobody)
    assert len(hindsight) == 1
    hindsight.forget("u")
    assert len(hindsight) == 0


async def test_a_cache_that_was_read_anew_is_believed_whatever_its_version_says() -> None:
    async def refresh(_: Resource) -> None:
        """The server's store was set back: its versions are smaller than before."""

    woken = asyncio.Event()
    gate = ReadYourWrites({PODS: Pods(10)}, refresh=refresh, patience_seconds=0.0)
    hindsight = RecordGate(gate)
    running = asyncio.create_task(gate.run())
    try:
        assert not hindsight.ready(job(12, RECORD), wake=woken.set)
        await woken.wait()
        assert hindsight.ready(job(12, RECORD), wake=nobody)
    finally:
        running.cancel()
