"""The operator of `dlop local` has the permissions of its service account, not those of the administrator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType
from dlop.api.child_objects import Create
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.registry import Registry
from dlop.jobs.list_watch import WatchScope, list_and_watch
from dlop.kube.objects import CustomObject
from dlop.kube.resources import CLUSTER_ROLES, CONFIG_MAPS, PODS
from dlop.kube.types import JsonObject
from dlop.policies import ChildObjects
from tests.local.local_cluster_env import TIMEOUT_SECONDS, LocalClusterEnv, local_cluster_env


class Peers(ChildObjects[DLJob]):
    """A config map, without a rule that lets the operator create it."""

    resources = (CONFIG_MAPS,)

    def build(self, job: DLJob) -> tuple[Create, ...]:
        metadata = job.child_metadata(f"{job.metadata.name}-peers")
        return (Create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),)


class PeersWithRule(Peers):
    rules = ({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch"]},)


class PeerJob(DLJob):
    job_type = JobType(group="example.org", version="v1", kind="PeerJob")
    replica_types = (ReplicaType("Peer"),)
    container_properties = ContainerProperties(name="peer", port=7000)
    children: ClassVar[tuple[ChildObjects[Any], ...]] = ()

    def get_environment_variables(self, replica: Replica) -> dict[str, str]:
        return {"RANK": str(replica.index)}


class JobWithoutRule(PeerJob):
    children = (Peers(),)


class JobWithRule(PeerJob):
    children = (PeersWithRule(),)


def manifest() -> JsonObject:
    container = {"name": "peer", "image": "none", "command": ["true"]}
    spec = {"replicaSpecs": {"Peer": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}}
    return {"apiVersion": "example.org/v1", "kind": "PeerJob", "metadata": {"name": "demo"}, "spec": spec}


@asynccontextmanager
async def env_for(kind: type[DLJob], folder: Path) -> AsyncIterator[LocalClusterEnv]:
    async with local_cluster_env(folder, registry=Registry([kind]), namespaces=False) as env:
        yield env


async def wait_for_job(env: LocalClusterEnv, condition: Callable[[JsonObject], bool]) -> JsonObject:
    """Wait until the status of the job satisfies the condition, and return it."""
    resource = PeerJob.job_type.resource
    scope = WatchScope(resource=resource, namespace="default")
    async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(list_and_watch(env.client, scope, CustomObject)) as changes:
        async for _ in changes:
            status: JsonObject = (await env.client.get(resource, "demo", namespace="default")).get("status") or {}
            if condition(status):
                return status
    raise AssertionError("the watch ended")


def condition_of(status: JsonObject, type: str) -> JsonObject | None:
    conditions = status.get("conditions") or ()
    return next((condition for condition in conditions if (condition["type"], condition["status"]) == (type, "True")), None)


async def test_a_job_whose_kind_does_not_declare_a_rule_is_blocked(tmp_path: Path) -> None:
    async with env_for(JobWithoutRule, tmp_path / "cluster") as env:
        await env.submit(manifest())
        status = await wait_for_job(env, lambda status: condition_of(status, "Blocked") is not None)
        blocked = condition_of(status, "Blocked") or {}
        assert (blocked["reason"], "configmaps" in blocked["message"]) == ("Forbidden", True)
        assert (await env.client.list(CONFIG_MAPS, namespace="default"))["items"] == []


async def test_a_job_whose_kind_declares_its_rules_succeeds(tmp_path: Path) -> None:
    async with env_for(JobWithRule, tmp_path / "cluster") as env:
        await env.wait_until_succeeded(await env.submit(manifest()))
        assert len((await env.client.list(CONFIG_MAPS, namespace="default"))["items"]) == 1


async def test_an_operator_whose_role_does_not_allow_pods_creates_none(tmp_path: Path) -> None:
    async with env_for(PeerJob, tmp_path / "cluster") as env:
        role = await env.client.get(CLUSTER_ROLES, "dlop")
        rules = [rule for rule in role["rules"] if "pods" not in rule["resources"]]
        await env.client.patch(CLUSTER_ROLES, "dlop", {"rules": rules})
        await env.submit(manifest())
        status = await wait_for_job(env, lambda status: condition_of(status, "Blocked") is not None)
        message = (condition_of(status, "Blocked") or {})["message"]
        assert 'User "system:serviceaccount:dlop-system:dlop" cannot create resource' in message
        assert (await env.client.list(PODS, namespace="default"))["items"] == []


class Clock:
    ahead_seconds = 0

    def __call__(self) -> float:
        return time.time() + self.ahead_seconds


async def test_an_operator_whose_token_has_expired_gets_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("dlop.local.cluster.EmbeddedCluster", partial(EmbeddedCluster, clock=clock))
    async with env_for(PeerJob, tmp_path / "cluster") as env:
        clock.ahead_seconds = 2 * 3600
        await env.wait_until_succeeded(await env.submit(manifest()))
