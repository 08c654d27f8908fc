"""The rights of the deployed operator on the real API server: what it needs is allowed, and nothing else is.

The manifests are applied as they are generated; then their service account calls, with a token of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import cluster_credentials
import pytest
from real_cluster import RealCluster

from dlop import DLJob
from dlop.api.crd import definitions
from dlop.deploy import deployment
from dlop.deploy.apply import DEPLOYMENTS, apply, ensure_namespace, remove
from dlop.deploy.deployment import DeployOptions
from dlop.deploy.installation import operator
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import ForbiddenError, NotFoundError
from dlop.kube.http.transport import connect
from dlop.kube.resources import EVENTS, NAMESPACES, PODS, SECRETS, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject
from tests.kinds_for_crds import KINDS, Plain
from tests.unit.job.jobs import make

GROUP = Plain.job_type.group
CHILD_VERBS = ("get", "list", "watch", "create", "patch", "delete")
NEEDED = [
    *((GROUP, "ringjobs", verb) for verb in ("get", "list", "watch", "delete")),
    (GROUP, "ringjobs/status", "patch"),
    (GROUP, "ringjobs/finalizers", "update"),
    *(("", resource, verb) for resource in ("pods", "services") for verb in CHILD_VERBS),
    *(("events.k8s.io", "events", verb) for verb in ("create", "patch")),
]
WITHHELD = [
    *(("", "secrets", verb) for verb in ("get", "list", "watch", "create", "update", "delete")),
    ("", "pods/exec", "create"),
    ("", "pods/attach", "create"),
    ("", "pods/portforward", "create"),
    ("", "pods/ephemeralcontainers", "patch"),
    ("", "pods/status", "patch"),
    ("", "pods", "deletecollection"),
    ("", "pods", "update"),
    ("", "serviceaccounts/token", "create"),
    ("", "serviceaccounts", "impersonate"),
    ("", "nodes", "list"),
    ("", "configmaps", "get"),
    ("", "namespaces", "list"),
    ("apps", "deployments", "create"),
    ("rbac.authorization.k8s.io", "roles", "create"),
    ("rbac.authorization.k8s.io", "clusterroles", "escalate"),
    (GROUP, "ringjobs", "create"),
    (GROUP, "ringjobs", "update"),
    (GROUP, "ringjobs", "patch"),
]
_KEPT_UP = ("get", "list", "watch", "create", "patch")
FOR_MPI = [
    *(("", resource, verb) for resource in ("serviceaccounts", "configmaps") for verb in _KEPT_UP),
    *(("rbac.authorization.k8s.io", resource, verb) for resource in ("roles", "rolebindings") for verb in _KEPT_UP),
    ("", "pods/exec", "create"),
]
FOR_GANGS = [
    *((group, "podgroups", verb) for group in ("scheduling.volcano.sh", "scheduling.x-k8s.io") for verb in CHILD_VERBS),
    ("scheduling.k8s.io", "priorityclasses", "list"),
]
ELSEWHERE = "kube-public"


@dataclass(frozen=True)
class Place:
    """A deployment for one test."""

    admin: Client
    operator: Client
    chosen: DeployOptions

    async def allows(self, group: str, resource: str, verb: str, *, namespace: str, name: str = "") -> bool:
        resource, _, subresource = resource.partition("/")
        asked = {"group": group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace, "name": name}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await self.operator.call("POST", path, body=body)
        return b'"allowed":true' in answer.body

    async def wrongly_answered(self, asked: list[tuple[str, str, str]], *, expected: bool, namespace: str) -> list[tuple[str, str, str]]:
        return [each for each in asked if await self.allows(*each, namespace=namespace) is not expected]


@asynccontextmanager
async def deployed(
    cluster: RealCluster, folder: Path, *, one_namespace: bool, kinds: tuple[type[DLJob], ...] = KINDS, rights: tuple[str, ...] = ()
) -> AsyncIterator[Place]:
    name = f"rights-{uuid.uuid4().hex[:8]}"
    chosen = DeployOptions(namespace=name, watched_namespaces=(name,) if one_namespace else (), rights=rights)
    admin = Client(await connect(cluster.kubeconfig_path))
    try:
        await ensure_namespace(admin, deployment.namespace(name), say=_silently)
        await apply(admin, [*definitions(kinds), *operator(kinds, chosen)], say=_silently)
        as_operator = Client(await connect(await service_account_kubeconfig(cluster, admin, chosen, folder)))
        try:
            yield Place(admin, as_operator, chosen)
        finally:
            await as_operator.close()
            await remove(admin, operator(kinds, chosen), say=_silently)
    finally:
        await admin.close()


async def service_account_kubeconfig(cluster: RealCluster, admin: Client, chosen: DeployOptions, folder: Path) -> Path:
    account = chosen.account
    body: JsonObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await admin.create(SERVICE_ACCOUNTS, body, namespace=account.namespace, name=account.name, subresource="token")
    path = folder / "operator.kubeconfig"
    token = answer["status"]["token"]
    cluster_credentials.write_kubeconfig(path, url=cluster.url, ca_pem=cluster.ca_path.read_bytes(), user=account.name, token=token)
    return path


def _silently(text: str) -> None:
    pass


@pytest.fixture
async def cluster_wide(real_cluster: RealCluster, tmp_path: Path) -> AsyncIterator[Place]:
    async with deployed(real_cluster, tmp_path, one_namespace=False) as place:
        yield place


@pytest.fixture
async def one_namespace(real_cluster: RealCluster, tmp_path: Path) -> AsyncIterator[Place]:
    async with deployed(real_cluster, tmp_path, one_namespace=True) as place:
        yield place


async def test_a_cluster_wide_operator_may_do_what_it_needs_in_every_namespace(cluster_wide: Place) -> None:
    assert await cluster_wide.wrongly_answered(NEEDED, expected=True, namespace=ELSEWHERE) == []
    for verb in ("get", "list", "watch"):
        assert await cluster_wide.allows("apiextensions.k8s.io", "customresourcedefinitions", verb, namespace="")


async def test_a_cluster_wide_operator_may_do_nothing_else(cluster_wide: Place) -> None:
    own = cluster_wide.chosen.namespace
    for namespace in (own, ELSEWHERE):
        assert await cluster_wide.wrongly_answered(WITHHELD, expected=False, namespace=namespace) == []
    assert not await cluster_wide.allows("apiextensions.k8s.io", "customresourcedefinitions", "delete", namespace="")


async def test_an_operator_of_one_namespace_may_do_what_it_needs_there_and_nothing_elsewhere(one_namespace: Place) -> None:
    own = one_namespace.chosen.namespace
    assert await one_namespace.wrongly_answered(NEEDED, expected=True, namespace=own) == []
    assert await one_namespace.wrongly_answered(WITHHELD, expected=False, namespace=own) == []
    assert await one_namespace.wrongly_answered(NEEDED, expected=False, namespace=ELSEWHERE) == []
    assert not await one_namespace.allows("apiextensions.k8s.io", "customresourcedefinitions", "list", namespace="")


async def test_the_lease_is_the_operators_own_and_no_other_is(one_namespace: Place) -> None:
    own = one_namespace.chosen.namespace
    group = "coordination.k8s.io"
    for verb in ("get", "watch", "update"):
        assert await one_namespace.allows(group, "leases", verb, namespace=own, name="dlop")
        assert not await one_namespace.allows(group, "leases", verb, namespace=own, name="other")
    assert await one_namespace.allows(group, "leases", "create", namespace=own)
    assert not await one_namespace.allows(group, "leases", "delete", namespace=own, name="dlop")
    assert not await one_namespace.allows(group, "leases", "get", namespace=ELSEWHERE, name="dlop")


async def test_secrets_are_refused_when_really_asked_for(cluster_wide: Place) -> None:
    with pytest.raises(ForbiddenError, match="secrets is forbidden"):
        await cluster_wide.operator.list(SECRETS, namespace=cluster_wide.chosen.namespace)


async def test_pods_and_events_are_really_made(cluster_wide: Place) -> None:
    own = cluster_wide.chosen.namespace
    template = deployment.deployment(cluster_wide.chosen)["spec"]["template"]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "made"}, "spec": {**template, "serviceAccountName": "default"}}
    made = await cluster_wide.operator.create(PODS, pod, namespace=own)
    regarding = {"kind": "Pod", "namespace": own, "name": "made", "uid": made["metadata"]["uid"]}
    event: JsonObject = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "made.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "dlop",
        "reportingInstance": "dlop-0",
        "action": "Create",
        "reason": "Created",
        "type": "Normal",
        "regarding": regarding,
    }
    await cluster_wide.operator.create(EVENTS, event, namespace=own)
    await cluster_wide.operator.delete(PODS, "made", namespace=own, grace_seconds=0)
    with pytest.raises(NotFoundError):
        await cluster_wide.admin.get(PODS, "made", namespace=own)


async def test_an_operator_of_mpi_jobs_can_give_their_launchers_the_rights_that_they_need(
    real_cluster: RealCluster, tmp_path: Path
) -> None:
    async with deployed(real_cluster, tmp_path, one_namespace=True, kinds=(MPIJob,), rights=("mpi",)) as place:
        own = place.chosen.namespace
        role = {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}
        spec = {"mpiReplicaSpecs": {"Launcher": role, "Worker": {**role, "replicas": 2}}}
        body = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "demo"}, "spec": spec}
        made = await place.admin.create(MPIJob.job_type.resource, body, namespace=own)
        for each in make(MPIJob, spec, name="demo", namespace=own, uid=made["metadata"]["uid"]).other_objects():
            await place.operator.create(each.resource, each.body, namespace=own)
            change = {name: value for name, value in each.body.items() if name in ("data", "rules")}
            await place.operator.patch(each.resource, each.name, change, patch_type=PatchType.MERGE, namespace=own)


async def test_without_being_asked_for_not_even_the_rights_for_mpi_jobs_and_gangs_are_there(
    real_cluster: RealCluster, tmp_path: Path
) -> None:
    async with deployed(real_cluster, tmp_path, one_namespace=False, kinds=(MPIJob,)) as place:
        own = place.chosen.namespace
        assert await place.wrongly_answered([*WITHHELD, *FOR_MPI, *FOR_GANGS], expected=False, namespace=own) == []


async def test_rights_that_are_asked_for_are_there_in_every_namespace(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with deployed(real_cluster, tmp_path, one_namespace=False, kinds=(MPIJob,), rights=("mpi", "gang")) as place:
        assert await place.wrongly_answered([*FOR_MPI, *FOR_GANGS], expected=True, namespace=ELSEWHERE) == []
        held_back = [each for each in WITHHELD if each not in FOR_MPI]
        assert await place.wrongly_answered(held_back, expected=False, namespace=ELSEWHERE) == []


async def test_the_operators_own_pod_asks_for_nothing_special(cluster_wide: Place) -> None:
    own = cluster_wide.chosen.namespace
    found = await cluster_wide.admin.get(DEPLOYMENTS, "dlop", namespace=own)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": found["spec"]["template"]["spec"]}
    await cluster_wide.admin.create(PODS, pod, namespace=own, dry_run=True)
    careless = {"containers": [{"name": "main", "image": "x"}]}
    with pytest.raises(ForbiddenError, match='violates PodSecurity "restricted'):
        await cluster_wide.admin.create(PODS, {**pod, "spec": careless}, namespace=own, dry_run=True)


async def test_undeploying_leaves_the_namespace_and_the_definitions(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with deployed(real_cluster, tmp_path, one_namespace=True) as place:
        await remove(place.admin, operator(KINDS, place.chosen), say=_silently)
        own = place.chosen.namespace
        assert (await place.admin.list(DEPLOYMENTS, namespace=own))["items"] == []
        assert (await place.admin.get(NAMESPACES, own))["status"]["phase"] == "Active"
        assert (await place.admin.list(Plain.job_type.resource, namespace=own))["items"] == []
