"""A node with only the kubelet's server: its containers are log files, and exec commands are plain processes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from dlop.embedded.kubelet.logs import ContainerLog, ContainerLogs
from dlop.embedded.kubelet.runtime.base import ExitStatus, LaunchError
from dlop.embedded.kubelet.server.api import DECLARED_FEATURES, HOST
from dlop.embedded.kubelet.server.backend import ContainerRef, ContainerUnavailableError, ExecCommand, PodNotFoundError
from dlop.embedded.kubelet.server.log_source import LogRun, log_source
from dlop.kube.client import Client
from dlop.kube.resources import NODES, PODS
from dlop.kube.types import JsonObject

TIMEOUT_SECONDS = 30.0


@dataclass
class HostProcess:
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> ExitStatus:
        code = await self.process.wait()
        return ExitStatus(code) if code >= 0 else ExitStatus(128 - code, signal=-code)

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@dataclass
class FakePods:
    """Implements `PodBackend`. `started` are the processes of exec commands."""

    directory: Path
    logs: dict[ContainerRef, ContainerLogs] = field(default_factory=dict)
    statuses: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    started: list[HostProcess] = field(default_factory=list)

    def start_container(self, container: ContainerRef, run: int = 0) -> ContainerLog:
        """Start a run of a container."""
        logs = self.logs.setdefault(container, ContainerLogs(self.directory / container.namespace / container.pod / container.container))
        return logs.start_run(run)

    def log(self, container: ContainerRef, *, previous: bool) -> ContainerLog:
        run = log_source(container.pod, self._status(container.namespace, container.pod), container.container, previous=previous)
        logs = self.logs[container]
        log = logs.current if run is LogRun.LATEST else logs.previous
        assert log is not None
        return log

    async def execute(self, container: ContainerRef, command: ExecCommand) -> HostProcess:
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=command.stdin if command.stdin is not None else asyncio.subprocess.DEVNULL,
                stdout=command.stdout if command.stdout is not None else asyncio.subprocess.DEVNULL,
                stderr=command.stderr if command.stderr is not None else asyncio.subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_set_controlling_terminal if command.terminal else None,
                env={"PATH": os.environ["PATH"], "CONTAINER": container.container},
            )
        except FileNotFoundError:
            raise LaunchError(f'exec: "{command.argv[0]}": executable file not found in $PATH', exit_code=127) from None
        self.started.append(HostProcess(process))
        return self.started[-1]

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._status(namespace, pod)
        return await asyncio.open_connection(HOST, port)

    def check_running(self, namespace: str, pod: str, container: str | None) -> None:
        self._status(namespace, pod)
        if container is not None and ContainerRef(namespace, pod, container) not in self.logs:
            raise ContainerUnavailableError(f'container not found ("{container}")')

    def _status(self, namespace: str, pod: str) -> JsonObject:
        status = self.statuses.get((namespace, pod))
        if status is None:
            raise PodNotFoundError(f'pod "{pod}" does not exist')
        return status

    def close(self) -> None:
        for logs in self.logs.values():
            logs.close()
        for process in self.started:
            process.signal(signal.SIGKILL)


def _set_controlling_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@dataclass
class KubeletEnv:
    """An API server with one such node, and a kubectl for it."""

    client: Client
    kubeconfig: Path
    kubectl_program: Path
    pods: FakePods
    node: str
    namespace: str
    directory: Path

    async def create_pod(self, name: str, *containers: str, run: int | None = 0) -> list[ContainerLog]:
        """Create a pod on the node with running containers, or with waiting ones if `run` is None."""
        await self.create_bare_pod(name, *containers)
        references = [ContainerRef(self.namespace, name, container) for container in containers]
        logs = [] if run is None else [self.pods.start_container(reference, run) for reference in references]
        statuses = [_running(name) if run is not None else _waiting(name, "ContainerCreating") for name in containers]
        await self.write_status(name, statuses)
        return logs

    async def create_bare_pod(self, name: str, *containers: str, node: str | None = None) -> None:
        """Create a pod without a status. An empty `node` leaves it unscheduled."""
        spec: JsonObject = {
            "nodeName": self.node if node is None else node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": container, "image": "any"} for container in containers],
        }
        if node == "":
            del spec["nodeName"]
        await self.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, namespace=self.namespace
        )

    async def write_status(self, name: str, containers: list[JsonObject], *, phase: str = "Running") -> None:
        """Write a pod's status, as its kubelet does."""
        status: JsonObject = {"phase": phase, "containerStatuses": containers}
        self.pods.statuses[self.namespace, name] = status
        await self.client.patch(PODS, name, {"status": status}, namespace=self.namespace, subresource="status")

    async def restart(self, name: str, container: str) -> ContainerLog:
        """Terminate a container and start it again."""
        log = self.pods.start_container(ContainerRef(self.namespace, name, container), 1)
        ended = {"exitCode": 1, "containerID": "dlop://before", "startedAt": None, "finishedAt": None}
        await self.write_status(name, [{**_running(container), "lastState": {"terminated": ended}, "restartCount": 1}])
        return log

    @asynccontextmanager
    async def start_kubectl(
        self, *arguments: str, stdin: int | None = None, stdout: int | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run kubectl until the block ends."""
        pipe = asyncio.subprocess.PIPE
        flags = ("--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace)
        environment = {"HOME": str(self.directory), "KUBECACHEDIR": str(self.directory / "cache"), "TERM": "xterm"}
        process = await asyncio.create_subprocess_exec(
            str(self.kubectl_program),
            *flags,
            *arguments,
            stdin=pipe if stdin is None else stdin,
            stdout=pipe if stdout is None else stdout,
            stderr=pipe,
            env=environment,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def kubectl(self, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run kubectl and wait for its exit. Returns the exit code, stdout and stderr."""
        async with self.start_kubectl(*arguments) as process, asyncio.timeout(TIMEOUT_SECONDS):
            out, err = await process.communicate(stdin)
            return await process.wait(), out, err

    async def kubectl_output(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """The output of a kubectl that must succeed."""
        code, out, err = await self.kubectl(*arguments, stdin=stdin)
        assert code == 0, f"kubectl {' '.join(arguments)}: {err.decode()}"
        return out

    async def kubectl_error(self, *arguments: str) -> str:
        """The error message of a kubectl that must fail."""
        code, out, err = await self.kubectl(*arguments)
        assert code != 0, f"kubectl {' '.join(arguments)} succeeded: {out.decode()}"
        return err.decode().strip()


async def register_node(client: Client, name: str, port: int) -> None:
    """Create the Node object with the address of its kubelet."""
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    status: JsonObject = {
        "addresses": [{"type": "InternalIP", "address": HOST}, {"type": "Hostname", "address": name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "declaredFeatures": list(DECLARED_FEATURES),
    }
    await client.patch(NODES, name, {"status": status}, subresource="status")


def _running(container: str) -> JsonObject:
    return {**_status(container), "ready": True, "started": True, "containerID": "dlop://now", "state": {"running": {"startedAt": None}}}


def _waiting(container: str, reason: str) -> JsonObject:
    return {**_status(container), "state": {"waiting": {"reason": reason}}}


def _status(container: str) -> JsonObject:
    return {"name": container, "image": "any", "imageID": "", "ready": False, "restartCount": 0}


class EchoServer:
    """A server that returns what it receives in upper case."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @staticmethod
    async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data.upper())
            await writer.drain()
        writer.close()


class Terminal:
    """A user's terminal. `type` sends input, and `screen` is the output."""

    def __init__(self, *, rows: int, columns: int) -> None:
        self._master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen = asyncio.StreamReader()
        self._transport: asyncio.ReadTransport | None = None

    async def __aenter__(self) -> Self:
        loop, output_file = asyncio.get_running_loop(), os.fdopen(os.dup(self._master), "rb", 0)
        self._transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self.screen), output_file)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._transport is not None
        self._transport.close()
        os.close(self._master)
        os.close(self.slave)

    def type(self, text: bytes) -> None:
        os.write(self._master, text)


async def read_until(stream: asyncio.StreamReader, expected: bytes) -> bytes:
    """Read up to and including `expected`."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await stream.readuntil(expected)


async def forwarded_port(kubectl: asyncio.subprocess.Process) -> int:
    """The local port of a `kubectl port-forward`."""
    assert kubectl.stdout is not None
    line = await read_until(kubectl.stdout, b"\n")
    match = re.match(rb"Forwarding from 127\.0\.0\.1:(\d+) -> ", line)
    assert match is not None, line
    return int(match[1])


async def send_and_receive(port: int, text: bytes) -> bytes:
    """Send data to a local server, close the sending side and return the response."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(text)
    writer.write_eof()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        response = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    return response
