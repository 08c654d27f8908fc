"""What pods refer to, fetched when they start: config maps, secrets, tokens of service accounts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from dlop.embedded.kubelet.environment import Sources
from dlop.embedded.kubelet.volumes import wanted_tokens
from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Resource
from dlop.kube.types import JsonObject

_TOKEN_SECONDS = 3600


class Inputs:
    """Asks the server, each time: a pod that starts gets what is there then."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def sources(self, namespace: str, *, config_maps: Iterable[str], secrets: Iterable[str]) -> Sources:
        """The config maps and secrets of these names, as far as they exist.

        Raises:
            KubeError: the server could not be asked.
        """
        return Sources(await self._all(CONFIG_MAPS, namespace, config_maps), await self._all(SECRETS, namespace, secrets))

    async def tokens(self, pod: JsonObject) -> dict[tuple[str, str], str]:
        """The tokens that the pod's volumes want, by volume and path.

        Raises:
            KubeError: the server does not give one.
        """
        return {(volume, wanted["path"]): await self.token(pod, wanted) for volume, wanted in wanted_tokens(pod)}

    async def token(self, pod: JsonObject, wanted: JsonObject) -> str:
        """A token of the pod's account, for as long and for whom it is wanted.

        Raises:
            KubeError: the server does not give one.
        """
        metadata = pod["metadata"]
        owner = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
        spec: JsonObject = {"expirationSeconds": wanted.get("expirationSeconds") or _TOKEN_SECONDS, "boundObjectRef": owner}
        if audience := wanted.get("audience"):
            spec["audiences"] = [audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        account = pod["spec"].get("serviceAccountName") or "default"
        answer = await self._client.create(SERVICE_ACCOUNTS, body, namespace=metadata["namespace"], name=account, subresource="token")
        return str(answer["status"]["token"])

    async def _all(self, resource: Resource, namespace: str, names: Iterable[str]) -> dict[str, JsonObject | None]:
        wanted = sorted(names)
        found = await asyncio.gather(*(self._one(resource, namespace, name) for name in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _one(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        try:
            return await self._client.get(resource, name, namespace=namespace) if name else None
        except NotFoundError:
            return None
