"""Loading of cluster configurations: sources, users, and error messages that name the file and how to fix the problem."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_asyncio.client import Configuration

from dlop.kube.config.cluster import ClusterConfig, RequestAuth
from dlop.kube.config.load import load as load_config
from dlop.kube.errors import ConfigurationError
from tests.transport.certificates import CertificateAuthority
from tests.transport.kubeconfigs import exec_output, exec_user, kubeconfig

SHELL = {"PATH": os.environ["PATH"]}


async def load(path: Path | str | None = None, **options: Any) -> ClusterConfig:
    options.setdefault("environ", SHELL)
    return await load_config(path, **options)


async def _read_auth(path: Path | str | None = None, **options: Any) -> RequestAuth:
    return await (await load(path, **options)).credentials.read(rejected=False)


async def error_message(path: Path | str | None = None, **options: Any) -> str:
    """The message of the ConfigurationError, which has one line."""
    with pytest.raises(ConfigurationError) as caught:
        await _read_auth(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


async def authorization(config: ClusterConfig) -> str | None:
    return (await config.credentials.read(rejected=False)).authorization


# --- sources -----------------------------------------------------------------------------------------------------------


async def test_the_current_context_is_the_default(tmp_path: Path) -> None:
    config = await load(kubeconfig(tmp_path, server="http://one:1/", user={"token": "t"}, namespace="lab"))
    assert (config.server, config.namespace, await authorization(config)) == ("http://one:1", "lab", "Bearer t")


async def test_the_named_context_is_used(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path, server="http://one:1", context="one", file="one")
    second = kubeconfig(tmp_path, server="http://two:2", context="two", file="two")
    both = {"KUBECONFIG": f"{first}{os.pathsep}{second}{os.pathsep}{tmp_path / 'missing'}"}
    assert (await load(environ=both, context="one")).server == "http://one:1"
    config = await load(environ=both, context="two")
    assert config.server == "http://two:2"
    assert config.origin == f"kubeconfig {both['KUBECONFIG']}, context two"


async def test_an_explicit_path_takes_precedence_over_the_environment(tmp_path: Path) -> None:
    passed = kubeconfig(tmp_path, server="http://passed:1", file="passed")
    other = kubeconfig(tmp_path, server="http://other:1", file="other")
    assert (await load(passed, environ={"KUBECONFIG": str(other)})).server == "http://passed:1"


async def test_the_kubeconfig_in_the_home_directory_is_the_last_source(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube", server="http://home:1")
    assert (await load(environ={"HOME": str(tmp_path)})).server == "http://home:1"


async def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_bytes(CertificateAuthority().pem)
    (tmp_path / "namespace").write_text("lab")
    environ = {
        "KUBERNETES_SERVICE_HOST": "fd00::1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HTTPS_PROXY": "http://proxy:1",
        "NO_PROXY": "fd00::/8",
    }
    config = await load(environ=environ, service_account=tmp_path)
    assert (config.server, config.namespace, config.proxy) == ("https://[fd00::1]:443", "lab", None)
    auth = await config.credentials.read(rejected=False)
    assert auth.authorization == "Bearer secret"
    assert auth.tls is not None


async def test_loading_does_not_change_the_default_configuration_of_kubernetes_asyncio(tmp_path: Path) -> None:
    before = vars(Configuration)["_default"]
    config = await load(kubeconfig(tmp_path, server="http://one:1", user={"token": "t"}))
    await config.credentials.read(rejected=True)
    assert vars(Configuration)["_default"] is before


async def test_a_proxy_in_the_kubeconfig_takes_precedence_over_the_environment(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://environment:1"}
    user = {"token": "t"}
    plain = kubeconfig(tmp_path, server="https://api.lab:6443", user=user)
    assert (await load(plain, environ=environ)).proxy == "http://environment:1"
    assert (await load(plain)).proxy is None
    own = kubeconfig(tmp_path, server="https://api.lab:6443", user=user, cluster={"proxy-url": "http://own:1"})
    assert (await load(own, environ=environ)).proxy == "http://own:1"


# --- users -------------------------------------------------------------------------------------------------------------


async def test_a_token_file_takes_precedence_over_a_token_and_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from-file\n")
    config = await load(kubeconfig(tmp_path, user={"tokenFile": "secret", "token": "inline"}))
    assert await authorization(config) == "Bearer from-file"


async def test_user_name_and_password_become_basic_authentication(tmp_path: Path) -> None:
    config = await load(kubeconfig(tmp_path, user={"username": "alice", "password": "secret"}))
    assert await authorization(config) == "Basic YWxpY2U6c2VjcmV0"


@pytest.mark.machine
async def test_a_plugin_receives_cluster_info_on_request(tmp_path: Path) -> None:
    script = f'echo "$KUBERNETES_EXEC_INFO" > "{tmp_path}/info"; echo "$COLOR" > "{tmp_path}/color"; echo \'{exec_output(token="t")}\''
    user = exec_user(script, provideClusterInfo=True, env=[{"name": "COLOR", "value": "red"}])
    path = kubeconfig(tmp_path, server="https://api.lab:6443", user=user, cluster={"insecure-skip-tls-verify": True})
    assert await authorization(await load(path)) == "Bearer t"
    info = yaml.safe_load((tmp_path / "info").read_text())
    assert info["kind"] == "ExecCredential"
    assert info["spec"] == {
        "interactive": False,
        "cluster": {"server": "https://api.lab:6443", "insecure-skip-tls-verify": True, "config": None},
    }
    assert (tmp_path / "color").read_text() == "red\n"


@pytest.mark.machine
async def test_the_relative_path_of_a_plugin_starts_at_the_kubeconfig(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho '{exec_output(token='t')}'\n")
    plugin.chmod(0o755)
    assert await authorization(await load(kubeconfig(tmp_path, user=exec_user("", command="./plugin")))) == "Bearer t"


@pytest.mark.machine
async def test_a_plugin_with_much_output_on_stderr_does_not_block(tmp_path: Path) -> None:
    script = f"head -c 300000 /dev/zero | tr '\\0' x >&2; echo '{exec_output(token='t')}'"
    assert await authorization(await load(kubeconfig(tmp_path, user=exec_user(script)))) == "Bearer t"


@pytest.mark.machine
@pytest.mark.parametrize(
    ("user", "words"),
    [
        (exec_user("echo no session >&2; exit 4"), ("code 4", "no session", "run it manually")),
        (exec_user("echo hello"), ("did not print an ExecCredential",)),
        (exec_user(f"echo '{exec_output()}'"), ("neither a token nor a client certificate",)),
        (exec_user(f"echo '{exec_output(token='t').replace('/v1', '/v1beta1')}'"), ("v1beta1",)),
        (
            exec_user("", command="no-such-program-here", installHint="install it with brew"),
            ("no-such-program-here", "install it with brew"),
        ),
        (exec_user("", command="no-such-program-here"), ("no-such-program-here", "install it")),
        (exec_user("", interactiveMode="Always"), ("terminal",)),
        ({"exec": {"command": "sh"}}, ("apiVersion",)),
        ({"as": "root", "token": "t"}, ("impersonation",)),
        ({"token": "two\nlines"}, ("the token of", "line break", "get a new one")),
        ({"token": "tök"}, ("the token of", "get a new one")),
        ({"tokenFile": "missing"}, ("token file", "missing")),
    ],
)
async def test_a_user_without_usable_credentials_is_reported_with_the_kubeconfig(
    tmp_path: Path, user: dict[str, Any], words: tuple[str, ...]
) -> None:
    path = kubeconfig(tmp_path, user=user)
    message = await error_message(path)
    assert f"kubeconfig {path}, context lab" in message
    for word in words:
        assert word in message


async def test_an_empty_token_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    assert str(tmp_path / "token") in await error_message(kubeconfig(tmp_path, user={"tokenFile": "token"}))


# --- invalid kubeconfigs -----------------------------------------------------------------------------------------------


async def test_a_missing_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "missing"
    assert await error_message(path) == f"kubeconfig {path} does not exist: set KUBECONFIG to an existing file, or pass its path"
    assert str(tmp_path / ".kube" / "config") in await error_message(environ={"HOME": str(tmp_path)})


async def test_a_kubeconfig_that_is_a_directory(tmp_path: Path) -> None:
    assert f"kubeconfig {tmp_path} is not a file" in await error_message(tmp_path)


async def test_a_kubeconfig_without_read_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubeconfig(tmp_path)
    path.chmod(0)
    # Tests may run as root, which can read any file.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert f"kubeconfig {path} is not readable by this user: change its permissions" in await error_message(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{ not yaml", "is not valid YAML"),
        (b"\xff\xfe\x00garbage\xff", "is not valid YAML"),
        (b"", "is valid YAML but not a kubeconfig"),
        (b"just words", "is valid YAML but not a kubeconfig"),
        (b"- a\n- b\n", "is valid YAML but not a kubeconfig"),
        (b"kind: Config\nclusters: 7\n", "is valid YAML but not a kubeconfig"),
        (b"kind: Config\nclusters: [{}]\n", "has no current-context"),
        (b"kind: Config\ncurrent-context: lab\n", "has no context lab; existing contexts: none"),
        (b"kind: Config\n", "has no current-context: specify a context"),
        (b"current-context: lab\ncontexts: [{name: lab, context: {cluster: c}}]\n", "is not usable"),
        (b"current-context: lab\ncontexts: [{name: lab}]\n", "is not usable"),
        (b"current-context: lab\ncontexts: [7]\n", "is not usable"),
        (
            b"current-context: lab\ncontexts: [{name: lab, context: {cluster: c}}]\nclusters: [{name: c, cluster: {}}]\n",
            "set cluster.server",
        ),
        (
            b"current-context: lab\ncontexts: [{name: lab, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'a:1'}}]\n",
            "'a:1'",
        ),
        (
            b"current-context: lab\ncontexts: [{name: lab, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 7}}]\n",
            "set cluster.server",
        ),
        (
            b"current-context: lab\ncontexts: [{name: lab, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://a'}}]\n",
            "does not name an existing user",
        ),
    ],
)
async def test_an_invalid_kubeconfig(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(text)
    message = await error_message(path)
    assert f"kubeconfig {path}" in message
    assert words in message


async def test_an_unknown_context_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    assert await error_message(path, context="moon") == f"kubeconfig {path} has no context moon; existing contexts: lab"


@pytest.mark.parametrize("server", ["ftp://lab", "https://lab:port", "https://lab:99999", "https://", "https://[::1", "lab:6443"])
async def test_an_invalid_server_url_is_reported_with_the_kubeconfig(tmp_path: Path, server: str) -> None:
    path = kubeconfig(tmp_path, server=server)
    with pytest.raises(ConfigurationError, match=f"kubeconfig {path}.*is not an http or https URL: set cluster.server"):
        await load_config(path)


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "http://proxy:port"])
async def test_an_unsupported_proxy_is_reported_with_the_kubeconfig(tmp_path: Path, proxy: str) -> None:
    path = kubeconfig(tmp_path, cluster={"proxy-url": proxy})
    assert f"kubeconfig {path}" in await error_message(path)


async def test_a_pod_without_a_service_account(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    message = await error_message(environ=environ, service_account=tmp_path / "missing")
    assert str(tmp_path / "missing") in message
    assert "automountServiceAccountToken" in message


# --- imports -----------------------------------------------------------------------------------------------------------


@pytest.mark.machine
def test_the_client_does_not_import_slow_libraries() -> None:
    program = "import sys, dlop.kube.client; print(sorted({'aiohttp', 'kubernetes_asyncio', 'cryptography'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.machine
def test_the_http_transport_does_not_import_kubernetes_asyncio() -> None:
    program = "import sys, dlop.kube.http.transport; print('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.machine
def test_loading_does_not_import_the_models_of_kubernetes_asyncio_and_keeps_the_package_importable(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from dlop.kube.config.load import load
asyncio.run(load(sys.argv[1]))
assert not [name for name in sys.modules if name.startswith("kubernetes_asyncio")]
from kubernetes_asyncio import client, config
assert client.V1Pod and config.kube_config.ApiClient is client.ApiClient
"""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "config")], check=True)
