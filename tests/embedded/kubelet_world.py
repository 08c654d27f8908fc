"""A node that has only the kubelet's API: its containers are logs, and what is run in them are plain processes."""

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
from dlop.embedded.kubelet.runtime.base import Exit, LaunchError
from dlop.embedded.kubelet.server.api import DECLARED_FEATURES, HOST
from dlop.embedded.kubelet.server.backend import Command, ContainerName, NoSuchPodError, NotAvailableError
from dlop.embedded.kubelet.server.log_source import Run, log_source
from dlop.kube.client import Client
from dlop.kube.resources import NODES, PODS
from dlop.kube.types import JsonObject

PATIENCE_SECONDS = 30.0


@dataclass
class PlainProcess:
    """A process of this machine."""

    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> Exit:
        code = await self.process.wait()
        return Exit(code) if code >= 0 else Exit(128 - code, signal=-code)

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@dataclass
class FakePods:
    """The pods of such a node. `statuses` are what their status says; `started` are the commands that were run."""

    folder: Path
    logs: dict[ContainerName, ContainerLogs] = field(default_factory=dict)
    statuses: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    started: list[PlainProcess] = field(default_factory=list)

    def begin(self, name: ContainerName, run: int = 0) -> ContainerLog:
        """Let a container run, for the first time or again."""
        logs = self.logs.setdefault(name, ContainerLogs(self.folder / name.namespace / name.pod / name.container))
        return logs.begin(run)

    def log(self, name: ContainerName, *, previous: bool) -> ContainerLog:
        run = log_source(name.pod, self._status(name.namespace, name.pod), name.container, previous=previous)
        logs = self.logs[name]
        found = logs.current if run is Run.LATEST else logs.previous
        assert found is not None
        return found

    async def execute(self, name: ContainerName, command: Command) -> PlainProcess:
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=command.stdin if command.stdin is not None else asyncio.subprocess.DEVNULL,
                stdout=command.stdout if command.stdout is not None else asyncio.subprocess.DEVNULL,
                stderr=command.stderr if command.stderr is not None else asyncio.subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_take_terminal if command.terminal else None,
                env={"PATH": os.environ["PATH"], "CONTAINER": name.container},
            )
        except FileNotFoundError:
            raise LaunchError(f'exec: "{command.argv[0]}": executable file not found in $PATH', exit_code=127) from None
        self.started.append(PlainProcess(process))
        return self.started[-1]

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._status(namespace, pod)
        return await asyncio.open_connection(HOST, port)

    def check(self, namespace: str, pod: str, container: str | None) -> None:
        self._status(namespace, pod)
        name = None if container is None else ContainerName(namespace, pod, container)
        if name is not None and name not in self.logs:
            raise NotAvailableError(f'container not found ("{container}")')

    def _status(self, namespace: str, pod: str) -> JsonObject:
        found = self.statuses.get((namespace, pod))
        if found is None:
            raise NoSuchPodError(f'pod "{pod}" does not exist')
        return found

    def end(self) -> None:
        for logs in self.logs.values():
            logs.end()
        for process in self.started:
            process.signal(signal.SIGKILL)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@dataclass
class World:
    """A server with one node of ours, and a kubectl for it."""

    client: Client
    kubeconfig: Path
    kubectl_program: Path
    pods: FakePods
    node: str
    namespace: str
    folder: Path

    async def pod(self, name: str, *containers: str, run: int | None = 0) -> list[ContainerLog]:
        """A pod on the node, with running containers; with `run` None they wait to be started."""
        await self.bare_pod(name, *containers)
        logs = [] if run is None else [self.pods.begin(ContainerName(self.namespace, name, each), run) for each in containers]
        states = [_running(each) if run is not None else _waiting(each, "ContainerCreating") for each in containers]
        await self.tell(name, states)
        return logs

    async def bare_pod(self, name: str, *containers: str, node: str | None = None) -> None:
        """A pod of which nothing is known yet."""
        spec: JsonObject = {
            "nodeName": self.node if node is None else node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": each, "image": "any"} for each in containers],
        }
        if node == "":
            del spec["nodeName"]
        await self.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, namespace=self.namespace
        )

    async def tell(self, name: str, containers: list[JsonObject], *, phase: str = "Running") -> None:
        """Write a pod's status, as its kubelet does."""
        status: JsonObject = {"phase": phase, "containerStatuses": containers}
        self.pods.statuses[self.namespace, name] = status
        await self.client.patch(PODS, name, {"status": status}, namespace=self.namespace, subresource="status")

    async def restart(self, name: str, container: str) -> ContainerLog:
        """Let a container end and run again."""
        log = self.pods.begin(ContainerName(self.namespace, name, container), 1)
        ended = {"exitCode": 1, "containerID": "dlop://before", "startedAt": None, "finishedAt": None}
        await self.tell(name, [{**_running(container), "lastState": {"terminated": ended}, "restartCount": 1}])
        return log

    @asynccontextmanager
    async def running(self, *words: str, stdin: int | None = None, stdout: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
        """A kubectl that goes on until the block ends."""
        pipe = asyncio.subprocess.PIPE
        flags = ("--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace)
        environment = {"HOME": str(self.folder), "KUBECACHEDIR": str(self.folder / "cache"), "TERM": "xterm"}
        process = await asyncio.create_subprocess_exec(
            str(self.kubectl_program),
            *flags,
            *words,
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

    async def kubectl(self, *words: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run kubectl to its end: exit code, output, complaints."""
        async with self.running(*words) as process, asyncio.timeout(PATIENCE_SECONDS):
            out, err = await process.communicate(stdin)
            return await process.wait(), out, err

    async def says(self, *words: str, stdin: bytes = b"") -> bytes:
        """The output of a kubectl that must succeed."""
        code, out, err = await self.kubectl(*words, stdin=stdin)
        assert code == 0, f"kubectl {' '.join(words)}: {err.decode()}"
        return out

    async def complains(self, *words: str) -> str:
        """The complaint of a kubectl that must fail."""
        code, out, err = await self.kubectl(*words)
        assert code != 0, f"kubectl {' '.join(words)} succeeded: {out.decode()}"
        return err.decode().strip()


async def register(client: Client, name: str, port: int) -> None:
    """Create the node, and say where its kubelet is."""
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


class Echo:
    """A server in a pod that says back, in capitals, what it is told until the end."""

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
    """A user's terminal: what is typed at it, and what its screen shows."""

    def __init__(self, *, rows: int, columns: int) -> None:
        self._near, self.far = os.openpty()
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen = asyncio.StreamReader()
        self._transport: asyncio.ReadTransport | None = None

    async def __aenter__(self) -> Self:
        loop, shown = asyncio.get_running_loop(), os.fdopen(os.dup(self._near), "rb", 0)
        self._transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self.screen), shown)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._transport is not None
        self._transport.close()
        os.close(self._near)
        os.close(self.far)

    def type(self, text: bytes) -> None:
        """Type something."""
        os.write(self._near, text)


async def read_until(stream: asyncio.StreamReader, wanted: bytes) -> bytes:
    """What comes up to and with some words."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await stream.readuntil(wanted)


async def forwarded_port(kubectl: asyncio.subprocess.Process) -> int:
    """The port of this machine on which a `kubectl port-forward` listens."""
    assert kubectl.stdout is not None
    line = await read_until(kubectl.stdout, b"\n")
    found = re.match(rb"Forwarding from 127\.0\.0\.1:(\d+) -> ", line)
    assert found is not None, line
    return int(found[1])


async def ask(port: int, text: bytes) -> bytes:
    """What a server answers to something that is said to its end."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(text)
    writer.write_eof()
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    return answer
