"""Pods access the API server with the permissions of their service account."""

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
from dlop.embedded.kubelet.runtime.base import Mount
from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.jobs.list_watch import WatchScope, list_and_watch
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject
from tests.local.local_cluster_env import TIMEOUT_SECONDS, LocalClusterEnv, local_cluster_env

pytestmark = pytest.mark.timeout(180)

KUBECTL = "/opt/kube/kubectl"
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_CURL = f'curl -s --cacert {_ACCOUNT}/ca.crt -H "Authorization: Bearer $(cat {_ACCOUNT}/token)"'
_SERVER = "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT"
_SHARED = {"name": "kubectl", "mountPath": "/opt/kube"}


@dataclass(frozen=True)
class PodResult:
    code: int
    text: str


@dataclass(frozen=True)
class PodEnv:
    """A local cluster with helpers for pods."""

    cluster: LocalClusterEnv

    async def create(self, body: JsonObject) -> None:
        resource = {resource.kind: resource for resource in (PODS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS)}[body["kind"]]
        await self.cluster.client.create(resource, {"apiVersion": resource.api_version, **body}, namespace="default")

    async def run(self, name: str, script: str, *, account: str = "bot", image: str = "x/kubectl-delivery:1", **spec: Any) -> PodResult:
        """Run a script in a pod with kubectl, and wait until it has terminated."""
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
        status = await self.wait_for_phase(name, "Succeeded", "Failed")
        response = await self.cluster.client.call("GET", PODS.path(namespace="default", name=name, subresource="log"))
        return PodResult(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], response.body.decode())

    async def wait_for_phase(self, name: str, *phases: str) -> JsonObject:
        """Wait until a pod is in one of the phases, and return its status."""
        scope = WatchScope(resource=PODS, namespace="default")
        async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(list_and_watch(self.cluster.client, scope, Pod)) as changes:
            async for _ in changes:
                status: JsonObject = (await self.cluster.client.get(PODS, name, namespace="default")).get("status") or {}
                if status.get("phase") in phases:
                    return status
        raise AssertionError(f"{name} was never {phases}")


def service_account_objects(*pods: str) -> list[JsonObject]:
    """A service account that may run commands in these pods."""
    get_pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    exec_pods = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"], "resourceNames": list(pods)}
    return [
        {"kind": "ServiceAccount", "metadata": {"name": "bot"}},
        {"kind": "Role", "metadata": {"name": "bot"}, "rules": [get_pods, exec_pods]},
        {
            "kind": "RoleBinding",
            "metadata": {"name": "bot"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bot"},
            "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
        },
    ]


def target(name: str) -> JsonObject:
    """A pod with two containers that sleep."""
    containers = [
        {"name": container, "image": "none", "command": ["sleep", "365d"], "env": [{"name": "ME", "value": f"{name}/{container}"}]}
        for container in ("first", "second")
    ]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, "terminationGracePeriodSeconds": 0}}


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[PodEnv]:
    detected = await detect_runtime()
    if isinstance(detected.runtime, PlainRuntime):
        pytest.skip(detected.description)
    images = [Image(name="whole/kubectl-delivery", command=("sh", "-c", f"cp {_kubectl()} $TARGET_DIR/"))]
    async with local_cluster_env(tmp_path / "cluster", images=images, mounts=[Mount.at_same_path(_kubectl().parent)]) as cluster:
        pod_env = PodEnv(cluster)
        for body in (*service_account_objects("target"), target("target"), target("other")):
            await pod_env.create(body)
        await pod_env.wait_for_phase("target", "Running")
        await pod_env.wait_for_phase("other", "Running")
        yield pod_env


def _kubectl() -> Path:
    return require_assets(("kubectl",))["kubectl"]


@pytest.mark.parametrize("image", ["ghcr.io/kubeflow/training-v1/kubectl-delivery:latest", "whole/kubectl-delivery"])
async def test_exec_returns_the_output_and_the_exit_code(env: PodEnv, image: str) -> None:
    script = f"{KUBECTL} exec target -- /bin/sh -c 'echo $ME on $(hostname); echo trouble >&2; exit 7'"
    result = await env.run("caller", script, image=image)
    assert result.code == 7
    assert "target/first on target\n" in result.text
    assert "trouble\n" in result.text
    assert "command terminated with exit code 7" in result.text


@pytest.mark.parametrize("image", ["x/kubectl-delivery:1", "whole/kubectl-delivery"])
async def test_exec_runs_in_the_selected_container(env: PodEnv, image: str) -> None:
    result = await env.run("caller", f"{KUBECTL} exec target --container second -- sh -c 'echo $ME'", image=image)
    assert (result.code, result.text.splitlines()[-1:]) == (0, ["target/second"])


@pytest.mark.parametrize("image", ["x/kubectl-delivery:1", "whole/kubectl-delivery"])
async def test_exec_without_permission_is_forbidden(env: PodEnv, image: str) -> None:
    result = await env.run("caller", f"{KUBECTL} exec other -- touch /tmp/made", image=image)
    assert result.code == 1
    assert 'User "system:serviceaccount:default:bot" cannot create resource "pods/exec" in API group "" in the namespace' in result.text


async def test_exec_in_a_missing_pod_is_not_found(env: PodEnv) -> None:
    result = await env.run("caller", f"{KUBECTL} exec missing -- true")
    assert (result.code, result.text) == (1, 'Error from server (NotFound): pods "missing" not found\n')


@pytest.mark.parametrize("words", ["get pods", "exec target", "exec -it target -- sh"])
async def test_the_small_kubectl_reports_unsupported_commands(env: PodEnv, words: str) -> None:
    result = await env.run("caller", f"{KUBECTL} {words}")
    assert result.code == 2
    assert "usage: kubectl" in result.text


async def test_a_pod_with_host_network_reaches_the_server(env: PodEnv) -> None:
    result = await env.run("caller", f"{KUBECTL} exec target -- hostname", hostNetwork=True)
    assert (result.code, result.text) == (0, "target\n")


async def test_a_token_is_invalid_after_its_pod_was_deleted(env: PodEnv) -> None:
    request = f"{_CURL} {_SERVER}/api/v1/namespaces/default/pods/target"
    result = await env.run("caller", f"{request} | grep -c Running; cat {_ACCOUNT}/token")
    count, token = result.text.split()
    assert (result.code, count) == (0, "1")
    await env.cluster.client.delete(PODS, "caller", namespace="default")
    stolen = request.replace(f"$(cat {_ACCOUNT}/token)", token)
    later = await env.run("thief", f"{stolen} | grep -c Unauthorized")
    assert (later.code, later.text) == (0, "1\n")


@pytest.mark.parametrize("account", ["", "default", "only-on-my-cluster"])
async def test_a_pod_with_the_default_or_an_unknown_account_has_no_token(env: PodEnv, account: str) -> None:
    result = await env.run("caller", f"ls {_ACCOUNT}; echo server=$KUBERNETES_SERVICE_HOST", account=account)
    assert result.code == 0
    assert result.text.splitlines()[-1] == "server="
    assert "token" not in result.text


async def test_a_pod_without_automount_has_no_token(env: PodEnv) -> None:
    result = await env.run("caller", f"ls {_ACCOUNT}", automountServiceAccountToken=False)
    assert result.code != 0
