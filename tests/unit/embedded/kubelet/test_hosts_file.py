from __future__ import annotations

from dlop.embedded.kubelet.hosts_file import HostsTable, PodEntry, ServiceEntry


def _pod(name: str, address: str, *, namespace: str = "a", hostname: str = "", subdomain: str = "", **labels: str) -> PodEntry:
    return PodEntry(namespace=namespace, name=name, address=address, labels=labels, hostname=hostname, subdomain=subdomain)


def _service(name: str, *, namespace: str = "a", headless: bool = True, **selector: str) -> ServiceEntry:
    return ServiceEntry(namespace=namespace, name=name, selector=selector, is_headless=headless)


def _addresses_by_name(hosts_file: str) -> dict[str, set[str]]:
    addresses: dict[str, set[str]] = {}
    for line in hosts_file.splitlines():
        address, *names = line.split()
        for name in names:
            addresses.setdefault(name, set()).add(address)
    return addresses


def test_a_service_resolves_by_every_form_of_its_name() -> None:
    server = _pod("server", "10.0.0.2", app="x")
    table = HostsTable([_service("s", app="x")], [server])
    addresses = _addresses_by_name(table.render(_pod("client", "10.0.0.3")))
    for name in ("s", "s.a", "s.a.svc", "s.a.svc.cluster.local"):
        assert addresses[name] == {"10.0.0.2"}


def test_a_short_name_does_not_resolve_from_another_namespace() -> None:
    table = HostsTable([_service("s", app="x")], [_pod("server", "10.0.0.2", app="x")])
    addresses = _addresses_by_name(table.render(_pod("client", "10.0.0.3", namespace="b")))
    assert "s" not in addresses
    assert addresses["s.a"] == {"10.0.0.2"}


def test_a_short_name_resolves_to_the_service_of_the_same_namespace() -> None:
    pods = [_pod("one", "10.0.0.2", app="x"), _pod("two", "10.0.0.3", namespace="b", app="x")]
    table = HostsTable([_service("s", app="x"), _service("s", namespace="b", app="x")], pods)
    assert _addresses_by_name(table.render(pods[0]))["s"] == {"10.0.0.2"}
    assert _addresses_by_name(table.render(pods[1]))["s"] == {"10.0.0.3"}


def test_a_service_resolves_to_all_its_pods_headless_or_not() -> None:
    pods = [_pod("one", "10.0.0.2", app="x", role="w"), _pod("two", "10.0.0.3", app="x"), _pod("other", "10.0.0.4", app="y")]
    table = HostsTable([_service("all", app="x"), _service("some", headless=False, app="x", role="w")], pods)
    addresses = _addresses_by_name(table.render(pods[2]))
    assert addresses["all"] == {"10.0.0.2", "10.0.0.3"}
    assert addresses["some"] == {"10.0.0.2"}


def test_a_service_without_a_selector_does_not_resolve() -> None:
    assert "s" not in _addresses_by_name(HostsTable([_service("s")], [_pod("one", "10.0.0.2", app="x")]).render(_pod("two", "10.0.0.3")))


def test_a_pod_resolves_its_own_name() -> None:
    assert _addresses_by_name(HostsTable([], []).render(_pod("me", "10.0.0.2")))["me"] == {"10.0.0.2"}


def test_a_pod_with_hostname_and_subdomain_resolves_below_its_headless_service() -> None:
    pod = _pod("p", "10.0.0.2", hostname="w-0", subdomain="s", app="x")
    addresses = _addresses_by_name(HostsTable([_service("s", app="x")], [pod]).render(_pod("client", "10.0.0.3", namespace="b")))
    assert addresses["w-0.s.a.svc.cluster.local"] == {"10.0.0.2"}
    own = _addresses_by_name(HostsTable([], []).render(pod))
    assert own["w-0.s.a.svc.cluster.local"] == {"10.0.0.2"}
    assert own["w-0"] == {"10.0.0.2"}


def test_services_without_a_pod_are_unresolved() -> None:
    table = HostsTable([_service("s", app="x"), _service("t", namespace="b", app="x")], [])
    assert table.unresolved(namespace="a") == {"s", "s.a", "s.a.svc", "s.a.svc.cluster.local", "t.b", "t.b.svc", "t.b.svc.cluster.local"}


def test_a_service_whose_pods_are_finished_does_not_resolve_and_is_not_waited_for() -> None:
    table = HostsTable([_service("s", app="x")], [_pod("done", "", app="x")])
    assert "s" not in _addresses_by_name(table.render(_pod("client", "10.0.0.3")))
    assert table.unresolved(namespace="a") == set()


def test_every_name_has_one_address_without_a_hosts_file() -> None:
    pods = [_pod("one", "127.1.0.1", app="x"), _pod("two", "127.1.0.2", app="x")]
    assert HostsTable([_service("s", app="x")], pods).addresses(namespace="a")["s.a.svc"] == "127.1.0.1"


def test_a_long_pod_name_is_truncated_to_a_hostname() -> None:
    assert len(_pod("x" * 62 + "-" + "y" * 20, "10.0.0.2").pod_hostname) == 62
