"""The permissions of the deployed operator on the real API server: it is allowed what it needs, and nothing else.

The generated manifests are applied, and requests are made with a token of their service account.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.deploy import deployment
from dlop.deploy.apply import DEPLOYMENTS, delete_objects
from dlop.deploy.installation import operator_objects
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.client import PatchType
from dlop.kube.errors import ForbiddenError, NotFoundError
from dlop.kube.resources import EVENTS, NAMESPACES, PODS, SECRETS
from dlop.kube.types import JsonObject
from tests.cluster.deployed_operator import DeployedOperator, deploy_operator, discard
from tests.kinds_for_crds import KINDS, Plain
from tests.unit.job.jobs import make

GROUP = Plain.job_type.group
CHILD_VERBS = ("get", "list", "watch", "create", "patch", "delete")
ALLOWED = [
    *((GROUP, "ringjobs", verb) for verb in ("get", "list", "watch", "delete")),
    (GROUP, "ringjobs/status", "patch"),
    (GROUP, "ringjobs/finalizers", "update"),
    *(("", resource, verb) for resource in ("pods", "services") for verb in CHILD_VERBS),
    *(("events.k8s.io", "events", verb) for verb in ("create", "patch")),
]
FORBIDDEN = [
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
_CHILD_OBJECT_VERBS = ("get", "list", "watch", "create", "patch")
MPI_PERMISSIONS = [
    *(("", resource, verb) for resource in ("serviceaccounts", "configmaps") for verb in _CHILD_OBJECT_VERBS),
    *(("rbac.authorization.k8s.io", resource, verb) for resource in ("roles", "rolebindings") for verb in _CHILD_OBJECT_VERBS),
    ("", "pods/exec", "create"),
]
GANG_PERMISSIONS = [
    *((group, "podgroups", verb) for group in ("scheduling.volcano.sh", "scheduling.x-k8s.io") for verb in CHILD_VERBS),
    ("scheduling.k8s.io", "priorityclasses", "list"),
]
OTHER_NAMESPACE = "kube-public"


@pytest.fixture
async def cluster_wide(real_cluster: RealCluster, tmp_path: Path) -> AsyncIterator[DeployedOperator]:
    async with deploy_operator(real_cluster, tmp_path, one_namespace=False) as deployed:
        yield deployed


@pytest.fixture
async def one_namespace(real_cluster: RealCluster, tmp_path: Path) -> AsyncIterator[DeployedOperator]:
    async with deploy_operator(real_cluster, tmp_path, one_namespace=True) as deployed:
        yield deployed


async def test_a_cluster_wide_operator_has_the_permissions_it_needs_in_every_namespace(cluster_wide: DeployedOperator) -> None:
    assert await cluster_wide.unexpected(ALLOWED, expected=True, namespace=OTHER_NAMESPACE) == []
    for verb in ("get", "list", "watch"):
        assert await cluster_wide.allows("apiextensions.k8s.io", "customresourcedefinitions", verb, namespace="")


async def test_a_cluster_wide_operator_has_no_other_permissions(cluster_wide: DeployedOperator) -> None:
    own = cluster_wide.options.namespace
    for namespace in (own, OTHER_NAMESPACE):
        assert await cluster_wide.unexpected(FORBIDDEN, expected=False, namespace=namespace) == []
    assert not await cluster_wide.allows("apiextensions.k8s.io", "customresourcedefinitions", "delete", namespace="")


async def test_an_operator_for_one_namespace_has_no_permissions_in_other_namespaces(one_namespace: DeployedOperator) -> None:
    own = one_namespace.options.namespace
    assert await one_namespace.unexpected(ALLOWED, expected=True, namespace=own) == []
    assert await one_namespace.unexpected(FORBIDDEN, expected=False, namespace=own) == []
    assert await one_namespace.unexpected(ALLOWED, expected=False, namespace=OTHER_NAMESPACE) == []
    assert not await one_namespace.allows("apiextensions.k8s.io", "customresourcedefinitions", "list", namespace="")


async def test_the_operator_has_access_only_to_its_own_lease(one_namespace: DeployedOperator) -> None:
    own = one_namespace.options.namespace
    group = "coordination.k8s.io"
    for verb in ("get", "watch", "update"):
        assert await one_namespace.allows(group, "leases", verb, namespace=own, name="dlop")
        assert not await one_namespace.allows(group, "leases", verb, namespace=own, name="other")
    assert await one_namespace.allows(group, "leases", "create", namespace=own)
    assert not await one_namespace.allows(group, "leases", "delete", namespace=own, name="dlop")
    assert not await one_namespace.allows(group, "leases", "get", namespace=OTHER_NAMESPACE, name="dlop")


async def test_listing_secrets_is_forbidden(cluster_wide: DeployedOperator) -> None:
    with pytest.raises(ForbiddenError, match="secrets is forbidden"):
        await cluster_wide.operator.list(SECRETS, namespace=cluster_wide.options.namespace)


async def test_pods_and_events_can_be_created(cluster_wide: DeployedOperator) -> None:
    own = cluster_wide.options.namespace
    template = deployment.deployment(cluster_wide.options)["spec"]["template"]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "created"}, "spec": {**template, "serviceAccountName": "default"}}
    created = await cluster_wide.operator.create(PODS, pod, namespace=own)
    regarding = {"kind": "Pod", "namespace": own, "name": "created", "uid": created["metadata"]["uid"]}
    event: JsonObject = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "created.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "dlop",
        "reportingInstance": "dlop-0",
        "action": "Create",
        "reason": "Created",
        "type": "Normal",
        "regarding": regarding,
    }
    await cluster_wide.operator.create(EVENTS, event, namespace=own)
    await cluster_wide.operator.delete(PODS, "created", namespace=own, grace_seconds=0)
    with pytest.raises(NotFoundError):
        await cluster_wide.admin.get(PODS, "created", namespace=own)


async def test_an_operator_for_mpi_jobs_can_grant_launchers_their_permissions(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with deploy_operator(real_cluster, tmp_path, one_namespace=True, kinds=(MPIJob,), permission_sets=("mpi",)) as deployed:
        own = deployed.options.namespace
        role = {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}
        spec = {"mpiReplicaSpecs": {"Launcher": role, "Worker": {**role, "replicas": 2}}}
        body = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "demo"}, "spec": spec}
        created = await deployed.admin.create(MPIJob.job_type.resource, body, namespace=own)
        for child in make(MPIJob, spec, name="demo", namespace=own, uid=created["metadata"]["uid"]).child_objects():
            await deployed.operator.create(child.resource, child.body, namespace=own)
            change = {name: value for name, value in child.body.items() if name in ("data", "rules")}
            await deployed.operator.patch(child.resource, child.name, change, patch_type=PatchType.MERGE, namespace=own)


async def test_permissions_for_mpi_jobs_and_gangs_are_not_granted_by_default(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with deploy_operator(real_cluster, tmp_path, one_namespace=False, kinds=(MPIJob,)) as deployed:
        own = deployed.options.namespace
        assert await deployed.unexpected([*FORBIDDEN, *MPI_PERMISSIONS, *GANG_PERMISSIONS], expected=False, namespace=own) == []


async def test_optional_permissions_are_granted_in_every_namespace(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with deploy_operator(real_cluster, tmp_path, one_namespace=False, kinds=(MPIJob,), permission_sets=("mpi", "gang")) as deployed:
        assert await deployed.unexpected([*MPI_PERMISSIONS, *GANG_PERMISSIONS], expected=True, namespace=OTHER_NAMESPACE) == []
        still_forbidden = [permission for permission in FORBIDDEN if permission not in MPI_PERMISSIONS]
        assert await deployed.unexpected(still_forbidden, expected=False, namespace=OTHER_NAMESPACE) == []


async def test_a_permission_set_can_be_limited_to_a_namespace(real_cluster: RealCluster, tmp_path: Path) -> None:
    limited = (f"mpi:{OTHER_NAMESPACE}",)
    async with deploy_operator(real_cluster, tmp_path, one_namespace=False, kinds=(MPIJob,), permission_sets=limited) as deployed:
        assert await deployed.unexpected(MPI_PERMISSIONS, expected=True, namespace=OTHER_NAMESPACE) == []
        writes = [permission for permission in MPI_PERMISSIONS if permission[2] not in ("get", "list", "watch")]
        assert ("", "pods/exec", "create") in writes
        for namespace in (deployed.options.namespace, "default", ""):
            assert await deployed.unexpected(writes, expected=False, namespace=namespace) == []
        reads = [permission for permission in MPI_PERMISSIONS if permission not in writes]
        # The caches of the operator are cluster-wide.
        assert await deployed.unexpected(reads, expected=True, namespace="") == []


async def test_the_operator_pod_satisfies_the_restricted_pod_security_standard(cluster_wide: DeployedOperator) -> None:
    own = cluster_wide.options.namespace
    stored = await cluster_wide.admin.get(DEPLOYMENTS, "dlop", namespace=own)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": stored["spec"]["template"]["spec"]}
    await cluster_wide.admin.create(PODS, pod, namespace=own, dry_run=True)
    unrestricted = {"containers": [{"name": "main", "image": "x"}]}
    with pytest.raises(ForbiddenError, match='violates PodSecurity "restricted'):
        await cluster_wide.admin.create(PODS, {**pod, "spec": unrestricted}, namespace=own, dry_run=True)


async def test_undeploying_keeps_the_namespace_and_the_crds(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with deploy_operator(real_cluster, tmp_path, one_namespace=True) as deployed:
        await delete_objects(deployed.admin, operator_objects(KINDS, deployed.options), report=discard)
        own = deployed.options.namespace
        assert (await deployed.admin.list(DEPLOYMENTS, namespace=own))["items"] == []
        assert (await deployed.admin.get(NAMESPACES, own))["status"]["phase"] == "Active"
        assert (await deployed.admin.list(Plain.job_type.resource, namespace=own))["items"] == []
