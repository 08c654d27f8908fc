"""The logs of a job's replicas, on the embedded and on the real API server, with a kubelet behind them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.crd import definitions
from dlop.cli.main import main
from dlop.deploy.apply import apply
from dlop.embedded.kubelet.logs import STDOUT, ContainerLog
from dlop.embedded.kubelet.server.backend import ContainerName
from dlop.frameworks.registry import Registry
from dlop.jobs.errors import JobsError
from dlop.jobs.log_lines import LogLine
from dlop.jobs.log_stream import follow_logs
from dlop.jobs.logs import LogChoice, read_logs
from dlop.jobs.lookup import JobHandle, find_job, read_job_reference
from dlop.kube.client import Client
from dlop.kube.errors import TransportError
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, StreamResponse, Transport
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_world import World
from tests.sim.job_world import FRAMEWORK, CrewJob, crew

RUNNING = {"running": {"startedAt": None}}


@dataclass
class Crew:
    """A job with a chief and two workers, whose pods and status are written here, as an operator and a kubelet do."""

    world: World
    found: JobHandle
    restarts: dict[str, int] = field(default_factory=dict)

    async def pod(self, name: str) -> None:
        """A pod that waits to be started."""
        metadata = {
            "name": name,
            "labels": {JOB_UID_LABEL: self.found.uid},
            "ownerReferences": [self.found.job().owner_reference()],
        }
        containers = [{"name": "main", "image": "any"}]
        spec = {"nodeName": self.world.node, "terminationGracePeriodSeconds": 0, "containers": containers}
        await self.world.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace=self.world.namespace
        )
        self.restarts[name] = 0
        await self.tell(name, {"waiting": {"reason": "ContainerCreating"}})

    async def run(self, name: str, *lines: str, run: int = 0) -> ContainerLog:
        """Let its container run, for the first time or again, and write something."""
        log = self.world.pods.begin(ContainerName(self.world.namespace, name, "main"), run)
        self.restarts[name] = run
        write(log, *lines)
        await self.tell(name, RUNNING)
        return log

    async def end(self, name: str, log: ContainerLog, exit_code: int = 0) -> None:
        """Let it end for good."""
        log.end()
        ended = {"exitCode": exit_code, "containerID": "dlop://now", "startedAt": None, "finishedAt": None}
        await self.tell(name, {"terminated": ended}, phase="Failed" if exit_code else "Succeeded")

    async def tell(self, name: str, state: JsonObject, *, phase: str = "Running") -> None:
        before = {"exitCode": 1, "containerID": "dlop://before", "startedAt": None, "finishedAt": None}
        status: JsonObject = {
            "name": "main",
            "image": "any",
            "imageID": "",
            "ready": False,
            "restartCount": self.restarts[name],
            "state": state,
            "containerID": "dlop://now",
        }
        if self.restarts[name]:
            status["lastState"] = {"terminated": before}
        await self.world.tell(name, [status], phase="Pending" if "waiting" in state else phase)

    async def is_over(self) -> None:
        status = {"dlop": {"phase": "Succeeded"}, "conditions": []}
        resource = CrewJob.job_type.resource
        await self.world.client.patch(resource, "crew", {"status": status}, namespace=self.world.namespace, subresource="status")

    async def read(self, choice: LogChoice = LogChoice()) -> list[str]:  # noqa: B008
        async with aclosing(read_logs(self.world.client, self.found, choice)) as lines:
            return [told(line) async for line in lines]


def write(log: ContainerLog, *lines: str) -> None:
    for line in lines:
        log.write(f"{line}\n".encode(), STDOUT)


def told(line: LogLine) -> str:
    return f"{line.role} {line.index} {'note' if line.is_note else line.run}: {line.text}"


@pytest.fixture
async def crew_job(kubelet_world: World) -> Crew:
    await apply(kubelet_world.client, definitions([CrewJob]), say=lambda _: None)
    await kubelet_world.client.create(CrewJob.job_type.resource, crew("crew"), namespace=kubelet_world.namespace)
    reference = read_job_reference("crew", Registry([CrewJob]))
    found = await find_job(kubelet_world.client, reference, namespace=kubelet_world.namespace)
    job = Crew(kubelet_world, found)
    for name in ("crew-chief-0", "crew-worker-0", "crew-worker-1"):
        await job.pod(name)
    return job


async def test_all_replicas_are_read_in_order_and_across_restarts(crew_job: Crew) -> None:
    await crew_job.run("crew-worker-0", "w0 one", "w0 two")
    await crew_job.run("crew-chief-0", "c0 first run")
    await crew_job.run("crew-chief-0", "c0 second run", run=1)
    assert await crew_job.read() == [
        "Chief 0 0: c0 first run",
        "Chief 0 1: c0 second run",
        "Worker 0 0: w0 one",
        "Worker 0 0: w0 two",
        "Worker 1 note: it has not started yet (ContainerCreating)",
    ]
    await crew_job.world.client.delete(PODS, "crew-worker-1", namespace=crew_job.world.namespace)
    assert (await crew_job.read())[-1] == "Worker 1 note: it has no pod, and so no log"


async def test_only_what_is_asked_for_is_read(crew_job: Crew) -> None:
    await crew_job.run("crew-chief-0", "before", run=0)
    await crew_job.run("crew-chief-0", "c0 one", "c0 two", "c0 three", run=1)
    await crew_job.run("crew-worker-0", "w0")
    await crew_job.run("crew-worker-1", "w1")
    assert await crew_job.read(LogChoice(role="worker")) == ["Worker 0 0: w0", "Worker 1 0: w1"]
    assert await crew_job.read(LogChoice(role="Worker", index=1)) == ["Worker 1 0: w1"]
    assert await crew_job.read(LogChoice(role="chief", tail_lines=1)) == ["Chief 0 0: before", "Chief 0 1: c0 three"]
    assert await crew_job.read(LogChoice(role="chief", previous=True)) == ["Chief 0 0: before"]
    assert (await crew_job.read(LogChoice(role="worker", index=0, previous=True)))[0].startswith("Worker 0 note: its log cannot be read: ")
    with pytest.raises(JobsError, match=r"CrewJob crew has no role pilot; a crew.dlop.dev/v1 CrewJob has Chief, Worker\."):
        await crew_job.read(LogChoice(role="pilot"))
    with pytest.raises(JobsError, match="CrewJob crew has no such replica"):
        await crew_job.read(LogChoice(index=9))


async def test_a_container_that_waits_to_be_restarted_shows_its_last_run_once(crew_job: Crew) -> None:
    log = await crew_job.run("crew-chief-0", "it broke")
    log.end()
    crew_job.restarts["crew-chief-0"] = 1
    await crew_job.tell("crew-chief-0", {"waiting": {"reason": "CrashLoopBackOff"}})
    assert await crew_job.read(LogChoice(role="chief")) == ["Chief 0 1: it broke"]


async def test_the_command_prints_who_wrote_each_line(crew_job: Crew, capsys: pytest.CaptureFixture[str]) -> None:
    await crew_job.run("crew-chief-0", "c0")
    await crew_job.run("crew-chief-0", "c0 again", run=1)
    await crew_job.run("crew-worker-0", "w0")
    printed = await _command(crew_job, capsys, "crew")
    assert printed.out.splitlines() == ["chief-0 | c0", "chief-0#2 | c0 again", "worker-0  | w0"]
    assert printed.err == "worker-1  | (it has not started yet (ContainerCreating))\n"
    assert (await _command(crew_job, capsys, "crew", "--no-prefix", "--index", "0")).out.splitlines() == ["c0", "c0 again", "w0"]
    stamped = (await _command(crew_job, capsys, "crew", "--role", "worker", "--index", "0", "--timestamps")).out
    assert stamped.startswith("worker-0 | 20")
    assert stamped.endswith("Z w0\n")
    found = [json.loads(line) for line in (await _command(crew_job, capsys, "crew", "-o", "json")).out.splitlines()]
    assert [(each["role"], each["run"], each["text"]) for each in found[:3]] == [
        ("Chief", 0, "c0"),
        ("Chief", 1, "c0 again"),
        ("Worker", 0, "w0"),
    ]


async def test_the_end_of_a_failed_replicas_log_is_on_its_jobs_page(crew_job: Crew, capsys: pytest.CaptureFixture[str]) -> None:
    log = await crew_job.run("crew-worker-1", *(f"line {number}" for number in range(20)))
    await crew_job.end("crew-worker-1", log, exit_code=3)
    failure = {"pod": "crew-worker-1", "role": "Worker", "index": 1, "exitCode": 3, "reason": "Error", "time": "2026-01-01T00:00:00Z"}
    status = {"dlop": {"phase": "Failed", "lastFailure": failure}}
    resource, namespace = CrewJob.job_type.resource, crew_job.world.namespace
    await crew_job.world.client.patch(resource, "crew", {"status": status}, namespace=namespace, subresource="status")
    page = (await _command(crew_job, capsys, "crew", "--tail", "2", command="describe")).out
    assert "  the last 2 lines of its log:\n      line 18\n      line 19\n" in page


async def test_the_log_of_a_failure_that_was_made_good_is_that_of_the_run_before(
    crew_job: Crew, capsys: pytest.CaptureFixture[str]
) -> None:
    await crew_job.run("crew-worker-1", "it broke")
    again = await crew_job.run("crew-worker-1", "it did well", run=1)
    failure = {"pod": "crew-worker-1", "role": "Worker", "index": 1, "exitCode": 3}
    resource, namespace = CrewJob.job_type.resource, crew_job.world.namespace
    status = {"dlop": {"phase": "Running", "lastFailure": failure}}
    await crew_job.world.client.patch(resource, "crew", {"status": status}, namespace=namespace, subresource="status")
    assert "  the last line of its log:\n      it broke\n" in (await _command(crew_job, capsys, "crew", command="describe")).out
    await crew_job.end("crew-worker-1", again)
    assert "  the last line of its log:\n      it broke\n" in (await _command(crew_job, capsys, "crew", command="describe")).out


@dataclass
class _Printed:
    out: str
    err: str


async def _command(crew_job: Crew, capsys: pytest.CaptureFixture[str], *words: str, command: str = "logs") -> _Printed:
    capsys.readouterr()
    place = ("--kubeconfig", str(crew_job.world.kubeconfig), "-n", crew_job.world.namespace)
    assert await asyncio.to_thread(main, [command, *place, *FRAMEWORK, *words]) == 0
    printed = capsys.readouterr()
    return _Printed(printed.out, printed.err)


# --- following -----------------------------------------------------------------------------------------------------------


async def test_lines_are_followed_through_restarts_and_new_pods_to_the_end_of_the_job(crew_job: Crew) -> None:
    namespace = crew_job.world.namespace
    first = await crew_job.run("crew-worker-0", "w0 one")
    async with asyncio.timeout(30), follow_logs(crew_job.world.client, crew_job.found, LogChoice(role="worker", index=0)) as lines:
        expect = _expecting(lines)
        await expect("Worker 0 0: w0 one")
        write(first, "w0 two")
        await expect("Worker 0 0: w0 two")
        first.end()
        second = await crew_job.run("crew-worker-0", "w0 again", run=1)
        await expect("Worker 0 1: w0 again")

        second.end()
        await crew_job.world.client.delete(PODS, "crew-worker-0", namespace=namespace, grace_seconds=0)
        await crew_job.pod("crew-worker-0")
        third = await crew_job.run("crew-worker-0", "w0 in a new pod")
        await expect("Worker 0 0: w0 in a new pod")
        write(third, "w0 last words")
        await crew_job.end("crew-worker-0", third)
        await crew_job.is_over()
        await expect("Worker 0 0: w0 last words", None)


async def test_a_pod_that_goes_on_after_its_job_does_not_keep_the_reader(crew_job: Crew) -> None:
    log = await crew_job.run("crew-chief-0", "c0 one")
    async with asyncio.timeout(30), follow_logs(crew_job.world.client, crew_job.found, LogChoice()) as lines:
        expect = _expecting(lines)
        await expect("Chief 0 0: c0 one")
        write(log, "c0 two")
        await crew_job.is_over()
        await expect("Chief 0 0: c0 two", None)


async def test_following_a_job_that_is_over_reads_what_there_is(crew_job: Crew) -> None:
    log = await crew_job.run("crew-chief-0", "c0 one")
    await crew_job.end("crew-chief-0", log)
    await crew_job.is_over()
    async with asyncio.timeout(30), follow_logs(crew_job.world.client, crew_job.found, LogChoice()) as lines:
        await _expecting(lines)("Chief 0 0: c0 one", None)


class Interrupted:
    """A way to the server on which the first streams of a log end after their first piece."""

    def __init__(self, transport: Transport, *, times: int, breaks: bool) -> None:
        self._transport = transport
        self._left = times
        self._breaks = breaks
        self.send = transport.send
        self.refresh_credentials = transport.refresh_credentials
        self.close = transport.close

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        async with self._transport.stream(request, idle_timeout_seconds=idle_timeout_seconds) as answer:
            if request.path.endswith("/log") and self._left:
                self._left -= 1
                answer = replace(answer, chunks=self._first_of(answer.chunks))
            yield answer

    async def _first_of(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        yield await anext(chunks)
        if self._breaks:
            raise TransportError("the connection was lost")


@pytest.mark.parametrize("breaks", [True, False])
async def test_a_stream_that_ends_too_soon_is_taken_up_and_no_line_comes_twice(crew_job: Crew, breaks: bool) -> None:
    log = await crew_job.run("crew-chief-0", "c0 one", "c0 two")
    client = Client(Interrupted(crew_job.world.client.transport, times=2, breaks=breaks))
    async with asyncio.timeout(30), follow_logs(client, crew_job.found, LogChoice()) as lines:
        expect = _expecting(lines)
        await expect("Chief 0 0: c0 one", "Chief 0 0: c0 two")
        write(log, "c0 three")
        await expect("Chief 0 0: c0 three")
        write(log, "c0 four")
        await crew_job.end("crew-chief-0", log)
        await crew_job.is_over()
        await expect("Chief 0 0: c0 four", None)


def _expecting(lines: AsyncGenerator[LogLine, None]) -> Callable[..., Awaitable[None]]:
    """A function that demands the next lines; None is the end."""

    async def expect(*texts: str | None) -> None:
        for text in texts:
            line = await anext(lines, None)
            assert (None if line is None else told(line)) == text

    return expect
