"""The hosts file of a pod, built from the services and pods of the cluster. Pure.

The name of a service resolves to the addresses of its pods, headless or not, ready or not, because there is no proxy. Short names are
available in the same namespace only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dlop.kube.types import JsonObject

CLUSTER_DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEntry:
    """A pod with its address. The address of a finished pod is empty."""

    namespace: str
    name: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    """`spec.hostname`; empty if unset."""
    subdomain: str = ""
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Addresses with their host names, from `spec.hostAliases`."""

    @property
    def pod_hostname(self) -> str:
        """The hostname inside the pod, which has at most 63 characters."""
        return self.hostname or self.name[:63].rstrip("-.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEntry:
    namespace: str
    name: str
    selector: Mapping[str, str]
    is_headless: bool = False


class HostsTable:
    """All names at one point in time."""

    def __init__(self, services: Iterable[ServiceEntry], pods: Iterable[PodEntry]) -> None:
        # Indexed by label, so that hundreds of services with one pod each do not need a quadratic number of comparisons.
        self._pods_by_label: dict[tuple[str, str, str], list[PodEntry]] = {}
        for pod in pods:
            for key, value in pod.labels.items():
                self._pods_by_label.setdefault((pod.namespace, key, value), []).append(pod)
        self._lines: list[str] = []
        self._without_pods: list[ServiceEntry] = []
        self._addresses: dict[str, dict[str, str]] = {}
        self._short_lines: dict[str, list[str]] = {}
        for service in services:
            self._add_service(service)
        self._common_text = "".join(self._lines)
        self._short_texts = {namespace: "".join(lines) for namespace, lines in self._short_lines.items()}

    def render(self, pod: PodEntry) -> str:
        """The content of a pod's hosts file."""
        own = f"{_pod_fqdn(pod.pod_hostname, pod.subdomain, pod.namespace)} {pod.pod_hostname}" if pod.subdomain else pod.pod_hostname
        aliases = "".join(f"{address}\t{' '.join(names)}\n" for address, names in pod.host_aliases)
        short = self._short_texts.get(pod.namespace, "")
        return f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{pod.address}\t{own}\n{aliases}{short}{self._common_text}"

    def addresses(self, *, namespace: str) -> Mapping[str, str]:
        """One address for each name, as seen from a namespace, for runtimes without a hosts file."""
        if namespace not in self._addresses:
            self._addresses[namespace] = self._first_addresses(namespace)
        return self._addresses[namespace]

    def _first_addresses(self, namespace: str) -> dict[str, str]:
        first_addresses: dict[str, str] = {}
        for line in (*self._short_lines.get(namespace, ()), *self._lines):
            address, *names = line.split()
            for name in names:
                first_addresses.setdefault(name, address)
        return first_addresses

    def unresolved(self, *, namespace: str) -> set[str]:
        """Names, as seen from a namespace, of services that have no pod yet. Finished pods count."""
        return {name for service in self._without_pods for name in _names_in(service, namespace)}

    def _add_service(self, service: ServiceEntry) -> None:
        selected = self._selected(service)
        if service.selector and not selected:
            self._without_pods.append(service)
        for pod in (item for item in selected if item.address):
            self._add_lines(service.name, service.namespace, pod.address)
            if service.is_headless and pod.subdomain == service.name and pod.hostname:
                self._add_lines(f"{pod.hostname}.{service.name}", service.namespace, pod.address)

    def _selected(self, service: ServiceEntry) -> list[PodEntry]:
        candidates = [self._pods_by_label.get((service.namespace, key, value), []) for key, value in service.selector.items()]
        smallest = min(candidates, key=len, default=[])
        return [pod for pod in smallest if all(pod.labels.get(key) == value for key, value in service.selector.items())]

    def _add_lines(self, name: str, namespace: str, address: str) -> None:
        self._lines.append(f"{address}\t{' '.join(_qualified_names(name, namespace))}\n")
        self._short_lines.setdefault(namespace, []).append(f"{address}\t{name}\n")


def _qualified_names(name: str, namespace: str) -> list[str]:
    return [f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{CLUSTER_DOMAIN}"]


def _names_in(service: ServiceEntry, namespace: str) -> list[str]:
    short = [service.name] if service.namespace == namespace else []
    return short + _qualified_names(service.name, service.namespace)


def _pod_fqdn(hostname: str, subdomain: str, namespace: str) -> str:
    return f"{hostname}.{subdomain}.{namespace}.svc.{CLUSTER_DOMAIN}"


def pod_entry(pod: JsonObject, address: str) -> PodEntry:
    """The entry of a pod object with this address."""
    metadata, spec = pod["metadata"], pod["spec"]
    return PodEntry(
        namespace=metadata["namespace"],
        name=metadata["name"],
        address=address,
        labels=metadata.get("labels") or {},
        hostname=spec.get("hostname") or "",
        subdomain=spec.get("subdomain") or "",
        host_aliases=tuple((alias["ip"], tuple(alias.get("hostnames") or ())) for alias in spec.get("hostAliases") or ()),
    )


def service_entry(service: JsonObject) -> ServiceEntry:
    metadata, spec = service["metadata"], service["spec"]
    return ServiceEntry(
        namespace=metadata["namespace"],
        name=metadata["name"],
        selector=spec.get("selector") or {},
        is_headless=spec.get("clusterIP") == "None",
    )
