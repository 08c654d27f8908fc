"""Pods that ask the API server for something, as themselves: with what their service account may do, and not more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes_build import require_assets

from dlop.embedded.kubelet.image_map import Image
from dlop.embedded.kubelet.runtime.detect import choose
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.jobs.list_watch import WatchScope, follow
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject
from tests.local.local_world import PATIENCE_SECONDS, LaptopWorld, laptop_world

pytestmark = pytest.mark.timeout(180)

KUBECTL = "/opt/kube/kubectl"
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_ASK = f'curl -s --cacert {_ACCOUNT}/ca.crt -H "Authorization: Bearer $(cat {_ACCOUNT}/token)"'
_SERVER = "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT"
_SHARED = {"name": "kubectl", "mountPath": "/opt/kube"}


@dataclass(frozen=True)
class Told:
    """What a pod wrote, and how it ended."""

    code: int
    text: str


@dataclass(frozen=True)
class World:
    """A laptop cluster with a pod to run commands in."""

    laptop: LaptopWorld

    async def create(self, body: JsonObject) -> None:
        resource = {each.kind: each for each in (PODS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS)}[body["kind"]]
        await self.laptop.client.create(resource, {"apiVersion": resource.api_version, **body}, namespace="default")

    async def run(self, name: str, script: str, *, account: str = "bot", image: str = "x/kubectl-delivery:1", **spec: Any) -> Told:
        """Run a script in a pod that has been brought a kubectl, and wait for its end."""
        delivery = {
            "name": "delivery",
            "image": image,
            "env": [{"name": "TARGET_DIR", "value": "/opt/kube"}],
            "volumeMounts": [_SHARED],
        }
        main = {"name": "main", "image": "none", "command": ["sh", "-c", f"exec 2>&1; {script}"], "volumeMounts": [_SHARED]}
        fields = {"serviceAccountName": account} if account else {}
        await self.create(
            {
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {
                    "restartPolicy": "Never",
                    "initContainers": [delivery],
                    "containers": [main],
                    "volumes": [{"name": "kubectl", "emptyDir": {}}],
                    **fields,
                    **spec,
                },
            }
        )
        status = await self.state(name, "Succeeded", "Failed")
        answer = await self.laptop.client.call("GET", PODS.path(namespace="default", name=name, subresource="log"))
        return Told(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], answer.body.decode())

    async def state(self, name: str, *phases: str) -> JsonObject:
        """The status of a pod as soon as it is in one of the phases."""
        scope = WatchScope(resource=PODS, namespace="default")
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(follow(self.laptop.client, scope, Pod)) as all_news:
            async for _ in all_news:
                found: JsonObject = (await self.laptop.client.get(PODS, name, namespace="default")).get("status") or {}
                if found.get("phase") in phases:
                    return found
        raise AssertionError(f"{name} was never {phases}")


def rights(*pods: str) -> list[JsonObject]:
    """An account that may run commands in these pods."""
    look = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    run = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"], "resourceNames": list(pods)}
    return [
        {"kind": "ServiceAccount", "metadata": {"name": "bot"}},
        {"kind": "Role", "metadata": {"name": "bot"}, "rules": [look, run]},
        {
            "kind": "RoleBinding",
            "metadata": {"name": "bot"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bot"},
            "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
        },
    ]


def target(name: str) -> JsonObject:
    """A pod that waits for commands, with two containers."""
    containers = [
        {"name": each, "image": "none", "command": ["sleep", "365d"], "env": [{"name": "ME", "value": f"{name}/{each}"}]}
        for each in ("first", "second")
    ]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, "terminationGracePeriodSeconds": 0}}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    chosen = await choose()
    if isinstance(chosen.runtime, PlainRuntime):
        pytest.skip(chosen.reason)
    images = [Image(name="whole/kubectl-delivery", command=("sh", "-c", f"cp {_kubectl()} $TARGET_DIR/"))]
    async with laptop_world(tmp_path / "cluster", images=images, visible=[_kubectl().parent]) as laptop:
        found = World(laptop)
        for body in (*rights("target"), target("target"), target("other")):
            await found.create(body)
        await found.state("target", "Running")
        await found.state("other", "Running")
        yield found


def _kubectl() -> Path:
    return require_assets(("kubectl",))["kubectl"]


@pytest.mark.parametrize("image", ["ghcr.io/kubeflow/training-v1/kubectl-delivery:latest", "whole/kubectl-delivery"])
async def test_a_command_runs_in_another_pod_and_its_words_and_exit_code_come_back(world: World, image: str) -> None:
    script = f"{KUBECTL} exec target -- /bin/sh -c 'echo $ME on $(hostname); echo trouble >&2; exit 7'"
    told = await world.run("caller", script, image=image)
    assert told.code == 7
    assert "target/first on target\n" in told.text
    assert "trouble\n" in told.text
    assert "command terminated with exit code 7" in told.text


@pytest.mark.parametrize("image", ["x/kubectl-delivery:1", "whole/kubectl-delivery"])
async def test_the_container_can_be_chosen(world: World, image: str) -> None:
    told = await world.run("caller", f"{KUBECTL} exec target --container second -- sh -c 'echo $ME'", image=image)
    assert (told.code, told.text.splitlines()[-1:]) == (0, ["target/second"])


@pytest.mark.parametrize("image", ["x/kubectl-delivery:1", "whole/kubectl-delivery"])
async def test_a_command_in_a_pod_that_is_not_the_accounts_to_use_is_refused(world: World, image: str) -> None:
    told = await world.run("caller", f"{KUBECTL} exec other -- touch /tmp/made", image=image)
    assert told.code == 1
    assert 'User "system:serviceaccount:default:bot" cannot create resource "pods/exec" in API group "" in the namespace' in told.text


async def test_a_pod_that_is_not_there_is_told(world: World) -> None:
    told = await world.run("caller", f"{KUBECTL} exec nobody -- true")
    assert (told.code, told.text) == (1, 'Error from server (NotFound): pods "nobody" not found\n')


@pytest.mark.parametrize("words", ["get pods", "exec target", "exec -it target -- sh"])
async def test_what_the_small_kubectl_cannot_do_it_says(world: World, words: str) -> None:
    told = await world.run("caller", f"{KUBECTL} {words}")
    assert told.code == 2
    assert "usage: kubectl" in told.text


async def test_a_pod_on_the_machines_network_reaches_the_server_too(world: World) -> None:
    told = await world.run("caller", f"{KUBECTL} exec target -- hostname", hostNetwork=True)
    assert (told.code, told.text) == (0, "target\n")


async def test_a_token_ends_with_its_pod(world: World) -> None:
    ask = f"{_ASK} {_SERVER}/api/v1/namespaces/default/pods/target"
    told = await world.run("caller", f"{ask} | grep -c Running; cat {_ACCOUNT}/token")
    count, token = told.text.split()
    assert (told.code, count) == (0, "1")
    await world.laptop.client.delete(PODS, "caller", namespace="default")
    stolen = ask.replace(f"$(cat {_ACCOUNT}/token)", token)
    later = await world.run("thief", f"{stolen} | grep -c Unauthorized")
    assert (later.code, later.text) == (0, "1\n")


@pytest.mark.parametrize("account", ["", "default", "only-on-my-cluster"])
async def test_a_pod_without_an_account_of_its_own_has_no_token_and_the_server_does_not_know_it(world: World, account: str) -> None:
    told = await world.run("caller", f"ls {_ACCOUNT}; echo server=$KUBERNETES_SERVICE_HOST", account=account)
    assert told.code == 0
    assert told.text.splitlines()[-1] == "server="
    assert "token" not in told.text


async def test_a_pod_that_wants_no_token_gets_none(world: World) -> None:
    told = await world.run("caller", f"ls {_ACCOUNT}", automountServiceAccountToken=False)
    assert told.code != 0
