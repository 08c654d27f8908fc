"""Logs of a job's replicas on the embedded and on the real API server, with a kubelet server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.crd import build_crds
from dlop.cli.main import main
from dlop.deploy.apply import apply
from dlop.embedded.kubelet.logs import STDOUT, ContainerLog
from dlop.embedded.kubelet.server.backend import ContainerRef
from dlop.frameworks.registry import Registry
from dlop.jobs.errors import JobsError
from dlop.jobs.log_lines import LogLine
from dlop.jobs.log_stream import follow_logs
from dlop.jobs.logs import LogSelector, read_logs
from dlop.jobs.lookup import JobHandle, find_job, parse_job_reference
from dlop.kube.client import Client
from dlop.kube.errors import TransportError
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, StreamResponse, Transport
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_env import KubeletEnv
from tests.sim.crew_job import FRAMEWORK, CrewJob, crew

RUNNING = {"running": {"startedAt": None}}


@dataclass
class Crew:
    """A job with a chief and two workers. The test writes its pods and status, in place of the operator and the kubelet."""

    env: KubeletEnv
    handle: JobHandle
    restarts: dict[str, int] = field(default_factory=dict)

    async def create_pod(self, name: str) -> None:
        """Create a pod whose container waits."""
        metadata = {
            "name": name,
            "labels": {JOB_UID_LABEL: self.handle.uid},
            "ownerReferences": [self.handle.dl_job().owner_reference()],
        }
        containers = [{"name": "main", "image": "any"}]
        spec = {"nodeName": self.env.node, "terminationGracePeriodSeconds": 0, "containers": containers}
        await self.env.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace=self.env.namespace
        )
        self.restarts[name] = 0
        await self.write_status(name, {"waiting": {"reason": "ContainerCreating"}})

    async def start_container(self, name: str, *lines: str, run: int = 0) -> ContainerLog:
        """Start a run of the container, which writes these lines."""
        log = self.env.pods.start_container(ContainerRef(self.env.namespace, name, "main"), run)
        self.restarts[name] = run
        write_lines(log, *lines)
        await self.write_status(name, RUNNING)
        return log

    async def finish_pod(self, name: str, log: ContainerLog, exit_code: int = 0) -> None:
        """Terminate the container without a restart."""
        log.close()
        terminated = {"exitCode": exit_code, "containerID": "dlop://now", "startedAt": None, "finishedAt": None}
        await self.write_status(name, {"terminated": terminated}, phase="Failed" if exit_code else "Succeeded")

    async def write_status(self, name: str, state: JsonObject, *, phase: str = "Running") -> None:
        last_termination = {"exitCode": 1, "containerID": "dlop://before", "startedAt": None, "finishedAt": None}
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
            status["lastState"] = {"terminated": last_termination}
        await self.env.write_status(name, [status], phase="Pending" if "waiting" in state else phase)

    async def finish_job(self) -> None:
        status = {"dlop": {"phase": "Succeeded"}, "conditions": []}
        resource = CrewJob.job_type.resource
        await self.env.client.patch(resource, "crew", {"status": status}, namespace=self.env.namespace, subresource="status")

    async def read(self, selector: LogSelector = LogSelector()) -> list[str]:  # noqa: B008
        async with aclosing(read_logs(self.env.client, self.handle, selector)) as lines:
            return [format_line(line) async for line in lines]


def write_lines(log: ContainerLog, *lines: str) -> None:
    for line in lines:
        log.write(f"{line}\n".encode(), STDOUT)


def format_line(line: LogLine) -> str:
    return f"{line.role} {line.index} {'note' if line.is_note else line.run}: {line.text}"


@pytest.fixture
async def crew_job(kubelet_env: KubeletEnv) -> Crew:
    await apply(kubelet_env.client, build_crds([CrewJob]), report=lambda _: None)
    await kubelet_env.client.create(CrewJob.job_type.resource, crew("crew"), namespace=kubelet_env.namespace)
    reference = parse_job_reference("crew", Registry([CrewJob]))
    handle = await find_job(kubelet_env.client, reference, namespace=kubelet_env.namespace)
    job = Crew(kubelet_env, handle)
    for name in ("crew-chief-0", "crew-worker-0", "crew-worker-1"):
        await job.create_pod(name)
    return job


async def test_logs_of_all_replicas_are_read_in_order_and_across_restarts(crew_job: Crew) -> None:
    await crew_job.start_container("crew-worker-0", "w0 one", "w0 two")
    await crew_job.start_container("crew-chief-0", "c0 first run")
    await crew_job.start_container("crew-chief-0", "c0 second run", run=1)
    assert await crew_job.read() == [
        "Chief 0 0: c0 first run",
        "Chief 0 1: c0 second run",
        "Worker 0 0: w0 one",
        "Worker 0 0: w0 two",
        "Worker 1 note: not started yet (ContainerCreating)",
    ]
    await crew_job.env.client.delete(PODS, "crew-worker-1", namespace=crew_job.env.namespace)
    assert (await crew_job.read())[-1] == "Worker 1 note: no pod, so there is no log"


async def test_the_selector_limits_what_is_read(crew_job: Crew) -> None:
    await crew_job.start_container("crew-chief-0", "before", run=0)
    await crew_job.start_container("crew-chief-0", "c0 one", "c0 two", "c0 three", run=1)
    await crew_job.start_container("crew-worker-0", "w0")
    await crew_job.start_container("crew-worker-1", "w1")
    assert await crew_job.read(LogSelector(role="worker")) == ["Worker 0 0: w0", "Worker 1 0: w1"]
    assert await crew_job.read(LogSelector(role="Worker", index=1)) == ["Worker 1 0: w1"]
    assert await crew_job.read(LogSelector(role="chief", tail_lines=1)) == ["Chief 0 0: before", "Chief 0 1: c0 three"]
    assert await crew_job.read(LogSelector(role="chief", previous=True)) == ["Chief 0 0: before"]
    assert (await crew_job.read(LogSelector(role="worker", index=0, previous=True)))[0].startswith(
        "Worker 0 note: the log cannot be read: "
    )
    with pytest.raises(JobsError, match=r"CrewJob crew has no role pilot; a crew.dlop.dev/v1 CrewJob has Chief, Worker\."):
        await crew_job.read(LogSelector(role="pilot"))
    with pytest.raises(JobsError, match="CrewJob crew has no such replica"):
        await crew_job.read(LogSelector(index=9))


async def test_the_last_run_of_a_container_in_back_off_is_read_once(crew_job: Crew) -> None:
    log = await crew_job.start_container("crew-chief-0", "it broke")
    log.close()
    crew_job.restarts["crew-chief-0"] = 1
    await crew_job.write_status("crew-chief-0", {"waiting": {"reason": "CrashLoopBackOff"}})
    assert await crew_job.read(LogSelector(role="chief")) == ["Chief 0 1: it broke"]


async def test_the_command_prefixes_each_line_with_its_replica(crew_job: Crew, capsys: pytest.CaptureFixture[str]) -> None:
    await crew_job.start_container("crew-chief-0", "c0")
    await crew_job.start_container("crew-chief-0", "c0 again", run=1)
    await crew_job.start_container("crew-worker-0", "w0")
    result = await _command(crew_job, capsys, "crew")
    assert result.out.splitlines() == ["chief-0 | c0", "chief-0#2 | c0 again", "worker-0  | w0"]
    assert result.err == "worker-1  | (not started yet (ContainerCreating))\n"
    assert (await _command(crew_job, capsys, "crew", "--no-prefix", "--index", "0")).out.splitlines() == ["c0", "c0 again", "w0"]
    with_timestamps = (await _command(crew_job, capsys, "crew", "--role", "worker", "--index", "0", "--timestamps")).out
    assert with_timestamps.startswith("worker-0 | 20")
    assert with_timestamps.endswith("Z w0\n")
    lines = [json.loads(line) for line in (await _command(crew_job, capsys, "crew", "-o", "json")).out.splitlines()]
    assert [(line["role"], line["run"], line["text"]) for line in lines[:3]] == [
        ("Chief", 0, "c0"),
        ("Chief", 1, "c0 again"),
        ("Worker", 0, "w0"),
    ]


async def test_describe_shows_the_end_of_the_log_of_a_failed_replica(crew_job: Crew, capsys: pytest.CaptureFixture[str]) -> None:
    log = await crew_job.start_container("crew-worker-1", *(f"line {number}" for number in range(20)))
    await crew_job.finish_pod("crew-worker-1", log, exit_code=3)
    failure = {"pod": "crew-worker-1", "role": "Worker", "index": 1, "exitCode": 3, "reason": "Error", "time": "2026-01-01T00:00:00Z"}
    status = {"dlop": {"phase": "Failed", "lastFailure": failure}}
    resource, namespace = CrewJob.job_type.resource, crew_job.env.namespace
    await crew_job.env.client.patch(resource, "crew", {"status": status}, namespace=namespace, subresource="status")
    page = (await _command(crew_job, capsys, "crew", "--tail", "2", command="describe")).out
    assert "  the last 2 lines of its log:\n      line 18\n      line 19\n" in page


async def test_describe_shows_the_log_of_the_failed_run_after_a_restart(crew_job: Crew, capsys: pytest.CaptureFixture[str]) -> None:
    await crew_job.start_container("crew-worker-1", "it broke")
    second_log = await crew_job.start_container("crew-worker-1", "it did well", run=1)
    failure = {"pod": "crew-worker-1", "role": "Worker", "index": 1, "exitCode": 3}
    resource, namespace = CrewJob.job_type.resource, crew_job.env.namespace
    status = {"dlop": {"phase": "Running", "lastFailure": failure}}
    await crew_job.env.client.patch(resource, "crew", {"status": status}, namespace=namespace, subresource="status")
    assert "  the last line of its log:\n      it broke\n" in (await _command(crew_job, capsys, "crew", command="describe")).out
    await crew_job.finish_pod("crew-worker-1", second_log)
    assert "  the last line of its log:\n      it broke\n" in (await _command(crew_job, capsys, "crew", command="describe")).out


@dataclass
class _CommandOutput:
    out: str
    err: str


async def _command(crew_job: Crew, capsys: pytest.CaptureFixture[str], *arguments: str, command: str = "logs") -> _CommandOutput:
    capsys.readouterr()
    connection_flags = ("--kubeconfig", str(crew_job.env.kubeconfig), "-n", crew_job.env.namespace)
    assert await asyncio.to_thread(main, [command, *connection_flags, *FRAMEWORK, *arguments]) == 0
    result = capsys.readouterr()
    return _CommandOutput(result.out, result.err)


# --- following -----------------------------------------------------------------------------------------------------------


async def test_lines_are_followed_across_restarts_and_new_pods_until_the_job_finishes(crew_job: Crew) -> None:
    namespace = crew_job.env.namespace
    first = await crew_job.start_container("crew-worker-0", "w0 one")
    async with asyncio.timeout(30), follow_logs(crew_job.env.client, crew_job.handle, LogSelector(role="worker", index=0)) as lines:
        expect_lines = _line_expecter(lines)
        await expect_lines("Worker 0 0: w0 one")
        write_lines(first, "w0 two")
        await expect_lines("Worker 0 0: w0 two")
        first.close()
        second = await crew_job.start_container("crew-worker-0", "w0 again", run=1)
        await expect_lines("Worker 0 1: w0 again")

        second.close()
        await crew_job.env.client.delete(PODS, "crew-worker-0", namespace=namespace, grace_seconds=0)
        await crew_job.create_pod("crew-worker-0")
        third = await crew_job.start_container("crew-worker-0", "w0 in a new pod")
        await expect_lines("Worker 0 0: w0 in a new pod")
        write_lines(third, "w0 last words")
        await crew_job.finish_pod("crew-worker-0", third)
        await crew_job.finish_job()
        await expect_lines("Worker 0 0: w0 last words", None)


async def test_following_stops_with_the_job_even_if_a_pod_continues(crew_job: Crew) -> None:
    log = await crew_job.start_container("crew-chief-0", "c0 one")
    async with asyncio.timeout(30), follow_logs(crew_job.env.client, crew_job.handle, LogSelector()) as lines:
        expect_lines = _line_expecter(lines)
        await expect_lines("Chief 0 0: c0 one")
        write_lines(log, "c0 two")
        await crew_job.finish_job()
        await expect_lines("Chief 0 0: c0 two", None)


async def test_following_a_finished_job_reads_the_existing_logs(crew_job: Crew) -> None:
    log = await crew_job.start_container("crew-chief-0", "c0 one")
    await crew_job.finish_pod("crew-chief-0", log)
    await crew_job.finish_job()
    async with asyncio.timeout(30), follow_logs(crew_job.env.client, crew_job.handle, LogSelector()) as lines:
        await _line_expecter(lines)("Chief 0 0: c0 one", None)


class InterruptedTransport:
    """A transport on which the first log streams end after their first chunk."""

    def __init__(self, transport: Transport, *, times: int, raises_error: bool) -> None:
        self._transport = transport
        self._remaining = times
        self._raises_error = raises_error
        self.send = transport.send
        self.refresh_credentials = transport.refresh_credentials
        self.close = transport.close

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        async with self._transport.stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
            if request.path.endswith("/log") and self._remaining:
                self._remaining -= 1
                response = replace(response, chunks=self._first_chunk(response.chunks))
            yield response

    async def _first_chunk(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        yield await anext(chunks)
        if self._raises_error:
            raise TransportError("connection lost")


@pytest.mark.parametrize("raises_error", [True, False])
async def test_an_interrupted_stream_is_resumed_without_duplicate_lines(crew_job: Crew, raises_error: bool) -> None:
    log = await crew_job.start_container("crew-chief-0", "c0 one", "c0 two")
    transport = InterruptedTransport(crew_job.env.client.transport, times=2, raises_error=raises_error)
    async with asyncio.timeout(30), follow_logs(Client(transport), crew_job.handle, LogSelector()) as lines:
        expect_lines = _line_expecter(lines)
        await expect_lines("Chief 0 0: c0 one", "Chief 0 0: c0 two")
        write_lines(log, "c0 three")
        await expect_lines("Chief 0 0: c0 three")
        write_lines(log, "c0 four")
        await crew_job.finish_pod("crew-chief-0", log)
        await crew_job.finish_job()
        await expect_lines("Chief 0 0: c0 four", None)


def _line_expecter(lines: AsyncGenerator[LogLine, None]) -> Callable[..., Awaitable[None]]:
    """A function that asserts the next lines; None is the end."""

    async def expect_lines(*texts: str | None) -> None:
        for text in texts:
            line = await anext(lines, None)
            assert (None if line is None else format_line(line)) == text

    return expect_lines
