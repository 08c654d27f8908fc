"""Proxy settings from the environment."""

from __future__ import annotations

import pytest

from dlop.kube.config.proxies import proxy_from_environment, validate_proxy
from dlop.kube.errors import ConfigurationError

SERVER = "https://api.lab.example.org:6443"


def test_without_environment_variables_there_is_no_proxy() -> None:
    assert proxy_from_environment(SERVER, {}) is None


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_the_proxy_is_chosen_by_the_scheme_of_the_server(name: str) -> None:
    environ = {name: "http://proxy:3128", "HTTP_PROXY": "http://other:3128"}
    assert proxy_from_environment(SERVER, environ) == "http://proxy:3128"
    assert proxy_from_environment("http://api.lab.example.org", environ) == "http://other:3128"


def test_a_proxy_without_a_scheme_uses_http() -> None:
    assert proxy_from_environment(SERVER, {"HTTPS_PROXY": "proxy:3128"}) == "http://proxy:3128"


@pytest.mark.parametrize("server", ["https://localhost:6443", "https://127.0.0.1:6443", "https://[::1]:6443"])
def test_a_loopback_address_is_never_proxied(server: str) -> None:
    assert proxy_from_environment(server, {"HTTPS_PROXY": "http://proxy:3128"}) is None


@pytest.mark.parametrize(
    ("server", "no_proxy", "is_proxied"),
    [
        (SERVER, "*", False),
        (SERVER, "api.lab.example.org", False),
        (SERVER, "example.org", False),
        (SERVER, ".example.org", False),
        (SERVER, "*.example.org", False),
        (SERVER, "other.org, lab.example.org", False),
        (SERVER, "api.lab.example.org:6443", False),
        (SERVER, "api.lab.example.org:443", True),
        (SERVER, "ample.org", True),
        (SERVER, "", True),
        (SERVER, ",", True),
        ("https://10.96.0.1:443", "10.0.0.0/8", False),
        ("https://10.96.0.1", "10.96.0.1", False),
        ("https://10.96.0.1", "10.96.0.1:443", False),
        ("https://11.96.0.1", "10.0.0.0/8", True),
        ("https://11.96.0.1", "10.0.0.0/99", True),
        ("https://10.96.0.10", "10.96.0.1", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        (SERVER, "10.0.0.0/8", True),
    ],
)
def test_no_proxy_has_names_domains_addresses_and_networks(server: str, no_proxy: str, is_proxied: bool) -> None:
    environ = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy}
    assert (proxy_from_environment(server, environ) is not None) == is_proxied


def test_an_unsupported_proxy_is_reported_with_its_origin() -> None:
    with pytest.raises(ConfigurationError, match="socks5://proxy:1080 of kubeconfig /x"):
        validate_proxy("socks5://proxy:1080", origin="kubeconfig /x")
