"""What a kubelet and Prometheus ask: `/healthz`, `/readyz` and `/metrics`, served over plain HTTP.

Healthy is an operator that hears from the API server; a restart may help one that does not. Ready is one whose caches are
complete, whether it leads or stands by.

Where the operator answers probes and Prometheus: all on one port, or, as Kubeflow's operator did, metrics and probes on two.
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

_WELL = 200
_FAILING = 503


@asynccontextmanager
async def serving_probes(operator: Operator, site: Endpoint, *, watch_age_limit_seconds: float) -> AsyncIterator[tuple[str, int]]:
    """Answer probes while the context lasts; gives the address, which has a port of its own where none (0) was asked for."""
    runner = web.AppRunner(_application(operator, site.pages, watch_age_limit_seconds), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, site.host, site.port).start()
        address = runner.addresses[0]
        yield str(address[0]), int(address[1])
    finally:
        await runner.cleanup()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe is told."""

    is_well: bool
    text: str


def health(operator: Operator, *, watch_age_limit_seconds: float) -> Answer:
    """Whether the operator still hears from the API server; if not, since when, and why."""
    age = operator.watch_age_seconds()
    if age <= watch_age_limit_seconds:
        return Answer(is_well=True, text="ok")
    return Answer(is_well=False, text="\n".join([f"the API server was last heard of {age:.0f} seconds ago", *operator.complaints()]))


def readiness(operator: Operator) -> Answer:
    """Whether the caches are complete; if not, why."""
    if not operator.is_synced:
        return Answer(is_well=False, text="\n".join(["the caches are not complete", *operator.complaints()]))
    return Answer(is_well=True, text="ok: leads" if operator.is_working else "ok: stands by")


def _application(operator: Operator, pages: Collection[EndpointPath], watch_age_limit_seconds: float) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return _response(health(operator, watch_age_limit_seconds=watch_age_limit_seconds))

    async def readyz(_: web.Request) -> web.Response:
        return _response(readiness(operator))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(operator.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    application = web.Application()
    handlers = {EndpointPath.HEALTH: healthz, EndpointPath.READINESS: readyz, EndpointPath.METRICS: metrics}
    application.add_routes([web.get(page, handler) for page, handler in handlers.items() if page in pages])
    return application


def _response(answer: Answer) -> web.Response:
    return web.Response(status=_WELL if answer.is_well else _FAILING, text=f"{answer.text}\n")


METRICS_PORT = 8080
PROBES_PORT = 8081
"""Used when metrics have a port of their own."""

# What Kubeflow's operator takes for the same.
_NO_ADDRESSES = (NO_ADDRESS, "0")


class EndpointPath(StrEnum):
    """What can be asked for."""

    HEALTH = "/healthz"
    READINESS = "/readyz"
    METRICS = "/metrics"


_PROBES = frozenset({EndpointPath.HEALTH, EndpointPath.READINESS})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One port, and what is served there."""

    host: str
    port: int
    """0: one that is free."""
    pages: frozenset[EndpointPath]
    flag: str
    """What to change when it cannot be served."""


def sites(settings: Settings, *, in_cluster: bool) -> list[Endpoint]:
    """Where to serve what.

    Raises:
        SettingsError: one of the addresses is none.
    """
    found: list[Endpoint] = []
    for site in _asked_for(settings, in_cluster=in_cluster):
        twin = next((index for index, each in enumerate(found) if (each.host, each.port) == (site.host, site.port) and site.port), None)
        if twin is None:
            found.append(site)
        else:
            found[twin] = replace(found[twin], pages=found[twin].pages | site.pages)
    return found


def _asked_for(settings: Settings, *, in_cluster: bool) -> Iterator[Endpoint]:
    """One of the two ports of old brings the other with it, and only those are served, unless a third is asked for by name."""
    host = "0.0.0.0" if in_cluster else "127.0.0.1"  # noqa: S104 - probes come from the node
    has_two = bool(settings.metrics_bind_address or settings.health_probe_bind_address)
    if settings.bind_address or not has_two:
        yield from _site("--bind-address", settings.bind_address or f"{host}:{METRICS_PORT}", _PROBES | {EndpointPath.METRICS})
    if has_two:
        metrics, probes = settings.metrics_bind_address, settings.health_probe_bind_address
        yield from _site("--metrics-bind-address", metrics or f"{host}:{METRICS_PORT}", frozenset({EndpointPath.METRICS}))
        yield from _site("--health-probe-bind-address", probes or f"{host}:{PROBES_PORT}", _PROBES)


def _site(flag: str, address: str, pages: frozenset[EndpointPath]) -> Iterator[Endpoint]:
    if address in _NO_ADDRESSES:
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{flag} is {address!r}; write host:port, :port or {NO_ADDRESS}")
    yield Endpoint(host.strip("[]") or "0.0.0.0", int(port), pages, flag)  # noqa: S104 - no host was asked for
