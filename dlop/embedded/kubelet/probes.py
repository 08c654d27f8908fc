"""Startup, liveness and readiness probes, by a command, a TCP connection or an HTTP request.

One check succeeds or fails; thresholds decide when that changes the state of the container.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum

from dlop.embedded.kubelet.environment import expand_all
from dlop.embedded.kubelet.exec_command import run_command
from dlop.embedded.kubelet.runtime.base import LaunchRequest, Sandbox
from dlop.kube.types import JsonObject

_HTTP_TIMEOUT = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
_MAX_STATUS_LINE = 4096


class ProbeKind(StrEnum):
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


class CheckResult(StrEnum):
    """UNKNOWN means that the check could not be made; it is ignored."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe with defaults applied."""

    kind: ProbeKind
    handler: JsonObject
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    sandbox: Sandbox
    container: JsonObject
    launch: LaunchRequest
    """The launch of the running container, which probe commands join."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of one check, and its output for an event."""

    result: CheckResult
    output: str = ""


def container_probe(container: JsonObject, kind: ProbeKind) -> Probe | None:
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
    """Counts consecutive results. Pure."""

    def __init__(self, probe: Probe) -> None:
        self._thresholds = {CheckResult.SUCCESS: probe.success_threshold, CheckResult.FAILURE: probe.failure_threshold}
        self._last: CheckResult | None = None
        self._consecutive = 0

    def record(self, result: CheckResult) -> bool:
        """Returns whether the result has reached its threshold."""
        if result is CheckResult.UNKNOWN:
            return False
        self._consecutive = self._consecutive + 1 if result is self._last else 1
        self._last = result
        return self._consecutive >= self._thresholds[result]


async def run_probe(
    probe: Probe, target: ProbeTarget, *, on_result: Callable[[CheckResult], bool], on_failure: Callable[[str], None]
) -> None:
    """Check periodically. `on_result` is called for results that have reached their threshold and returns whether to continue."""
    loop = asyncio.get_running_loop()
    thresholds = Thresholds(probe)
    due = loop.time()
    while True:
        outcome = await probe_once(probe, target)
        if outcome.result is CheckResult.FAILURE:
            on_failure(f"{probe.kind.value} probe failed: {outcome.output}")
        elif outcome.result is CheckResult.UNKNOWN:
            on_failure(f"{probe.kind.value} probe errored and resulted in unknown state: {outcome.output}")
        if thresholds.record(outcome.result) and not on_result(outcome.result):
            return
        due = max(due + probe.period_seconds, loop.time())
        await asyncio.sleep(due - loop.time())


async def probe_once(probe: Probe, target: ProbeTarget) -> CheckOutcome:
    handler = probe.handler
    try:
        if action := handler.get("exec"):
            return await _probe_command(action, target, probe.timeout_seconds)
        if action := handler.get("httpGet"):
            return await http_get(action, target, timeout_seconds=probe.timeout_seconds)
        if action := handler.get("tcpSocket"):
            return await _probe_tcp(action, target, probe.timeout_seconds)
    except LookupError as error:
        return CheckOutcome(CheckResult.UNKNOWN, str(error.args[0]))
    return CheckOutcome(CheckResult.UNKNOWN, "this node supports only exec, httpGet and tcpSocket probes")


async def _probe_command(action: JsonObject, target: ProbeTarget, timeout_seconds: float) -> CheckOutcome:
    argv = expand_all(action.get("command") or (), target.launch.environment)
    result = await run_command(target.sandbox, target.launch, argv, timeout_seconds=timeout_seconds)
    return CheckOutcome(CheckResult.SUCCESS if result.exit_code == 0 else CheckResult.FAILURE, result.output)


async def _probe_tcp(action: JsonObject, target: ProbeTarget, timeout_seconds: float) -> CheckOutcome:
    port = port_number(target.container, action["port"])
    host = action.get("host") or target.sandbox.address
    try:
        async with asyncio.timeout(timeout_seconds), _connect(target, action.get("host"), port):
            return CheckOutcome(CheckResult.SUCCESS)
    except TimeoutError:
        return CheckOutcome(CheckResult.FAILURE, f"dial tcp {host}:{port}: i/o timeout")
    except OSError as error:
        return CheckOutcome(CheckResult.FAILURE, _dial_error(host, port, error))


async def http_get(action: JsonObject, target: ProbeTarget, *, timeout_seconds: float | None) -> CheckOutcome:
    """Make an HTTP request. Status codes from 200 to 399 are a success.

    Raises:
        LookupError: the container has no port with the given name.
    """
    port = port_number(target.container, action["port"])
    host = action.get("host") or target.sandbox.address
    path = action.get("path") or "/"
    url = f"{(action.get('scheme') or 'HTTP').lower()}://{host}:{port}{path if path.startswith('/') else '/' + path}"
    try:
        async with asyncio.timeout(timeout_seconds), _connect(target, action.get("host"), port) as (reader, writer):
            if url.startswith("https:"):
                await writer.start_tls(_insecure_context())
            writer.write(_http_request(action, url, host, port))
            code = _status_code(await reader.readuntil(b"\n"))
    except TimeoutError:
        return CheckOutcome(CheckResult.FAILURE, f'Get "{url}": {_HTTP_TIMEOUT}')
    except asyncio.IncompleteReadError:
        return CheckOutcome(CheckResult.FAILURE, f'Get "{url}": EOF')
    except (OSError, ValueError, asyncio.LimitOverrunError) as error:
        reason = _dial_error(host, port, error) if isinstance(error, OSError) else "malformed HTTP response"
        return CheckOutcome(CheckResult.FAILURE, f'Get "{url}": {reason}')
    if 200 <= code < 400:
        return CheckOutcome(CheckResult.SUCCESS)
    return CheckOutcome(CheckResult.FAILURE, f"HTTP probe failed with statuscode: {code}")


@contextlib.asynccontextmanager
async def _connect(target: ProbeTarget, host: str | None, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await (asyncio.open_connection(host, port) if host else target.sandbox.connect(port, address=target.sandbox.address))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _insecure_context() -> ssl.SSLContext:
    """Like the kubelet, do not verify certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _http_request(action: JsonObject, url: str, host: str, port: int) -> bytes:
    path = url.split("/", 3)[3]
    headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.36", "Accept": "*/*", "Connection": "close"}
    headers |= {header["name"]: header.get("value", "") for header in action.get("httpHeaders") or ()}
    lines = [f"GET /{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value), "", ""]
    return "\r\n".join(lines).encode()


def _status_code(line: bytes) -> int:
    fields = line[:_MAX_STATUS_LINE].split()
    if len(fields) < 2 or not fields[0].startswith(b"HTTP/"):
        raise ValueError(line)
    return int(fields[1])


def _dial_error(host: str, port: int, error: OSError) -> str:
    messages: dict[type[OSError], str] = {
        ConnectionRefusedError: "connect: connection refused",
        ConnectionResetError: "read: connection reset by peer",
    }
    return f"dial tcp {host}:{port}: {messages.get(type(error), str(error))}"


def port_number(container: JsonObject, port: int | str) -> int:
    """The number of a port that is given by number or by name.

    Raises:
        LookupError: the container has no port with this name.
    """
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for entry in container.get("ports") or ():
        if entry.get("name") == port:
            return int(entry["containerPort"])
    raise LookupError(f"couldn't find port: {port}")
