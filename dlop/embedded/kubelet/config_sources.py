"""Reads the objects that pods refer to when they start: config maps, secrets and service account tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from dlop.embedded.kubelet.environment import ConfigSources
from dlop.embedded.kubelet.volumes import token_projections
from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Resource
from dlop.kube.types import JsonObject

_TOKEN_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class ServiceAccountToken:
    value: str
    lifetime_seconds: float
    """As granted by the server."""


class ConfigReader:
    """Reads from the server each time, without a cache, so that a pod that starts gets the current objects."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, namespace: str, *, config_maps: Iterable[str], secrets: Iterable[str]) -> ConfigSources:
        """The config maps and secrets with these names, None for those that do not exist.

        Raises:
            KubeError: the server could not be reached.
        """
        return ConfigSources(await self._read_all(CONFIG_MAPS, namespace, config_maps), await self._read_all(SECRETS, namespace, secrets))

    async def request_tokens(self, pod: JsonObject) -> dict[tuple[str, str], ServiceAccountToken]:
        """The tokens that the pod's volumes project, by volume and path.

        Raises:
            KubeError: the server did not issue a token.
        """
        return {(volume, projection["path"]): await self.request_token(pod, projection) for volume, projection in token_projections(pod)}

    async def request_token(self, pod: JsonObject, projection: JsonObject) -> ServiceAccountToken:
        """A token of the pod's service account, with the audience and expiration of the projection.

        Raises:
            KubeError: the server did not issue a token.
        """
        metadata = pod["metadata"]
        bound_object = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
        spec: JsonObject = {"expirationSeconds": projection.get("expirationSeconds") or _TOKEN_SECONDS, "boundObjectRef": bound_object}
        if audience := projection.get("audience"):
            spec["audiences"] = [audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        account = pod["spec"].get("serviceAccountName") or "default"
        response = await self._client.create(SERVICE_ACCOUNTS, body, namespace=metadata["namespace"], name=account, subresource="token")
        return ServiceAccountToken(response["status"]["token"], response["spec"]["expirationSeconds"])

    async def _read_all(self, resource: Resource, namespace: str, names: Iterable[str]) -> dict[str, JsonObject | None]:
        sorted_names = sorted(names)
        objects = await asyncio.gather(*(self._read_one(resource, namespace, name) for name in sorted_names))
        return dict(zip(sorted_names, objects, strict=True))

    async def _read_one(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        try:
            return await self._client.get(resource, name, namespace=namespace) if name else None
        except NotFoundError:
            return None
