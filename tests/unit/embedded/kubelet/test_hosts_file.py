from __future__ import annotations

from dlop.embedded.kubelet.hosts_file import NamedPod, NamedService, Names


def _pod(name: str, address: str, *, namespace: str = "a", hostname: str = "", subdomain: str = "", **labels: str) -> NamedPod:
    return NamedPod(namespace=namespace, name=name, address=address, labels=labels, hostname=hostname, subdomain=subdomain)


def _service(name: str, *, namespace: str = "a", headless: bool = True, **selector: str) -> NamedService:
    return NamedService(namespace=namespace, name=name, selector=selector, is_headless=headless)


def _resolved(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        address, *names = line.split()
        for name in names:
            found.setdefault(name, set()).add(address)
    return found


def test_a_service_is_found_by_every_form_of_its_name() -> None:
    server = _pod("server", "10.0.0.2", app="x")
    names = Names([_service("s", app="x")], [server])
    found = _resolved(names.hosts(_pod("client", "10.0.0.3")))
    for name in ("s", "s.a", "s.a.svc", "s.a.svc.cluster.local"):
        assert found[name] == {"10.0.0.2"}


def test_from_another_namespace_the_short_name_means_nothing() -> None:
    names = Names([_service("s", app="x")], [_pod("server", "10.0.0.2", app="x")])
    found = _resolved(names.hosts(_pod("client", "10.0.0.3", namespace="b")))
    assert "s" not in found
    assert found["s.a"] == {"10.0.0.2"}


def test_the_same_short_name_means_another_service_in_another_namespace() -> None:
    pods = [_pod("one", "10.0.0.2", app="x"), _pod("two", "10.0.0.3", namespace="b", app="x")]
    names = Names([_service("s", app="x"), _service("s", namespace="b", app="x")], pods)
    assert _resolved(names.hosts(pods[0]))["s"] == {"10.0.0.2"}
    assert _resolved(names.hosts(pods[1]))["s"] == {"10.0.0.3"}


def test_a_service_stands_for_all_its_pods_headless_or_not() -> None:
    pods = [_pod("one", "10.0.0.2", app="x", role="w"), _pod("two", "10.0.0.3", app="x"), _pod("other", "10.0.0.4", app="y")]
    names = Names([_service("all", app="x"), _service("some", headless=False, app="x", role="w")], pods)
    found = _resolved(names.hosts(pods[2]))
    assert found["all"] == {"10.0.0.2", "10.0.0.3"}
    assert found["some"] == {"10.0.0.2"}


def test_a_service_without_a_selector_stands_for_nothing() -> None:
    assert "s" not in _resolved(Names([_service("s")], [_pod("one", "10.0.0.2", app="x")]).hosts(_pod("two", "10.0.0.3")))


def test_a_pod_knows_its_own_name() -> None:
    assert _resolved(Names([], []).hosts(_pod("me", "10.0.0.2")))["me"] == {"10.0.0.2"}


def test_a_pod_with_hostname_and_subdomain_is_found_below_its_headless_service() -> None:
    pod = _pod("p", "10.0.0.2", hostname="w-0", subdomain="s", app="x")
    found = _resolved(Names([_service("s", app="x")], [pod]).hosts(_pod("client", "10.0.0.3", namespace="b")))
    assert found["w-0.s.a.svc.cluster.local"] == {"10.0.0.2"}
    own = _resolved(Names([], []).hosts(pod))
    assert own["w-0.s.a.svc.cluster.local"] == {"10.0.0.2"}
    assert own["w-0"] == {"10.0.0.2"}


def test_names_of_services_without_a_pod_are_known_as_such() -> None:
    names = Names([_service("s", app="x"), _service("t", namespace="b", app="x")], [])
    assert names.nameless(namespace="a") == {"s", "s.a", "s.a.svc", "s.a.svc.cluster.local", "t.b", "t.b.svc", "t.b.svc.cluster.local"}


def test_a_service_whose_pods_are_over_means_nothing_and_is_not_waited_for() -> None:
    names = Names([_service("s", app="x")], [_pod("done", "", app="x")])
    assert "s" not in _resolved(names.hosts(_pod("client", "10.0.0.3")))
    assert names.nameless(namespace="a") == set()


def test_each_name_has_one_address_where_there_is_no_hosts_file() -> None:
    pods = [_pod("one", "127.1.0.1", app="x"), _pod("two", "127.1.0.2", app="x")]
    assert Names([_service("s", app="x")], pods).addresses(namespace="a")["s.a.svc"] == "127.1.0.1"


def test_a_long_pod_name_is_cut_to_a_hostname() -> None:
    assert len(_pod("x" * 62 + "-" + "y" * 20, "10.0.0.2").own_name) == 62
