"""What a pod needs before its first container can start: its volumes, and a sandbox.

Both are tried until they succeed, ever more patiently, as what is missing may still come.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from dlop.embedded.kubelet.api_access import NO_ACCESS, TOKEN_SECONDS, PodAccess, pod_access
from dlop.embedded.kubelet.environment import DownwardValues
from dlop.embedded.kubelet.events import PodEvent
from dlop.embedded.kubelet.hosts_file import named_pod
from dlop.embedded.kubelet.node_context import NodeContext
from dlop.embedded.kubelet.restart_backoff import CrashLoop
from dlop.embedded.kubelet.runtime.base import LaunchError, Sandbox, SandboxRequest
from dlop.embedded.kubelet.volumes import VolumeInputs, VolumeProblem, make, named_sources, planned
from dlop.kube.errors import KubeError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, SECRETS
from dlop.kube.types import JsonObject


class PodSetup:
    """Sets one pod up."""

    def __init__(self, pod: JsonObject, *, tools: NodeContext, folder: Path) -> None:
        """`folder` is the pod's own."""
        self._pod = pod
        self._tools = tools
        self._folder = folder

    async def sandbox(self) -> Sandbox:
        """A sandbox for the pod."""
        loop = CrashLoop(self._tools.pace.volumes)
        folder = self._folder / "sandbox"
        request = SandboxRequest(
            uid=self._pod["metadata"]["uid"],
            hostname=named_pod(self._pod, "").own_name,
            folder=folder,
            host_network=bool(self._pod["spec"].get("hostNetwork")),
            names=self._tools.directory.addresses(self._pod["metadata"]["namespace"]),
        )
        while True:
            folder.mkdir(parents=True)
            try:
                return await self._made(request)
            except (OSError, LaunchError) as error:
                self._warn("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            shutil.rmtree(folder, ignore_errors=True)
            await _pause(loop)

    async def _made(self, request: SandboxRequest) -> Sandbox:
        """A sandbox that is half made when nobody wants it any more is finished, and given back."""
        making = asyncio.ensure_future(self._tools.runtime.sandbox(request))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await (await making).close()
            raise

    async def volumes(self, place: DownwardValues) -> dict[str, Path]:
        """Where the pod's volumes are."""
        made: dict[str, Path] = {}
        for volume in self._pod["spec"].get("volumes") or ():
            made[volume["name"]] = await self._volume(volume, place)
        return made

    async def _volume(self, volume: JsonObject, place: DownwardValues) -> Path:
        loop = CrashLoop(self._tools.pace.volumes)
        while True:
            try:
                return await self._try_volume(volume, place)
            except (VolumeProblem, KubeError, OSError) as problem:
                self._warn("FailedMount", f'MountVolume.SetUp failed for volume "{volume["name"]}" : {problem}')
            await _pause(loop)

    async def _try_volume(self, volume: JsonObject, place: DownwardValues) -> Path:
        alone = {**self._pod, "spec": {**self._pod["spec"], "volumes": [volume]}}
        config_maps, secrets = named_sources(alone)
        namespace = self._pod["metadata"]["namespace"]
        sources = await self._tools.inputs.sources(namespace, config_maps=config_maps, secrets=secrets)
        inputs = VolumeInputs(place, sources, await self._tools.inputs.tokens(alone))
        return make(planned(self._pod, volume, inputs), self._folder / "volumes" / volume["name"])

    async def access(self) -> PodAccess:
        """The pod's way to the API server."""
        loop = CrashLoop(self._tools.pace.volumes)
        address = self._tools.access.of(self._pod) if self._tools.access is not None else None
        while address is not None:
            try:
                token = await self._tools.inputs.token(self._pod, {"expirationSeconds": TOKEN_SECONDS})
                namespace = self._pod["metadata"]["namespace"]
                return pod_access(address, self._folder / "account", token=token, namespace=namespace)
            except NotFoundError:
                # A manifest may well name an account that only its own cluster has.
                break
            except (KubeError, OSError) as problem:
                self._warn("FailedMount", f"the token of the pod's service account is not to be had: {problem}")
            await _pause(loop)
        return NO_ACCESS

    async def keep_up_to_date(self, place: DownwardValues) -> None:
        """Make volumes anew whenever a config map or secret of theirs has changed, until cancelled."""
        namespace = self._pod["metadata"]["namespace"]
        config_maps, secrets = named_sources(self._pod)
        keys = [(CONFIG_MAPS, namespace, name) for name in config_maps] + [(SECRETS, namespace, name) for name in secrets]
        with self._tools.watchers.following(keys) as changed:
            while keys:
                await changed.wait()
                changed.clear()
                for volume in self._pod["spec"].get("volumes") or ():
                    await self._refresh(volume, place)

    async def _refresh(self, volume: JsonObject, place: DownwardValues) -> None:
        if not {"configMap", "secret", "projected"} & volume.keys():
            return
        try:
            await self._try_volume(volume, place)
        except (VolumeProblem, KubeError, OSError) as problem:
            # The pod keeps what it has.
            self._warn("FailedMount", f'MountVolume.SetUp failed for volume "{volume["name"]}" : {problem}')

    def _warn(self, reason: str, message: str) -> None:
        self._tools.events.tell(self._pod, PodEvent(reason=reason, message=message, is_warning=True))


async def _pause(loop: CrashLoop) -> None:
    loop.restarted(now=asyncio.get_running_loop().time())
    await asyncio.sleep(loop.wait_seconds)
