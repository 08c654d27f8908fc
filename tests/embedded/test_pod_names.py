"""Pods find each other by name: every form, across namespaces, headless and not, before readiness."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from dlop.embedded.kubelet.runtime.detect import choose
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.kube.resources import NAMESPACES, PODS, SERVICES
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import PYTHON, pod
from tests.embedded.node_world import NodeWorld, embedded_world

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
# It waits for names that mean nothing yet, as every client of a job does.
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
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NodeWorld]:
    runtime = PlainRuntime(dice=Random(2)) if request.param == "plain" else (await choose()).runtime
    async with embedded_world(runtime, tmp_path) as world:
        for name in ("one", "two"):
            await world.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield world


async def test_pods_of_two_namespaces_find_each_other_by_every_form_of_name(world: NodeWorld) -> None:
    for namespace in ("one", "two"):
        await _serve(world, "server", namespace=namespace, headless=namespace == "one")
    forms = ["server", "server.one", "server.one.svc", "server.one.svc.cluster.local"]
    await _ask(world, "client", [*forms, "server.two", "server.two.svc", "server.two.svc.cluster.local"])
    assert world.output("client").split() == ["one"] * 4 + ["two"] * 3


async def test_a_pod_finds_a_service_whose_pod_comes_later(world: NodeWorld) -> None:
    world.namespace = "one"
    await _create_service(world, "server", namespace="one", headless=True)
    await world.run_pod("client", _client(["server"]))
    await world.sees("client", {"podIP": re.compile(".")})
    await _serve_pod(world, "server", namespace="one")
    await world.sees_the_end("client")
    assert world.output("client") == "one\n"


async def _serve(world: NodeWorld, name: str, *, namespace: str, headless: bool) -> None:
    await _create_service(world, name, namespace=namespace, headless=headless)
    await _serve_pod(world, name, namespace=namespace)


async def _create_service(world: NodeWorld, name: str, *, namespace: str, headless: bool) -> None:
    spec: JsonObject = {"selector": {"app": name}, "ports": [{"port": _PORT}]}
    if headless:
        spec["clusterIP"] = "None"
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
    await world.client.create(SERVICES, body, namespace=namespace)


async def _serve_pod(world: NodeWorld, name: str, *, namespace: str) -> None:
    own = {"name": "OWN", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    container = {
        "name": "main",
        "image": "x",
        "command": [PYTHON, "-I", "-S", "-c", _SERVER.format(port=_PORT)],
        "env": [own, {"name": "NAME", "value": namespace}],
        # Never ready: names are found all the same.
        "readinessProbe": {"exec": {"command": ["false"]}, "initialDelaySeconds": 600},
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": pod(container)}
    await world.client.create(PODS, body, namespace=namespace)


def _client(names: list[str]) -> JsonObject:
    command = [PYTHON, "-I", "-S", "-c", _CLIENT.format(port=_PORT)]
    return pod({"name": "main", "image": "x", "command": command, "env": [{"name": "NAMES", "value": ",".join(names)}]})


async def _ask(world: NodeWorld, name: str, names: list[str]) -> None:
    world.namespace = "one"
    await world.run_pod(name, _client(names))
    await world.sees_the_end(name)
