"""What names mean inside of a pod: the text of its hosts file, from the services and pods of the cluster. Pure.

A service's name stands for the addresses of its pods, headless or not, ready or not: there is no proxy in between, and who
starts first finds who starts later. The short name is for pods of the same namespace.

Pods and services of the API as `names` knows them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dlop.kube.types import JsonObject

CLUSTER_DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPod:
    """A pod that has an address, or had one: that of a pod that is over is empty."""

    namespace: str
    name: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    """As the spec gives it, if it does."""
    subdomain: str = ""
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Addresses and the names that the spec gives them."""

    @property
    def own_name(self) -> str:
        """What the pod calls itself: a hostname has at most 63 characters."""
        return self.hostname or self.name[:63].rstrip("-.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedService:
    """A service that selects pods."""

    namespace: str
    name: str
    selector: Mapping[str, str]
    is_headless: bool = False


class Names:
    """All names at one moment."""

    def __init__(self, services: Iterable[NamedService], pods: Iterable[NamedPod]) -> None:
        # By label, so that a job of hundreds of services with a pod each is no matter of their product.
        self._labelled: dict[tuple[str, str, str], list[NamedPod]] = {}
        for pod in pods:
            for key, value in pod.labels.items():
                self._labelled.setdefault((pod.namespace, key, value), []).append(pod)
        self._lines: list[str] = []
        self._empty: list[NamedService] = []
        self._addresses: dict[str, dict[str, str]] = {}
        self._short: dict[str, list[str]] = {}
        for service in services:
            self._add(service)
        self._common = "".join(self._lines)
        self._short_text = {namespace: "".join(lines) for namespace, lines in self._short.items()}

    def hosts(self, pod: NamedPod) -> str:
        """The hosts file of a pod."""
        own = f"{_full(pod.own_name, pod.subdomain, pod.namespace)} {pod.own_name}" if pod.subdomain else pod.own_name
        aliases = "".join(f"{address}\t{' '.join(names)}\n" for address, names in pod.host_aliases)
        short = self._short_text.get(pod.namespace, "")
        return f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{pod.address}\t{own}\n{aliases}{short}{self._common}"

    def addresses(self, *, namespace: str) -> Mapping[str, str]:
        """One address for every name, as seen from a namespace: for places where there is no hosts file."""
        if namespace not in self._addresses:
            self._addresses[namespace] = self._first_addresses(namespace)
        return self._addresses[namespace]

    def _first_addresses(self, namespace: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in (*self._short.get(namespace, ()), *self._lines):
            address, *names = line.split()
            for name in names:
                found.setdefault(name, address)
        return found

    def nameless(self, *, namespace: str) -> set[str]:
        """The names, as seen from a namespace, of services that have no pod yet. One whose pods are over has had them."""
        return {name for service in self._empty for name in _forms(service, namespace)}

    def _add(self, service: NamedService) -> None:
        selected = self._selected(service)
        if service.selector and not selected:
            self._empty.append(service)
        for pod in (each for each in selected if each.address):
            self._add_name(service.name, service.namespace, pod.address)
            if service.is_headless and pod.subdomain == service.name and pod.hostname:
                self._add_name(f"{pod.hostname}.{service.name}", service.namespace, pod.address)

    def _selected(self, service: NamedService) -> list[NamedPod]:
        piles = [self._labelled.get((service.namespace, key, value), []) for key, value in service.selector.items()]
        fewest = min(piles, key=len, default=[])
        return [pod for pod in fewest if all(pod.labels.get(key) == value for key, value in service.selector.items())]

    def _add_name(self, name: str, namespace: str, address: str) -> None:
        self._lines.append(f"{address}\t{' '.join(_longer(name, namespace))}\n")
        self._short.setdefault(namespace, []).append(f"{address}\t{name}\n")


def _longer(name: str, namespace: str) -> list[str]:
    return [f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{CLUSTER_DOMAIN}"]


def _forms(service: NamedService, namespace: str) -> list[str]:
    short = [service.name] if service.namespace == namespace else []
    return short + _longer(service.name, service.namespace)


def _full(hostname: str, subdomain: str, namespace: str) -> str:
    return f"{hostname}.{subdomain}.{namespace}.svc.{CLUSTER_DOMAIN}"


def named_pod(pod: JsonObject, address: str) -> NamedPod:
    """A pod under its names, with the address that it has."""
    metadata, spec = pod["metadata"], pod["spec"]
    return NamedPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        address=address,
        labels=metadata.get("labels") or {},
        hostname=spec.get("hostname") or "",
        subdomain=spec.get("subdomain") or "",
        host_aliases=tuple((each["ip"], tuple(each.get("hostnames") or ())) for each in spec.get("hostAliases") or ()),
    )


def named_service(service: JsonObject) -> NamedService:
    """A service under its name."""
    metadata, spec = service["metadata"], service["spec"]
    return NamedService(
        namespace=metadata["namespace"],
        name=metadata["name"],
        selector=spec.get("selector") or {},
        is_headless=spec.get("clusterIP") == "None",
    )
