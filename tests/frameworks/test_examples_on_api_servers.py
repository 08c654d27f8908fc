"""The embedded and the real API server accept all examples and the objects rendered from them, with strict field validation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from real_cluster import RealCluster

from dlop.api.crd import build_crds, build_cron_crd
from dlop.api.cron import CRONS
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.registry import Registry, load_registry
from dlop.job import DLJob
from dlop.jobs.render import is_cron, job_of_cron, render
from dlop.kube.client import Client
from dlop.kube.errors import InvalidError
from dlop.kube.http.transport import connect
from dlop.kube.resources import CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES, Resource
from dlop.kube.types import JsonObject
from tests.frameworks.example_manifests import EXAMPLES
from tests.frameworks.ring_example import RingJob

REGISTRY = Registry([*load_registry(), RingJob])
NAMES = sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/*.yaml"))
RESOURCES = {each.kind: each for each in (CONFIG_MAPS, CRONS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES)}


@asynccontextmanager
async def embedded_client() -> AsyncIterator[Client]:
    async with EmbeddedCluster() as cluster:
        client = cluster.client()
        await apply(client, (*build_crds(REGISTRY), build_cron_crd()), report=lambda _: None)
        yield client


@asynccontextmanager
async def real_client(cluster: RealCluster) -> AsyncIterator[Client]:
    client = Client(await connect(str(cluster.kubeconfig_path)))
    try:
        await apply(client, (*build_crds(REGISTRY), build_cron_crd()), report=lambda _: None)
        yield client
    finally:
        await client.close()


async def check_accepted(client: Client, name: str) -> None:
    manifests = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    assert manifests
    for manifest in manifests:
        job = REGISTRY.find(manifest["apiVersion"], manifest["kind"])
        if job is not None:
            await _check_job(client, manifest, job)
            continue
        stored = await _create(client, RESOURCES[manifest["kind"]], manifest)
        if is_cron(manifest):
            assert stored["spec"] == manifest["spec"]
            template = job_of_cron(manifest)
            await _check_job(client, template, REGISTRY.get(template["apiVersion"], template["kind"]))


async def _check_job(client: Client, manifest: JsonObject, job: type[DLJob]) -> None:
    stored = await _create(client, job.job_type.resource, manifest)
    assert stored["spec"] == _with_defaults(manifest["spec"], job)
    for body in render(manifest, REGISTRY):
        await _create(client, RESOURCES[body["kind"]], body)


async def _create(client: Client, resource: Resource, body: JsonObject) -> JsonObject:
    return await client.create(resource, body, namespace="default", dry_run=True, field_validation="Strict")


def _with_defaults(spec: dict[str, Any], job: type[DLJob]) -> dict[str, Any]:
    """The spec as the server stores it. The CRDs of kubeflow.org have one default in the run policy."""
    if job.job_type.group != "kubeflow.org" or "runPolicy" not in spec:
        return spec
    return {**spec, "runPolicy": {"suspend": False, **spec["runPolicy"]}}


def mxjob(*roles: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "mxnet", "image": "x"}]}}
    spec = {"replicaSpecs": [{"mxReplicaType": role, "template": template} for role in roles]}
    return {"apiVersion": "fioravanzo.org/v1alpha1", "kind": "MXJob", "metadata": {"name": "bad"}, "spec": spec}


async def check_rejected(client: Client) -> None:
    resource = REGISTRY.get("fioravanzo.org/v1alpha1", "MXJob").job_type.resource
    for roles in (["WORKER"], ["SCHEDULER", "SCHEDULER"], ["MASTER"]):
        with pytest.raises(InvalidError, match="replicaSpecs"):
            await client.create(resource, mxjob(*roles), namespace="default", dry_run=True)


@pytest.mark.parametrize("name", NAMES)
async def test_the_embedded_server_accepts_the_example_and_its_objects(name: str) -> None:
    async with embedded_client() as client:
        await check_accepted(client, name)


@pytest.mark.parametrize("name", NAMES)
async def test_the_real_server_accepts_the_example_and_its_objects(name: str, real_cluster: RealCluster) -> None:
    async with real_client(real_cluster) as client:
        await check_accepted(client, name)


async def test_the_embedded_server_rejects_a_job_without_exactly_one_scheduler() -> None:
    async with embedded_client() as client:
        await check_rejected(client)


async def test_the_real_server_rejects_a_job_without_exactly_one_scheduler(real_cluster: RealCluster) -> None:
    async with real_client(real_cluster) as client:
        await check_rejected(client)
