"""Probes: whether a container has started, lives, and is ready, by a command, a connection or an HTTP request.

A single check tells success or failure; thresholds decide when that changes anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum

from dlop.embedded.kubelet.environment import all_expanded
from dlop.embedded.kubelet.exec_command import run_command
from dlop.embedded.kubelet.runtime.base import Launch, Sandbox
from dlop.kube.types import JsonObject

_HTTP_TIMEOUT = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
_LONGEST_STATUS_LINE = 4096


class ProbeKind(StrEnum):
    """What a probe is for."""

    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


class Result(StrEnum):
    """What a check has found. A check that could not be made at all says nothing."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of a container, with every number filled in."""

    kind: ProbeKind
    handler: JsonObject
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A running container."""

    sandbox: Sandbox
    container: JsonObject
    launch: Launch
    """How it was started: what is run in it sees the same."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check, and what is to be told of it."""

    result: Result
    output: str = ""


def probe_of(container: JsonObject, kind: ProbeKind) -> Probe | None:
    """The probe of a container, if it has one of that kind."""
    spec = container.get(f"{kind.value.lower()}Probe")
    if not spec:
        return None
    return Probe(
        kind=kind,
        handler=spec,
        initial_delay_seconds=float(spec.get("initialDelaySeconds") or 0),
        period_seconds=float(spec.get("periodSeconds") or 10),
        timeout_seconds=float(spec.get("timeoutSeconds") or 1),
        success_threshold=int(spec.get("successThreshold") or 1),
        failure_threshold=int(spec.get("failureThreshold") or 3),
        grace_seconds=spec.get("terminationGracePeriodSeconds"),
    )


class Thresholds:
    """Counts checks in a row. Pure."""

    def __init__(self, probe: Probe) -> None:
        self._needed = {Result.SUCCESS: probe.success_threshold, Result.FAILURE: probe.failure_threshold}
        self._last: Result | None = None
        self._run = 0

    def decided(self, result: Result) -> bool:
        """Whether this result, with those before it, counts from now on."""
        if result is Result.UNKNOWN:
            return False
        self._run = self._run + 1 if result is self._last else 1
        self._last = result
        return self._run >= self._needed[result]


async def watch(probe: Probe, target: Target, *, decided: Callable[[Result], bool], unhealthy: Callable[[str], None]) -> None:
    """Check again and again. `decided` hears of every result that counts, and says whether to go on."""
    loop = asyncio.get_running_loop()
    thresholds = Thresholds(probe)
    due = loop.time()
    while True:
        verdict = await check(probe, target)
        if verdict.result is Result.FAILURE:
            unhealthy(f"{probe.kind.value} probe failed: {verdict.output}")
        elif verdict.result is Result.UNKNOWN:
            unhealthy(f"{probe.kind.value} probe errored and resulted in unknown state: {verdict.output}")
        if thresholds.decided(verdict.result) and not decided(verdict.result):
            return
        due = max(due + probe.period_seconds, loop.time())
        await asyncio.sleep(due - loop.time())


async def check(probe: Probe, target: Target) -> Verdict:
    """Make one check."""
    handler = probe.handler
    try:
        if action := handler.get("exec"):
            return await _exec(action, target, probe.timeout_seconds)
        if action := handler.get("httpGet"):
            return await http_get(action, target, timeout_seconds=probe.timeout_seconds)
        if action := handler.get("tcpSocket"):
            return await _tcp(action, target, probe.timeout_seconds)
    except LookupError as error:
        return Verdict(Result.UNKNOWN, str(error.args[0]))
    return Verdict(Result.UNKNOWN, "this node knows exec, httpGet and tcpSocket, and no other way to probe")


async def _exec(action: JsonObject, target: Target, timeout_seconds: float) -> Verdict:
    argv = all_expanded(action.get("command") or (), target.launch.environment)
    outcome = await run_command(target.sandbox, target.launch, argv, timeout_seconds=timeout_seconds)
    return Verdict(Result.SUCCESS if outcome.exit_code == 0 else Result.FAILURE, outcome.output)


async def _tcp(action: JsonObject, target: Target, timeout_seconds: float) -> Verdict:
    port = port_number(target.container, action["port"])
    host = action.get("host") or target.sandbox.address
    try:
        async with asyncio.timeout(timeout_seconds), _connected(target, action.get("host"), port):
            return Verdict(Result.SUCCESS)
    except TimeoutError:
        return Verdict(Result.FAILURE, f"dial tcp {host}:{port}: i/o timeout")
    except OSError as error:
        return Verdict(Result.FAILURE, _dial_problem(host, port, error))


async def http_get(action: JsonObject, target: Target, *, timeout_seconds: float | None) -> Verdict:
    """Make an HTTP request: any answer from 200 to 399 is a success.

    Raises:
        LookupError: the container has no port of the name that is asked for.
    """
    port = port_number(target.container, action["port"])
    host = action.get("host") or target.sandbox.address
    path = action.get("path") or "/"
    url = f"{(action.get('scheme') or 'HTTP').lower()}://{host}:{port}{path if path.startswith('/') else '/' + path}"
    try:
        async with asyncio.timeout(timeout_seconds), _connected(target, action.get("host"), port) as (reader, writer):
            if url.startswith("https:"):
                await writer.start_tls(_trusting())
            writer.write(_request(action, url, host, port))
            code = _status_code(await reader.readuntil(b"\n"))
    except TimeoutError:
        return Verdict(Result.FAILURE, f'Get "{url}": {_HTTP_TIMEOUT}')
    except asyncio.IncompleteReadError:
        return Verdict(Result.FAILURE, f'Get "{url}": EOF')
    except (OSError, ValueError, asyncio.LimitOverrunError) as error:
        problem = _dial_problem(host, port, error) if isinstance(error, OSError) else "malformed HTTP response"
        return Verdict(Result.FAILURE, f'Get "{url}": {problem}')
    if 200 <= code < 400:
        return Verdict(Result.SUCCESS)
    return Verdict(Result.FAILURE, f"HTTP probe failed with statuscode: {code}")


@contextlib.asynccontextmanager
async def _connected(target: Target, host: str | None, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await (asyncio.open_connection(host, port) if host else target.sandbox.connect(port, address=target.sandbox.address))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _trusting() -> ssl.SSLContext:
    """The kubelet does not check certificates either: it asks whether the container answers, not who it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _request(action: JsonObject, url: str, host: str, port: int) -> bytes:
    path = url.split("/", 3)[3]
    headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.36", "Accept": "*/*", "Connection": "close"}
    headers |= {each["name"]: each.get("value", "") for each in action.get("httpHeaders") or ()}
    lines = [f"GET /{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value), "", ""]
    return "\r\n".join(lines).encode()


def _status_code(line: bytes) -> int:
    words = line[:_LONGEST_STATUS_LINE].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        raise ValueError(line)
    return int(words[1])


def _dial_problem(host: str, port: int, error: OSError) -> str:
    known: dict[type[OSError], str] = {
        ConnectionRefusedError: "connect: connection refused",
        ConnectionResetError: "read: connection reset by peer",
    }
    return f"dial tcp {host}:{port}: {known.get(type(error), str(error))}"


def port_number(container: JsonObject, port: int | str) -> int:
    """The number of a port that is given by number or by name.

    Raises:
        LookupError: the container has no port of that name.
    """
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for each in container.get("ports") or ():
        if each.get("name") == port:
            return int(each["containerPort"])
    raise LookupError(f"couldn't find port: {port}")
