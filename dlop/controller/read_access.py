"""Checks whether the operator may list and watch a resource, before an informer needs it."""

from __future__ import annotations

from dlop.controller.job_freshness import current_version
from dlop.kube.client import Client
from dlop.kube.resources import Resource


async def check_read_access(client: Client, resource: Resource, *, namespace: str | None) -> None:
    """Send a list of one object, and open a watch that starts at its version.

    Raises:
        ForbiddenError: the operator may not list or may not watch the resource.
        NotFoundError: the resource is not served.
        KubeError: any other failure; it says nothing about permissions.
    """
    namespace = namespace if resource.namespaced else None
    version = await current_version(client, resource, namespace=namespace)
    async with client.watch(resource, namespace=namespace, resource_version=version, timeout_seconds=1):
        pass
