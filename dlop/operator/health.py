"""What a kubelet and Prometheus ask: `/healthz`, `/readyz` and `/metrics`, served over plain HTTP.

Healthy is an operator that hears from the API server; a restart may help one that does not. Ready is one whose caches are
complete, whether it leads or stands by.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dlop.operator.addresses import Page, Site
from dlop.operator.operator import Operator

_WELL = 200
_FAILING = 503


@asynccontextmanager
async def serving_probes(operator: Operator, site: Site, *, watch_age_limit_seconds: float) -> AsyncIterator[tuple[str, int]]:
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


def _application(operator: Operator, pages: Collection[Page], watch_age_limit_seconds: float) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return _response(health(operator, watch_age_limit_seconds=watch_age_limit_seconds))

    async def readyz(_: web.Request) -> web.Response:
        return _response(readiness(operator))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(operator.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    application = web.Application()
    handlers = {Page.HEALTH: healthz, Page.READINESS: readyz, Page.METRICS: metrics}
    application.add_routes([web.get(page, handler) for page, handler in handlers.items() if page in pages])
    return application


def _response(answer: Answer) -> web.Response:
    return web.Response(status=_WELL if answer.is_well else _FAILING, text=f"{answer.text}\n")
