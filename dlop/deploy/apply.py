"""Brings objects into a cluster and out again, telling what happens to each.

Apply creates what is missing and merges into what is there, so a second run changes nothing. It waits until the server
says of each definition that it is established.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

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

_KNOWN = (
    *(CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS),
    *(CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, NAMESPACES, SERVICES),
)
_RESOURCES = {(resource.api_version, resource.kind): resource for resource in _KNOWN}

Say = Callable[[str], None]


class ApplyTimeoutError(KubeError):
    """The cluster did not do in time what it was asked to."""


async def apply(client: Client, objects: Iterable[JsonObject], *, say: Say, timeout_seconds: float = 60.0) -> None:
    """Create these objects or bring them up to date, one after the other.

    Raises:
        KubeError: the cluster refused one; those before it are there.
    """
    for body in objects:
        say(f"{_title(body)} {await _apply_one(client, body, timeout_seconds=timeout_seconds)}")
        if body["kind"] == CUSTOM_RESOURCE_DEFINITIONS.kind:
            await _wait(client, body, _is_established, timeout_seconds=timeout_seconds, goal="be served")


async def without_foreign(client: Client, definitions: Iterable[JsonObject], *, say: Say) -> list[JsonObject]:
    """These definitions without those that somebody else has made: their schema is not ours to change, nor their jobs to delete."""
    found = []
    for definition in definitions:
        if await _is_foreign(client, definition):
            say(f"{_title(definition)} is somebody else's, and was left as it is")
        else:
            found.append(definition)
    return found


async def without_other_versions(client: Client, definitions: Iterable[JsonObject], *, say: Say) -> list[JsonObject]:
    """These definitions without those that cannot take the place of what is there: it has jobs of versions that they do not know."""
    found = []
    for definition in definitions:
        known = {version["name"] for version in definition["spec"]["versions"]}
        stored = (await _there(client, definition)).get("status", {}).get("storedVersions") or ()
        if others := [version for version in stored if version not in known]:
            say(f"{_title(definition)} is for jobs of version {', '.join(others)}, which nobody here knows, and was left as it is")
        else:
            found.append(definition)
    return found


async def _is_foreign(client: Client, definition: JsonObject) -> bool:
    there = await _there(client, definition)
    labels = there.get("metadata", {}).get("labels") or {}
    return bool(there) and not definition["metadata"]["labels"].items() <= labels.items()


async def _there(client: Client, definition: JsonObject) -> JsonObject:
    """The definition of that name as it is in the cluster; empty when there is none, or one that is on its way out."""
    try:
        found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, definition["metadata"]["name"])
    except NotFoundError:
        return {}
    return {} if _is_leaving(found) else found


async def ensure_namespace(client: Client, body: JsonObject, *, say: Say) -> None:
    """Create a namespace that is missing. One that is there is somebody's, and stays as it is."""
    try:
        await client.create(NAMESPACES, body)
    except AlreadyExistsError:
        return
    say(f"{_title(body)} created")


async def remove(client: Client, objects: Iterable[JsonObject], *, say: Say, timeout_seconds: float = 60.0) -> None:
    """Delete these objects, the last one first, and wait until definitions and their objects are gone."""
    for body in reversed(list(objects)):
        resource, name, namespace = _address(body)
        try:
            await client.delete(resource, name, namespace=namespace, propagation=Propagation.BACKGROUND)
        except NotFoundError:
            say(f"{_title(body)} was not there")
            continue
        if resource == CUSTOM_RESOURCE_DEFINITIONS:
            await _wait(client, body, lambda _: False, timeout_seconds=timeout_seconds, goal="go away")
        say(f"{_title(body)} deleted")


async def jobs_of(client: Client, definition: JsonObject) -> int:
    """How many objects there are of a definition's kind, in all namespaces."""
    spec = definition["spec"]
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    resource = Resource(spec["group"], version, spec["names"]["plural"], spec["names"]["kind"])
    try:
        return len((await client.list(resource))["items"])
    except NotFoundError:
        return 0


async def _apply_one(client: Client, body: JsonObject, *, timeout_seconds: float) -> str:
    resource, name, namespace = _address(body)
    try:
        await client.create(resource, body, namespace=namespace)
        return "created"
    except AlreadyExistsError:
        before = await client.get(resource, name, namespace=namespace)
    if _is_leaving(before):
        await _wait(client, body, lambda _: False, timeout_seconds=timeout_seconds, goal="go away")
        await client.create(resource, body, namespace=namespace)
        return "created anew"
    after = await client.patch(resource, name, body, namespace=namespace)
    return "unchanged" if _version(before) == _version(after) else "changed"


def _is_leaving(found: JsonObject) -> bool:
    """Whatever would be written into it would go with it."""
    return found["metadata"].get("deletionTimestamp") is not None


async def _wait(client: Client, body: JsonObject, reached: Callable[[JsonObject], bool], *, timeout_seconds: float, goal: str) -> None:
    try:
        async with asyncio.timeout(timeout_seconds):
            await _watch_until(client, body, reached)
    except TimeoutError as error:
        raise ApplyTimeoutError(f"{_title(body)} did not {goal} within {timeout_seconds:g} seconds") from error


async def _watch_until(client: Client, body: JsonObject, reached: Callable[[JsonObject], bool]) -> None:
    """Return when an object is as it should be, or is gone."""
    resource, name, namespace = _address(body)
    while True:
        try:
            found = await client.get(resource, name, namespace=namespace)
        except NotFoundError:
            return
        if reached(found):
            return
        async with client.watch(
            resource, namespace=namespace, field_selector=f"metadata.name={name}", resource_version=_version(found)
        ) as events:
            async for event in events:
                if event.type is WatchEventType.DELETED or (event.type is WatchEventType.MODIFIED and reached(event.decode())):
                    return


def _is_established(definition: JsonObject) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _address(body: JsonObject) -> tuple[Resource, str, str | None]:
    resource = _RESOURCES[body["apiVersion"], body["kind"]]
    return resource, body["metadata"]["name"], body["metadata"].get("namespace")


def _title(body: JsonObject) -> str:
    namespace = body["metadata"].get("namespace")
    place = f" in {namespace}" if namespace else ""
    return f"{body['kind']} {body['metadata']['name']}{place}"


def _version(body: JsonObject) -> str:
    return str(body["metadata"]["resourceVersion"])
