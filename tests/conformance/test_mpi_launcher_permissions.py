"""The permissions of an MPI launcher: RBAC lets the operator grant `pods/exec` by pod name only where it has `pods/exec` itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest
import pytest_asyncio

from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.deploy.rbac import Grant, ServiceAccountRef, find_grants, permission_set_rbac
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.objects import Pod
from dlop.kube.resources import NAMESPACES, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource
from dlop.kube.types import JsonObject
from tests.conformance.service_accounts import ACCOUNT_NAME, RBAC_GROUP, Account, rule
from tests.conformance.support import over_https
from tests.unit.job.jobs import make

pytestmark = over_https(reason="the token of an account is sent in a request header")

(MPI,) = find_grants(["mpi"], [MPIJob])
LAUNCHER = "demo-launcher"
RESOURCES = {"Role": ROLES, "RoleBinding": ROLE_BINDINGS}


@pytest_asyncio.fixture(loop_scope="session")
async def other_namespace(account: Account) -> AsyncIterator[str]:
    name = f"{account.api.namespace}-other"
    await account.api.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await account.api.client.delete(NAMESPACES, name)


def launcher_rbac(namespace: str, *, owned: tuple[int, ...]) -> dict[Resource, JsonObject]:
    """The Role and the RoleBinding of a job with two workers. The pods of the `owned` workers belong to the job."""
    role = {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}
    job = make(MPIJob, {"mpiReplicaSpecs": {"Launcher": role, "Worker": {**role, "replicas": 2}}}, name="demo", namespace=namespace)
    spec = job.spec.role("Worker")
    assert spec is not None
    replicas = tuple(
        ReplicaProgress(role="Worker", index=index, state=ReplicaState.PENDING, pod=worker_pod(index) if index in owned else None)
        for index in range(2)
    )
    progress = Progress(roles=(RoleProgress(spec=spec, replicas=replicas),))
    bodies = {create.resource: dict(create.body) for child in job.children for create in child.update(job, progress)}
    # The server checks that the owner exists and that the account may set its finalizers, which is not the subject here.
    unowned = {resource: {**body, "metadata": {"name": body["metadata"]["name"]}} for resource, body in bodies.items()}
    return {resource: unowned[resource] for resource in (ROLES, ROLE_BINDINGS)}


def worker_pod(index: int) -> Pod:
    return msgspec.convert({"metadata": {"name": f"demo-worker-{index}"}}, Pod)


async def grant(account: Account, permissions: Grant, *namespaces: str) -> None:
    """Grant the account, as the operator, a permission set."""
    own = account.api.namespace
    reader = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    await account.grant_role(reader)
    for body in permission_set_rbac([permissions], ServiceAccountRef(own, ACCOUNT_NAME), [own, *namespaces]):
        await account.api.client.create(RESOURCES[body["kind"]], body, namespace=body["metadata"]["namespace"])
    await account.wait_until_allowed(ROLES)


async def exec_status(account: Account, pod: str, *, token: str | None = None) -> int:
    """The status of a request to run a command in a pod. No kubelet answers, so 403 is the only status with a meaning."""
    path = f"{PODS.path(namespace=account.api.namespace, name=pod)}/exec"
    return (await account.send(path, method="POST", query=(("command", "true"),), token=token)).status


async def wait_until_exec_is_allowed(account: Account, pod: str, *, token: str | None = None) -> None:
    await account.api.wait_until(lambda: exec_status(account, pod, token=token), lambda status: status != 403)


async def create(account: Account, resource: Resource, body: JsonObject, *, namespace: str | None = None) -> JsonObject:
    return await account.request(resource, method="POST", body=body, namespace=namespace)


@pytest.mark.parametrize("owned", [(), (1,), (0, 1)])
async def test_a_launcher_can_run_commands_only_in_pods_that_the_job_owns(account: Account, owned: tuple[int, ...]) -> None:
    await grant(account, MPI)
    for resource, body in launcher_rbac(account.api.namespace, owned=owned).items():
        assert (await create(account, resource, body))["kind"] == resource.kind
    await account.api.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": LAUNCHER}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await account.api.create(SERVICE_ACCOUNTS, request, name=LAUNCHER, subresource="token"))["status"]["token"]
    await account.wait_until_allowed(PODS, token=token)
    for index in owned:
        await wait_until_exec_is_allowed(account, f"demo-worker-{index}", token=token)
    names = {"demo-worker-0", "demo-worker-1", LAUNCHER, "other"} - {f"demo-worker-{index}" for index in owned}
    assert {name: await exec_status(account, name, token=token) for name in names} == dict.fromkeys(names, 403)


async def test_the_operator_grants_launchers_permissions_only_in_the_namespaces_of_the_permission_set(
    account: Account, other_namespace: str
) -> None:
    (limited,) = find_grants([f"mpi:{account.api.namespace}"], [MPIJob])
    await grant(account, limited, other_namespace)
    await account.wait_until_allowed(ROLES, namespace=other_namespace)
    assert (await create(account, ROLES, launcher_rbac(account.api.namespace, owned=(0,))[ROLES]))["kind"] == "Role"
    refused = await create(account, ROLES, launcher_rbac(other_namespace, owned=(0,))[ROLES], namespace=other_namespace)
    assert refused["code"] == 403
    assert 'cannot create resource "roles"' in refused["message"]


async def test_without_exec_the_operator_cannot_grant_exec_even_by_name(account: Account) -> None:
    rules = tuple(each for each in MPI.permission_set.rules if each["resources"] != ["pods/exec"])
    await grant(account, Grant(replace(MPI.permission_set, rules=rules)))
    refused = await create(account, ROLES, launcher_rbac(account.api.namespace, owned=(0,))[ROLES])
    assert refused["code"] == 403
    assert "attempting to grant RBAC permissions not currently held" in refused["message"]


async def test_the_bind_verb_for_a_cluster_role_with_exec_lets_the_operator_give_itself_exec_in_all_pods(account: Account) -> None:
    """Why the operator does not use one fixed ClusterRole for launchers."""
    own = account.api.namespace
    await account.create_cluster_role(rule("pods/exec", "create"))
    bind = {"apiGroups": [RBAC_GROUP], "resources": ["clusterroles"], "resourceNames": [own], "verbs": ["bind"]}
    await account.grant_role(bind, {"apiGroups": [RBAC_GROUP], "resources": ["rolebindings"], "verbs": ["list", "create"]})
    await account.wait_until_allowed(ROLE_BINDINGS)
    assert await exec_status(account, "other") == 403
    role_ref = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": own}
    body: JsonObject = {"apiVersion": ROLE_BINDINGS.api_version, "kind": "RoleBinding", "metadata": {"name": "launcher"}}
    await create(account, ROLE_BINDINGS, {**body, "roleRef": role_ref, "subjects": [account.subject]})
    await wait_until_exec_is_allowed(account, "other")
