"""Addresses of the health probes and metrics: one port or two, depending on the flags."""

from __future__ import annotations

import pytest

from dlop.operator.health import EndpointPath, list_endpoints
from dlop.operator.settings import Settings, SettingsError

ALL = set(EndpointPath)
METRICS = {EndpointPath.METRICS}
PROBES = {EndpointPath.HEALTH, EndpointPath.READINESS}


def endpoints(addresses: dict[str, str], *, in_cluster: bool = True) -> list[tuple[str, int, set[EndpointPath]]]:
    settings = Settings.model_validate(addresses)
    return [(endpoint.host, endpoint.port, set(endpoint.paths)) for endpoint in list_endpoints(settings, in_cluster=in_cluster)]


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
def test_by_default_all_paths_share_one_port_on_loopback_outside_a_cluster(
    address: str, in_cluster: bool, expected: list[tuple[str, int, set[EndpointPath]]]
) -> None:
    assert endpoints({"bind_address": address}, in_cluster=in_cluster) == expected


def test_metrics_and_probes_can_have_separate_ports() -> None:
    addresses = {"metrics_bind_address": "127.0.0.1:8443", "health_probe_bind_address": ":9090"}
    assert endpoints(addresses) == [("127.0.0.1", 8443, METRICS), ("0.0.0.0", 9090, PROBES)]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ({"metrics_bind_address": ":9090"}, [("0.0.0.0", 9090, METRICS), ("0.0.0.0", 8081, PROBES)]),
        ({"health_probe_bind_address": ":9090"}, [("0.0.0.0", 8080, METRICS), ("0.0.0.0", 9090, PROBES)]),
        ({"metrics_bind_address": "0"}, [("0.0.0.0", 8081, PROBES)]),
        ({"health_probe_bind_address": "off"}, [("0.0.0.0", 8080, METRICS)]),
    ],
)
def test_if_one_separate_address_is_set_the_other_has_the_default_of_kubeflow(
    addresses: dict[str, str], expected: list[tuple[str, int, set[EndpointPath]]]
) -> None:
    assert endpoints(addresses) == expected


def test_endpoints_with_the_same_address_are_merged() -> None:
    assert endpoints({"metrics_bind_address": ":9090", "health_probe_bind_address": ":9090"}) == [("0.0.0.0", 9090, ALL)]
    assert endpoints({"bind_address": ":9090", "metrics_bind_address": ":9090"}) == [("0.0.0.0", 9090, ALL), ("0.0.0.0", 8081, PROBES)]


def test_endpoints_with_port_0_are_not_merged() -> None:
    assert len(endpoints({"metrics_bind_address": ":0", "health_probe_bind_address": ":0"})) == 2


@pytest.mark.parametrize("setting", ["bind_address", "metrics_bind_address", "health_probe_bind_address"])
@pytest.mark.parametrize("address", ["localhost", "8080", ":http", ":65536"])
def test_an_invalid_address_is_rejected_with_the_name_of_its_flag(setting: str, address: str) -> None:
    with pytest.raises(SettingsError, match=f"--{setting.replace('_', '-')}: invalid value '{address}': must be host:port"):
        endpoints({setting: address})
