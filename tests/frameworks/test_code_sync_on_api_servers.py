"""Jobs with git repositories, on the embedded and on the real API server."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop.api.crd import build_crds
from dlop.api.types import Options
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob as KubeDLPyTorchJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.errors import StatusError
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, PODS
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script

FRAMEWORKS: tuple[type[DLJob], ...] = (PyTorchJob, KubeDLPyTorchJob, MXJob)
CODE = {"source": "git@example.org:team/train.git", "branch": "main", "depth": 1, "secretName": "key"}


def manifest(kind: type[DLJob], name: str, *, code: Any = CODE) -> JsonObject:
    """A job with one pod, which is never restarted."""
    template = {"spec": {"containers": [{"name": kind.container_properties.name, "image": "train:1", "workingDir": "/app"}]}}
    metadata: JsonObject = {"name": name}
    spec: JsonObject
    if kind is MXJob:
        template["spec"]["restartPolicy"] = "Never"  # type: ignore[assignment]
        spec = {"replicaSpecs": [{"replicas": 1, "mxReplicaType": "SCHEDULER", "template": template}]}
    else:
        spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}}}
    if kind is KubeDLPyTorchJob:
        metadata["annotations"] = {"kubedl.io/git-sync-config": json.dumps(code)}
    else:
        spec["runPolicy"] = {"codeSync": [code], "backoffLimit": 0}
    return {"apiVersion": kind.job_type.api_version, "kind": kind.job_type.kind, "metadata": metadata, "spec": spec}


@asynccontextmanager
async def connected(cluster: RealCluster | None) -> AsyncIterator[tuple[Client, str]]:
    """A client of the real cluster or of an embedded one, and a namespace in which an operator and a kubelet run."""
    async with AsyncExitStack() as stack:
        transport: Transport
        if cluster is None:
            transport = (await stack.enter_async_context(EmbeddedCluster())).transport()
        else:
            transport = await connect(str(cluster.kubeconfig_path))
            stack.push_async_callback(transport.close)
        client, namespace = Client(transport), f"code-{uuid.uuid4().hex[:8]}"
        await apply(client, build_crds(FRAMEWORKS), report=lambda _: None)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        stack.push_async_callback(client.delete, NAMESPACES, namespace)
        script = Script()
        script.when("bad-*").fail_init("git-sync-code", 128, message="fatal: repository not found")
        script.when("*").run().after(5).succeed()
        await stack.enter_async_context(ScriptedKubelet(client, script, namespace=namespace, time_scale=0.05))
        settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
        operator = RunningOperator(
            transport,
            frameworks=FRAMEWORKS,
            clock=time.time,
            rng=random.Random(0),
            settings=settings,
            options=Options(git_sync_image="git-sync:4"),
        )
        stack.push_async_callback(operator.stop)
        operator.start()
        yield client, namespace


@pytest.fixture(params=["embedded", "real"])
def cluster(request: pytest.FixtureRequest) -> RealCluster | None:
    """The real cluster, or None for an embedded one."""
    return request.getfixturevalue("real_cluster") if request.param == "real" else None


async def finished(client: Client, kind: type[DLJob], name: str, namespace: str) -> JsonObject:
    """The status of a job that has finished."""
    async with asyncio.timeout(60):
        while True:
            status: JsonObject = (await client.get(kind.job_type.resource, name, namespace=namespace)).get("status", {})
            if status.get("dlop", {}).get("phase") in ("Succeeded", "Failed"):
                return status
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", FRAMEWORKS, ids=lambda kind: kind.job_type.resource.qualified_name)
async def test_a_job_succeeds_with_its_code_and_fails_with_the_message_of_git(cluster: RealCluster | None, kind: type[DLJob]) -> None:
    async with connected(cluster) as (client, namespace):
        for name in ("good", "bad"):
            await client.create(kind.job_type.resource, manifest(kind, name), namespace=namespace)
        assert (await finished(client, kind, "good", namespace))["dlop"]["phase"] == "Succeeded"
        bad = (await finished(client, kind, "bad", namespace))["dlop"]
        assert (bad["phase"], bad["lastFailure"]["reason"]) == ("Failed", "CodeSyncFailed")
        assert bad["lastFailure"]["message"].endswith(
            "cannot clone git@example.org:team/train.git (branch main): fatal: repository not found"
        )
        pods = (await client.list(PODS, namespace=namespace))["items"]
        (pod,) = [pod["spec"] for pod in pods if pod["metadata"]["name"].startswith("good-")]
        clone, main = pod["initContainers"][-1], pod["containers"][0]
        assert {mount["name"]: mount["mountPath"] for mount in clone["volumeMounts"] if "git" in mount["name"]} == {
            "git-sync": "/code",
            "git-sync-secret": "/etc/git-secret",
        }
        assert [mount["mountPath"] for mount in main["volumeMounts"] if mount["name"] == "git-sync"] == ["/app/train"]


@pytest.mark.parametrize(
    ("code", "field"),
    [({"branch": "main"}, "codeSync[0].source"), ({**CODE, "depth": -1}, "codeSync[0].depth"), ("train.git", "codeSync[0]")],
)
async def test_the_crd_rejects_bad_repositories(cluster: RealCluster | None, code: Any, field: str) -> None:
    async with connected(cluster) as (client, namespace):
        with pytest.raises(StatusError, match=r"spec\.runPolicy\." + field.replace("[", r"\[").replace("]", r"\]")):
            await client.create(PyTorchJob.job_type.resource, manifest(PyTorchJob, "bad", code=code), namespace=namespace)
