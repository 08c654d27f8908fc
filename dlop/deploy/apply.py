"""Creates, updates and deletes the objects of an installation, and reports the result for each.

`apply` creates missing objects and merge-patches existing ones, so a second run changes nothing. It waits for every CRD to
become established.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from dlop.api.constants import MANAGER
from dlop.deploy.rbac import ServiceAccountRef
from dlop.kube.client import Client, Propagation
from dlop.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from dlop.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEventType

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")

_SUPPORTED = (
    *(CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS),
    *(CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, NAMESPACES, NETWORK_POLICIES, POD_DISRUPTION_BUDGETS, SERVICES),
)
_RESOURCES = {(resource.api_version, resource.kind): resource for resource in _SUPPORTED}

Report = Callable[[str], None]
"""Receives one line per object."""


class ApplyTimeoutError(KubeError):
    """An object did not reach the expected state in time."""


async def apply(client: Client, objects: Iterable[JsonObject], *, report: Report, timeout_seconds: float = 60.0) -> None:
    """Create or update the objects in order. The timeout applies to each object.

    Raises:
        KubeError: a request failed. The objects before it have been applied.
    """
    for body in objects:
        report(f"{_describe(body)} {await _apply_one(client, body, timeout_seconds=timeout_seconds)}")
        if body["kind"] == CUSTOM_RESOURCE_DEFINITIONS.kind:
            await _wait(client, body, _is_established, timeout_seconds=timeout_seconds, goal="become established")


async def exclude_foreign_crds(client: Client, crds: Iterable[JsonObject], *, report: Report) -> list[JsonObject]:
    """The CRDs without those that another owner has installed. Their schemas and their jobs must not be touched."""
    own = []
    for crd in crds:
        if await _is_foreign(client, crd):
            report(f"{_describe(crd)} skipped: it was not installed by dlop")
        else:
            own.append(crd)
    return own


async def exclude_unknown_versions(client: Client, crds: Iterable[JsonObject], *, report: Report) -> list[JsonObject]:
    """The CRDs without those whose installed counterpart stores jobs in a version that the new CRD does not have."""
    replaceable = []
    for crd in crds:
        known = {version["name"] for version in crd["spec"]["versions"]}
        stored = (await _get_crd(client, crd)).get("status", {}).get("storedVersions") or ()
        if unknown := [version for version in stored if version not in known]:
            report(f"{_describe(crd)} skipped: it stores jobs of version {', '.join(unknown)}, which dlop does not support")
        else:
            replaceable.append(crd)
    return replaceable


async def _is_foreign(client: Client, crd: JsonObject) -> bool:
    installed = await _get_crd(client, crd)
    labels = installed.get("metadata", {}).get("labels") or {}
    return bool(installed) and not crd["metadata"]["labels"].items() <= labels.items()


async def _get_crd(client: Client, crd: JsonObject) -> JsonObject:
    """The installed CRD of the same name. Empty if there is none or if it is terminating."""
    try:
        installed = await client.get(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"])
    except NotFoundError:
        return {}
    return {} if _is_terminating(installed) else installed


async def ensure_namespace(client: Client, body: JsonObject, *, report: Report) -> None:
    """Create the namespace if it does not exist. An existing one is not modified."""
    try:
        await client.create(NAMESPACES, body)
    except AlreadyExistsError:
        return
    report(f"{_describe(body)} created")


async def delete_objects(client: Client, objects: Iterable[JsonObject], *, report: Report, timeout_seconds: float = 60.0) -> None:
    """Delete the objects in reverse order, and wait until CRDs and their custom resources are gone."""
    for body in reversed(list(objects)):
        resource, name, namespace = _locate(body)
        try:
            await client.delete(resource, name, namespace=namespace, propagation=Propagation.BACKGROUND)
        except NotFoundError:
            report(f"{_describe(body)} not found")
            continue
        if resource == CUSTOM_RESOURCE_DEFINITIONS:
            await _wait(client, body, lambda _: False, timeout_seconds=timeout_seconds, goal="terminate")
        report(f"{_describe(body)} deleted")


async def find_cluster_grants(client: Client, account: ServiceAccountRef) -> list[JsonObject]:
    """The bindings of a service account to ClusterRoles of dlop, in any namespace, and these ClusterRoles."""
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    bindings: list[JsonObject] = []
    for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
        items = (await client.list(resource, label_selector=f"app.kubernetes.io/name={MANAGER}"))["items"]
        own = (item for item in items if item.get("subjects") == [subject] and item["roleRef"]["kind"] == CLUSTER_ROLES.kind)
        bindings += [{**item, "apiVersion": resource.api_version, "kind": resource.kind} for item in own]
    roles = {binding["roleRef"]["name"] for binding in bindings}
    metadata = ({"name": name} for name in sorted(roles))
    return [*({"apiVersion": CLUSTER_ROLES.api_version, "kind": CLUSTER_ROLES.kind, "metadata": each} for each in metadata), *bindings]


async def count_jobs(client: Client, crd: JsonObject) -> int:
    """Number of custom resources of the CRD in all namespaces; 0 if the CRD is not installed."""
    spec = crd["spec"]
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    resource = Resource(spec["group"], version, spec["names"]["plural"], spec["names"]["kind"])
    try:
        return len((await client.list(resource))["items"])
    except NotFoundError:
        return 0


async def _apply_one(client: Client, body: JsonObject, *, timeout_seconds: float) -> str:
    resource, name, namespace = _locate(body)
    try:
        await client.create(resource, body, namespace=namespace)
        return "created"
    except AlreadyExistsError:
        before = await client.get(resource, name, namespace=namespace)
    if _is_terminating(before):
        # A patch would be lost together with the object.
        await _wait(client, body, lambda _: False, timeout_seconds=timeout_seconds, goal="terminate")
        await client.create(resource, body, namespace=namespace)
        return "recreated"
    after = await client.patch(resource, name, body, namespace=namespace)
    return "unchanged" if _resource_version(before) == _resource_version(after) else "configured"


def _is_terminating(body: JsonObject) -> bool:
    return body["metadata"].get("deletionTimestamp") is not None


async def _wait(client: Client, body: JsonObject, is_reached: Callable[[JsonObject], bool], *, timeout_seconds: float, goal: str) -> None:
    try:
        async with asyncio.timeout(timeout_seconds):
            await _watch_until(client, body, is_reached)
    except TimeoutError as error:
        raise ApplyTimeoutError(f"{_describe(body)} did not {goal} within {timeout_seconds:g} seconds") from error


async def _watch_until(client: Client, body: JsonObject, is_reached: Callable[[JsonObject], bool]) -> None:
    """Return when `is_reached` holds for the object or the object is deleted."""
    resource, name, namespace = _locate(body)
    while True:
        try:
            existing = await client.get(resource, name, namespace=namespace)
        except NotFoundError:
            return
        if is_reached(existing):
            return
        async with client.watch(
            resource, namespace=namespace, field_selector=f"metadata.name={name}", resource_version=_resource_version(existing)
        ) as events:
            async for event in events:
                if event.type is WatchEventType.DELETED or (event.type is WatchEventType.MODIFIED and is_reached(event.decode())):
                    return


def _is_established(crd: JsonObject) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _locate(body: JsonObject) -> tuple[Resource, str, str | None]:
    resource = _RESOURCES[body["apiVersion"], body["kind"]]
    return resource, body["metadata"]["name"], body["metadata"].get("namespace")


def _describe(body: JsonObject) -> str:
    namespace = body["metadata"].get("namespace")
    suffix = f" in {namespace}" if namespace else ""
    return f"{body['kind']} {body['metadata']['name']}{suffix}"


def _resource_version(body: JsonObject) -> str:
    return str(body["metadata"]["resourceVersion"])
