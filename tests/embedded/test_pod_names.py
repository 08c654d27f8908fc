"""Pods resolve service names: every form, across namespaces, headless or not, before readiness."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.kube.resources import NAMESPACES, PODS, SERVICES
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import PYTHON, pod
from tests.embedded.node_env import NodeEnv, embedded_node_env

_PORT = 23450
_SERVER = """
import os, socket
listener = socket.create_server((os.environ["OWN"], {port}))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(os.environ["NAME"].encode())
    connection.close()
"""
# Retries names that do not resolve yet, as the clients of a job do.
_CLIENT = """
import os, socket, time
for name in os.environ["NAMES"].split(","):
    while True:
        try:
            with socket.create_connection((name, {port}), timeout=5) as connection:
                print(connection.recv(100).decode(), flush=True)
            break
        except OSError:
            time.sleep(0.02)
"""


@pytest.fixture(params=["isolated", "plain"])
async def env(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NodeEnv]:
    runtime = PlainRuntime(rng=Random(2)) if request.param == "plain" else (await detect_runtime()).runtime
    async with embedded_node_env(runtime, tmp_path) as env:
        for name in ("one", "two"):
            await env.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield env


async def test_names_resolve_in_every_form_across_namespaces(env: NodeEnv) -> None:
    for namespace in ("one", "two"):
        await _create_server(env, "server", namespace=namespace, headless=namespace == "one")
    forms = ["server", "server.one", "server.one.svc", "server.one.svc.cluster.local"]
    await _run_client(env, "client", [*forms, "server.two", "server.two.svc", "server.two.svc.cluster.local"])
    assert env.output("client").split() == ["one"] * 4 + ["two"] * 3


async def test_a_service_resolves_when_its_pod_is_created_later(env: NodeEnv) -> None:
    env.namespace = "one"
    await _create_service(env, "server", namespace="one", headless=True)
    await env.run_pod("client", _client(["server"]))
    await env.wait_for_status("client", {"podIP": re.compile(".")})
    await _create_server_pod(env, "server", namespace="one")
    await env.wait_finished("client")
    assert env.output("client") == "one\n"


async def _create_server(env: NodeEnv, name: str, *, namespace: str, headless: bool) -> None:
    await _create_service(env, name, namespace=namespace, headless=headless)
    await _create_server_pod(env, name, namespace=namespace)


async def _create_service(env: NodeEnv, name: str, *, namespace: str, headless: bool) -> None:
    spec: JsonObject = {"selector": {"app": name}, "ports": [{"port": _PORT}]}
    if headless:
        spec["clusterIP"] = "None"
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
    await env.client.create(SERVICES, body, namespace=namespace)


async def _create_server_pod(env: NodeEnv, name: str, *, namespace: str) -> None:
    own_address = {"name": "OWN", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    container = {
        "name": "main",
        "image": "x",
        "command": [PYTHON, "-I", "-S", "-c", _SERVER.format(port=_PORT)],
        "env": [own_address, {"name": "NAME", "value": namespace}],
        # Never ready, because names resolve before readiness.
        "readinessProbe": {"exec": {"command": ["false"]}, "initialDelaySeconds": 600},
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": pod(container)}
    await env.client.create(PODS, body, namespace=namespace)


def _client(names: list[str]) -> JsonObject:
    command = [PYTHON, "-I", "-S", "-c", _CLIENT.format(port=_PORT)]
    return pod({"name": "main", "image": "x", "command": command, "env": [{"name": "NAMES", "value": ",".join(names)}]})


async def _run_client(env: NodeEnv, name: str, names: list[str]) -> None:
    env.namespace = "one"
    await env.run_pod(name, _client(names))
    await env.wait_finished(name)
