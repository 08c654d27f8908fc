"""Proxy settings from the environment.

The rules are those of Go's net/http, as in kubectl: HTTPS_PROXY or HTTP_PROXY by the scheme of the server, never for a
loopback address, and NO_PROXY as a list of host names, domains, addresses, networks and `*`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from dlop.kube.errors import ConfigurationError

_DEFAULT_PORTS = {"http": 80, "https": 443}


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy to use for a server, or None.

    Raises:
        ConfigurationError: the proxy is not an http or https URL.
    """
    url = urlsplit(server)
    proxy = _either_case(environ, f"{url.scheme}_proxy")
    if not proxy or _is_loopback(url.hostname or "") or _is_excluded(server, _either_case(environ, "no_proxy")):
        return None
    return validate_proxy(proxy if "://" in proxy else f"http://{proxy}", origin=f"{url.scheme.upper()}_PROXY")


def validate_proxy(proxy: str, *, origin: str) -> str:
    """Return the proxy if it is supported; otherwise raise ConfigurationError."""
    if not is_http_url(proxy):
        raise ConfigurationError(f"the proxy {proxy} of {origin} is not an http or https URL: dlop supports no other proxies")
    return proxy


def is_http_url(text: str) -> bool:
    """Whether the text is an http or https URL with a host and, if any, a valid port."""
    try:
        url = urlsplit(text)
        return url.scheme in _DEFAULT_PORTS and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _either_case(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _is_excluded(server: str, no_proxy: str) -> bool:
    url = urlsplit(server)
    host = (url.hostname or "").rstrip(".")
    port = url.port or _DEFAULT_PORTS.get(url.scheme)
    return any(_matches(entry.strip().lower(), host, port) for entry in no_proxy.split(",") if entry.strip())


def _matches(entry: str, host: str, port: int | None) -> bool:
    if entry == "*":
        return True
    address, network = _parse_address(host), _parse_network(entry)
    if network is not None:
        return address is not None and address in network
    name, colon, entry_port = entry.rpartition(":")
    if colon and entry_port.isdigit():
        if int(entry_port) != port:
            return False
        entry = name.strip("[]")
    if address is not None:
        return address == _parse_address(entry)
    suffix = entry.removeprefix("*")
    return host == suffix or host.endswith(suffix if suffix.startswith(".") else f".{suffix}")


def _is_loopback(host: str) -> bool:
    address = _parse_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
