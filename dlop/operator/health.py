"""HTTP endpoints for the kubelet and Prometheus: `/healthz`, `/readyz` and `/metrics`.

The operator is healthy while its event loop responds and its informers make progress. An API server that does not answer is
not its fault: a restart would not help, and would lose the caches. It is ready once its caches are synced, as leader and as
standby. All paths share one port, or metrics and probes have separate ports as in the Kubeflow training operator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dlop.operator.operator import Operator
from dlop.operator.settings import NO_ADDRESS, Settings, SettingsError

METRICS_PORT = 8080
PROBES_PORT = 8081
"""Used if metrics have a separate port."""

# The Kubeflow training operator uses "0".
_NO_ADDRESSES = (NO_ADDRESS, "0")


class EndpointPath(StrEnum):
    HEALTH = "/healthz"
    READINESS = "/readyz"
    METRICS = "/metrics"


_PROBES = frozenset({EndpointPath.HEALTH, EndpointPath.READINESS})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and the paths served there."""

    host: str
    port: int
    """0 for any free port."""
    paths: frozenset[EndpointPath]
    flag: str
    """The flag that sets the address, for error messages."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    ok: bool
    message: str


def check_health(operator: Operator, *, watch_age_limit_seconds: float) -> ProbeResult:
    """Whether all informers make progress. If not, the message names the stuck ones."""
    stuck = operator.stuck_informers(limit_seconds=watch_age_limit_seconds)
    if not stuck:
        return ProbeResult(ok=True, message="ok")
    return ProbeResult(ok=False, message="\n".join([f"informers stuck: {', '.join(stuck)}", *operator.sync_errors()]))


def check_readiness(operator: Operator) -> ProbeResult:
    """Whether the caches are synced. If not, the message has the causes."""
    if not operator.is_synced:
        return ProbeResult(ok=False, message="\n".join(["caches not synced", *operator.sync_errors()]))
    return ProbeResult(ok=True, message="ok: leader" if operator.is_leading else "ok: standby")


@asynccontextmanager
async def serve_endpoint(operator: Operator, endpoint: Endpoint, *, watch_age_limit_seconds: float) -> AsyncIterator[tuple[str, int]]:
    """Serve an endpoint while the context is open. Yields the host and the actual port."""
    runner = web.AppRunner(_application(operator, endpoint.paths, watch_age_limit_seconds), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, endpoint.host, endpoint.port).start()
        address = runner.addresses[0]
        yield str(address[0]), int(address[1])
    finally:
        await runner.cleanup()


def _application(operator: Operator, paths: Collection[EndpointPath], watch_age_limit_seconds: float) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return _response(check_health(operator, watch_age_limit_seconds=watch_age_limit_seconds))

    async def readyz(_: web.Request) -> web.Response:
        return _response(check_readiness(operator))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(operator.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    application = web.Application()
    handlers = {EndpointPath.HEALTH: healthz, EndpointPath.READINESS: readyz, EndpointPath.METRICS: metrics}
    application.add_routes([web.get(path, handler) for path, handler in handlers.items() if path in paths])
    return application


def _response(result: ProbeResult) -> web.Response:
    return web.Response(status=200 if result.ok else 503, text=f"{result.message}\n")


def list_endpoints(settings: Settings, *, in_cluster: bool) -> list[Endpoint]:
    """The endpoints to serve. Endpoints with the same address are merged.

    Raises:
        SettingsError: an address is invalid.
    """
    endpoints: list[Endpoint] = []
    for endpoint in _configured_endpoints(settings, in_cluster=in_cluster):
        address = (endpoint.host, endpoint.port)
        index = next((index for index, other in enumerate(endpoints) if (other.host, other.port) == address and endpoint.port), None)
        if index is None:
            endpoints.append(endpoint)
        else:
            endpoints[index] = replace(endpoints[index], paths=endpoints[index].paths | endpoint.paths)
    return endpoints


def _configured_endpoints(settings: Settings, *, in_cluster: bool) -> Iterator[Endpoint]:
    """If either of the two separate addresses is set, both are served, and the shared one only if it is set as well."""
    host = "0.0.0.0" if in_cluster else "127.0.0.1"  # noqa: S104 - probes come from the node
    is_separate = bool(settings.metrics_bind_address or settings.health_probe_bind_address)
    if settings.bind_address or not is_separate:
        yield from _parse_endpoint("--bind-address", settings.bind_address or f"{host}:{METRICS_PORT}", _PROBES | {EndpointPath.METRICS})
    if is_separate:
        metrics, probes = settings.metrics_bind_address, settings.health_probe_bind_address
        yield from _parse_endpoint("--metrics-bind-address", metrics or f"{host}:{METRICS_PORT}", frozenset({EndpointPath.METRICS}))
        yield from _parse_endpoint("--health-probe-bind-address", probes or f"{host}:{PROBES_PORT}", _PROBES)


def _parse_endpoint(flag: str, address: str, paths: frozenset[EndpointPath]) -> Iterator[Endpoint]:
    if address in _NO_ADDRESSES:
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{flag}: invalid value {address!r}: must be host:port, :port or {NO_ADDRESS}")
    yield Endpoint(host.strip("[]") or "0.0.0.0", int(port), paths, flag)  # noqa: S104 - an empty host means all interfaces
