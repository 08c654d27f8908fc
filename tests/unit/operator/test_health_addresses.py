"""Probes and metrics are served on one port or on two, as the flags say."""

from __future__ import annotations

import pytest

from dlop.operator.health import EndpointPath, sites
from dlop.operator.settings import Settings, SettingsError

ALL = set(EndpointPath)
METRICS = {EndpointPath.METRICS}
PROBES = {EndpointPath.HEALTH, EndpointPath.READINESS}


def served(addresses: dict[str, str], *, in_cluster: bool = True) -> list[tuple[str, int, set[EndpointPath]]]:
    settings = Settings.model_validate(addresses)
    return [(site.host, site.port, set(site.pages)) for site in sites(settings, in_cluster=in_cluster)]


@pytest.mark.parametrize(
    ("address", "in_cluster", "expected"),
    [
        ("", False, [("127.0.0.1", 8080, ALL)]),
        ("", True, [("0.0.0.0", 8080, ALL)]),
        (":9000", False, [("0.0.0.0", 9000, ALL)]),
        ("[::1]:9000", True, [("::1", 9000, ALL)]),
        ("off", True, []),
    ],
)
def test_by_default_all_is_on_one_port_outside_a_cluster_on_the_loopback(
    address: str, in_cluster: bool, expected: list[tuple[str, int, set[EndpointPath]]]
) -> None:
    assert served({"bind_address": address}, in_cluster=in_cluster) == expected


def test_metrics_and_probes_can_have_a_port_each() -> None:
    found = served({"metrics_bind_address": "127.0.0.1:8443", "health_probe_bind_address": ":9090"})
    assert found == [("127.0.0.1", 8443, METRICS), ("0.0.0.0", 9090, PROBES)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"metrics_bind_address": ":9090"}, [("0.0.0.0", 9090, METRICS), ("0.0.0.0", 8081, PROBES)]),
        ({"health_probe_bind_address": ":9090"}, [("0.0.0.0", 8080, METRICS), ("0.0.0.0", 9090, PROBES)]),
        ({"metrics_bind_address": "0"}, [("0.0.0.0", 8081, PROBES)]),
        ({"health_probe_bind_address": "off"}, [("0.0.0.0", 8080, METRICS)]),
    ],
)
def test_who_gives_one_of_the_two_gets_the_other_where_kubeflow_s_operator_had_it(
    given: dict[str, str], expected: list[tuple[str, int, set[EndpointPath]]]
) -> None:
    assert served(given) == expected


def test_what_is_on_the_same_port_is_served_together() -> None:
    assert served({"metrics_bind_address": ":9090", "health_probe_bind_address": ":9090"}) == [("0.0.0.0", 9090, ALL)]
    assert served({"bind_address": ":9090", "metrics_bind_address": ":9090"}) == [("0.0.0.0", 9090, ALL), ("0.0.0.0", 8081, PROBES)]


def test_two_ports_that_are_left_open_are_two() -> None:
    assert len(served({"metrics_bind_address": ":0", "health_probe_bind_address": ":0"})) == 2


@pytest.mark.parametrize("setting", ["bind_address", "metrics_bind_address", "health_probe_bind_address"])
@pytest.mark.parametrize("address", ["localhost", "8080", ":http", ":65536"])
def test_an_address_without_a_port_is_refused_by_the_name_of_its_flag(setting: str, address: str) -> None:
    with pytest.raises(SettingsError, match=f"--{setting.replace('_', '-')} is '{address}'; write host:port"):
        served({setting: address})
