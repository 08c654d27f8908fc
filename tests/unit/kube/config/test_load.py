"""Where the cluster is looked for, and what is said when it is not found: one sentence, the file, the way out."""

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

from dlop.kube.config.cluster import Access, ClusterConfig
from dlop.kube.config.load import load as load_config
from dlop.kube.errors import ConfigurationError
from tests.transport.certificates import Authority
from tests.transport.kubeconfigs import exec_answer, exec_user, kubeconfig

SHELL = {"PATH": os.environ["PATH"]}


async def load(path: Path | str | None = None, **options: Any) -> ClusterConfig:
    options.setdefault("environ", SHELL)
    return await load_config(path, **options)


async def _access(path: Path | str | None = None, **options: Any) -> Access:
    return await (await load(path, **options)).credentials.read(refused=False)


async def refusal(path: Path | str | None = None, **options: Any) -> str:
    """The one sentence that a useless configuration leads to."""
    with pytest.raises(ConfigurationError) as caught:
        await _access(path, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


async def authorization(connection: ClusterConfig) -> str | None:
    return (await connection.credentials.read(refused=False)).authorization


# --- where it is looked for --------------------------------------------------------------------------------------------


async def test_the_current_context_is_used_where_none_is_given(tmp_path: Path) -> None:
    connection = await load(kubeconfig(tmp_path, server="http://one:1/", user={"token": "t"}, namespace="lab"))
    assert (connection.server, connection.namespace, await authorization(connection)) == ("http://one:1", "lab", "Bearer t")


async def test_the_named_context_is_used(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path, server="http://one:1", context="one", file="one")
    second = kubeconfig(tmp_path, server="http://two:2", context="two", file="two")
    both = {"KUBECONFIG": f"{first}{os.pathsep}{second}{os.pathsep}{tmp_path / 'missing'}"}
    assert (await load(environ=both, context="one")).server == "http://one:1"
    connection = await load(environ=both, context="two")
    assert connection.server == "http://two:2"
    assert connection.origin == f"kubeconfig {both['KUBECONFIG']}, context two"


async def test_a_path_that_was_passed_goes_before_the_environment(tmp_path: Path) -> None:
    passed = kubeconfig(tmp_path, server="http://passed:1", file="passed")
    other = kubeconfig(tmp_path, server="http://other:1", file="other")
    assert (await load(passed, environ={"KUBECONFIG": str(other)})).server == "http://passed:1"


async def test_the_home_folder_comes_last(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube", server="http://home:1")
    assert (await load(environ={"HOME": str(tmp_path)})).server == "http://home:1"


async def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_bytes(Authority().pem)
    (tmp_path / "namespace").write_text("lab")
    environ = {
        "KUBERNETES_SERVICE_HOST": "fd00::1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HTTPS_PROXY": "http://proxy:1",
        "NO_PROXY": "fd00::/8",
    }
    connection = await load(environ=environ, service_account=tmp_path)
    assert (connection.server, connection.namespace, connection.proxy) == ("https://[fd00::1]:443", "lab", None)
    access = await connection.credentials.read(refused=False)
    assert access.authorization == "Bearer secret"
    assert access.tls is not None


async def test_reading_a_configuration_leaves_the_default_of_the_process_alone(tmp_path: Path) -> None:
    before = vars(Configuration)["_default"]
    connection = await load(kubeconfig(tmp_path, server="http://one:1", user={"token": "t"}))
    await connection.credentials.read(refused=True)
    assert vars(Configuration)["_default"] is before


async def test_proxies_come_from_the_kubeconfig_or_else_from_the_environment(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://environment:1"}
    user = {"token": "t"}
    plain = kubeconfig(tmp_path, server="https://api.lab:6443", user=user)
    assert (await load(plain, environ=environ)).proxy == "http://environment:1"
    assert (await load(plain)).proxy is None
    own = kubeconfig(tmp_path, server="https://api.lab:6443", user=user, cluster={"proxy-url": "http://own:1"})
    assert (await load(own, environ=environ)).proxy == "http://own:1"


# --- users -------------------------------------------------------------------------------------------------------------


async def test_a_token_file_goes_before_a_token_and_is_found_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from-file\n")
    connection = await load(kubeconfig(tmp_path, user={"tokenFile": "secret", "token": "inline"}))
    assert await authorization(connection) == "Bearer from-file"


async def test_a_name_and_password_are_basic_authentication(tmp_path: Path) -> None:
    connection = await load(kubeconfig(tmp_path, user={"username": "alice", "password": "secret"}))
    assert await authorization(connection) == "Basic YWxpY2U6c2VjcmV0"


async def test_a_plugin_is_told_about_the_cluster_when_it_asks(tmp_path: Path) -> None:
    script = f'echo "$KUBERNETES_EXEC_INFO" > "{tmp_path}/told"; echo "$COLOUR" > "{tmp_path}/colour"; echo \'{exec_answer(token="t")}\''
    user = exec_user(script, provideClusterInfo=True, env=[{"name": "COLOUR", "value": "red"}])
    path = kubeconfig(tmp_path, server="https://api.lab:6443", user=user, cluster={"insecure-skip-tls-verify": True})
    assert await authorization(await load(path)) == "Bearer t"
    told = yaml.safe_load((tmp_path / "told").read_text())
    assert told["kind"] == "ExecCredential"
    assert told["spec"] == {
        "interactive": False,
        "cluster": {"server": "https://api.lab:6443", "insecure-skip-tls-verify": True, "config": None},
    }
    assert (tmp_path / "colour").read_text() == "red\n"


async def test_a_plugin_named_by_a_relative_path_is_beside_the_kubeconfig(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho '{exec_answer(token='t')}'\n")
    plugin.chmod(0o755)
    assert await authorization(await load(kubeconfig(tmp_path, user=exec_user("", command="./plugin")))) == "Bearer t"


async def test_a_plugin_that_complains_at_length_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    script = f"head -c 300000 /dev/zero | tr '\\0' x >&2; echo '{exec_answer(token='t')}'"
    assert await authorization(await load(kubeconfig(tmp_path, user=exec_user(script)))) == "Bearer t"


@pytest.mark.parametrize(
    ("user", "words"),
    [
        (exec_user("echo no session >&2; exit 4"), ("code 4", "no session", "run it by hand")),
        (exec_user("echo hello"), ("did not answer with an ExecCredential",)),
        (exec_user(f"echo '{exec_answer()}'"), ("neither a token nor a certificate",)),
        (exec_user(f"echo '{exec_answer(token='t').replace('/v1', '/v1beta1')}'"), ("v1beta1",)),
        (
            exec_user("", command="no-such-program-here", installHint="get it from the shop"),
            ("no-such-program-here", "get it from the shop"),
        ),
        (exec_user("", command="no-such-program-here"), ("no-such-program-here", "install it")),
        (exec_user("", interactiveMode="Always"), ("terminal",)),
        ({"exec": {"command": "sh"}}, ("apiVersion",)),
        ({"as": "root", "token": "t"}, ("act as another user",)),
        ({"token": "two\nlines"}, ("the token of", "line break", "get a new one")),
        ({"token": "tök"}, ("the token of", "get a new one")),
        ({"tokenFile": "missing"}, ("token file", "missing")),
    ],
)
async def test_a_user_that_gives_no_credentials_is_named_with_the_kubeconfig(
    tmp_path: Path, user: dict[str, Any], words: tuple[str, ...]
) -> None:
    path = kubeconfig(tmp_path, user=user)
    sentence = await refusal(path)
    assert f"kubeconfig {path}, context lab" in sentence
    for word in words:
        assert word in sentence


async def test_an_empty_token_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    assert str(tmp_path / "token") in await refusal(kubeconfig(tmp_path, user={"tokenFile": "token"}))


# --- what is wrong with a kubeconfig -----------------------------------------------------------------------------------


async def test_a_missing_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "missing"
    assert await refusal(path) == f"kubeconfig {path} does not exist: set KUBECONFIG to one that does, or pass its path"
    assert str(tmp_path / ".kube" / "config") in await refusal(environ={"HOME": str(tmp_path)})


async def test_a_kubeconfig_that_is_a_folder(tmp_path: Path) -> None:
    assert f"kubeconfig {tmp_path} is not a file" in await refusal(tmp_path)


async def test_a_kubeconfig_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubeconfig(tmp_path)
    path.chmod(0)
    # The superuser may read anything, and tests may run as that.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert f"kubeconfig {path} may not be read by this user: change its permissions" in await refusal(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{ not yaml", "is not YAML"),
        (b"\xff\xfe\x00rubbish\xff", "is not YAML"),
        (b"", "is YAML but no kubeconfig"),
        (b"just words", "is YAML but no kubeconfig"),
        (b"- a\n- b\n", "is YAML but no kubeconfig"),
        (b"kind: Config\nclusters: 7\n", "is YAML but no kubeconfig"),
        (b"kind: Config\nclusters: [{}]\n", "has no current-context"),
        (b"kind: Config\ncurrent-context: lab\n", "has no context lab; it has: none at all"),
        (b"kind: Config\n", "has no current-context: name one"),
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
            "names no user",
        ),
    ],
)
async def test_a_kubeconfig_that_makes_no_sense(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(text)
    sentence = await refusal(path)
    assert f"kubeconfig {path}" in sentence
    assert words in sentence


async def test_a_context_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    assert await refusal(path, context="moon") == f"kubeconfig {path} has no context moon; it has: lab"


@pytest.mark.parametrize("server", ["ftp://lab", "https://lab:port", "https://lab:99999", "https://", "https://[::1", "lab:6443"])
async def test_a_server_that_is_no_address_is_named_with_the_kubeconfig(tmp_path: Path, server: str) -> None:
    path = kubeconfig(tmp_path, server=server)
    with pytest.raises(ConfigurationError, match=f"kubeconfig {path}.*is no http or https address: set cluster.server"):
        await load_config(path)


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "http://proxy:port"])
async def test_a_proxy_of_a_kind_that_cannot_be_spoken_to(tmp_path: Path, proxy: str) -> None:
    path = kubeconfig(tmp_path, cluster={"proxy-url": proxy})
    assert f"kubeconfig {path}" in await refusal(path)


async def test_a_pod_without_a_service_account(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    sentence = await refusal(environ=environ, service_account=tmp_path / "missing")
    assert str(tmp_path / "missing") in sentence
    assert "automountServiceAccountToken" in sentence


# --- what it costs -----------------------------------------------------------------------------------------------------


def test_the_client_can_be_imported_without_the_slow_libraries() -> None:
    program = "import sys, dlop.kube.client; print(sorted({'aiohttp', 'kubernetes_asyncio', 'cryptography'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_http_transport_can_be_imported_without_kubernetes_asyncio() -> None:
    program = "import sys, dlop.kube.http.transport; print('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"


def test_reading_a_kubeconfig_brings_none_of_the_models_of_kubernetes_asyncio_and_leaves_it_whole_for_others(tmp_path: Path) -> None:
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
