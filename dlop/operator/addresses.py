"""Where the operator answers probes and Prometheus: all on one port, or, as Kubeflow's operator did, metrics and probes on two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from dlop.operator.settings import NO_ADDRESS, Settings, SettingsError

METRICS_PORT = 8080
PROBES_PORT = 8081
"""Used when metrics have a port of their own."""

# What Kubeflow's operator takes for the same.
_NO_ADDRESSES = (NO_ADDRESS, "0")


class Page(StrEnum):
    """What can be asked for."""

    HEALTH = "/healthz"
    READINESS = "/readyz"
    METRICS = "/metrics"


_PROBES = frozenset({Page.HEALTH, Page.READINESS})


@dataclass(frozen=True, slots=True)
class Site:
    """One port, and what is served there."""

    host: str
    port: int
    """0: one that is free."""
    pages: frozenset[Page]
    flag: str
    """What to change when it cannot be served."""


def sites(settings: Settings, *, in_cluster: bool) -> list[Site]:
    """Where to serve what.

    Raises:
        SettingsError: one of the addresses is none.
    """
    found: list[Site] = []
    for site in _asked_for(settings, in_cluster=in_cluster):
        twin = next((index for index, each in enumerate(found) if (each.host, each.port) == (site.host, site.port) and site.port), None)
        if twin is None:
            found.append(site)
        else:
            found[twin] = replace(found[twin], pages=found[twin].pages | site.pages)
    return found


def _asked_for(settings: Settings, *, in_cluster: bool) -> Iterator[Site]:
    """One of the two ports of old brings the other with it, and only those are served, unless a third is asked for by name."""
    host = "0.0.0.0" if in_cluster else "127.0.0.1"  # noqa: S104 - probes come from the node
    has_two = bool(settings.metrics_bind_address or settings.health_probe_bind_address)
    if settings.bind_address or not has_two:
        yield from _site("--bind-address", settings.bind_address or f"{host}:{METRICS_PORT}", _PROBES | {Page.METRICS})
    if has_two:
        metrics, probes = settings.metrics_bind_address, settings.health_probe_bind_address
        yield from _site("--metrics-bind-address", metrics or f"{host}:{METRICS_PORT}", frozenset({Page.METRICS}))
        yield from _site("--health-probe-bind-address", probes or f"{host}:{PROBES_PORT}", _PROBES)


def _site(flag: str, address: str, pages: frozenset[Page]) -> Iterator[Site]:
    if address in _NO_ADDRESSES:
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{flag} is {address!r}; write host:port, :port or {NO_ADDRESS}")
    yield Site(host.strip("[]") or "0.0.0.0", int(port), pages, flag)  # noqa: S104 - no host was asked for
