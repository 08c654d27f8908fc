"""Sets up a pod before its containers start: volumes, API access and the sandbox.

Each step is retried with back-off until it succeeds, because missing objects may still be created.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from dlop.embedded.kubelet.api_access import NO_ACCESS, TOKEN_SECONDS, PodAccess, write_pod_access
from dlop.embedded.kubelet.crash_loop_backoff import RestartBackoff
from dlop.embedded.kubelet.environment import DownwardValues
from dlop.embedded.kubelet.events import PodEvent
from dlop.embedded.kubelet.hosts_file import pod_entry
from dlop.embedded.kubelet.node_context import NodeContext
from dlop.embedded.kubelet.runtime.base import LaunchError, Sandbox, SandboxRequest
from dlop.embedded.kubelet.volumes import VolumeError, VolumeInputs, plan_volume, referenced_sources, set_up_volume
from dlop.kube.errors import KubeError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, SECRETS
from dlop.kube.types import JsonObject


class PodSetup:
    def __init__(self, pod: JsonObject, *, context: NodeContext, pod_dir: Path) -> None:
        self._pod = pod
        self._context = context
        self._pod_dir = pod_dir

    async def create_sandbox(self) -> Sandbox:
        backoff = RestartBackoff(self._context.timings.volumes)
        directory = self._pod_dir / "sandbox"
        request = SandboxRequest(
            uid=self._pod["metadata"]["uid"],
            hostname=pod_entry(self._pod, "").pod_hostname,
            directory=directory,
            host_network=bool(self._pod["spec"].get("hostNetwork")),
            host_addresses=self._context.hosts.addresses(self._pod["metadata"]["namespace"]),
        )
        while True:
            directory.mkdir(parents=True)
            try:
                return await self._create_sandbox_once(request)
            except (OSError, LaunchError) as error:
                self._record_warning("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            shutil.rmtree(directory, ignore_errors=True)
            await _sleep(backoff)

    async def _create_sandbox_once(self, request: SandboxRequest) -> Sandbox:
        """When cancelled, wait for the sandbox and close it."""
        creation = asyncio.ensure_future(self._context.runtime.create_sandbox(request))
        try:
            return await asyncio.shield(creation)
        except asyncio.CancelledError:
            await (await creation).close()
            raise

    async def set_up_volumes(self, downward: DownwardValues) -> dict[str, Path]:
        """Returns the paths of the pod's volumes by name."""
        paths: dict[str, Path] = {}
        for volume in self._pod["spec"].get("volumes") or ():
            paths[volume["name"]] = await self._set_up_volume(volume, downward)
        return paths

    async def _set_up_volume(self, volume: JsonObject, downward: DownwardValues) -> Path:
        backoff = RestartBackoff(self._context.timings.volumes)
        while True:
            try:
                return await self._set_up_volume_once(volume, downward)
            except (VolumeError, KubeError, OSError) as error:
                self._record_warning("FailedMount", f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}')
            await _sleep(backoff)

    async def _set_up_volume_once(self, volume: JsonObject, downward: DownwardValues) -> Path:
        pod_with_volume = {**self._pod, "spec": {**self._pod["spec"], "volumes": [volume]}}
        config_maps, secrets = referenced_sources(pod_with_volume)
        namespace = self._pod["metadata"]["namespace"]
        sources = await self._context.config_reader.read(namespace, config_maps=config_maps, secrets=secrets)
        inputs = VolumeInputs(downward, sources, await self._context.config_reader.request_tokens(pod_with_volume))
        return set_up_volume(plan_volume(self._pod, volume, inputs), self._pod_dir / "volumes" / volume["name"])

    async def set_up_api_access(self) -> PodAccess:
        backoff = RestartBackoff(self._context.timings.volumes)
        address = self._context.api_access.for_pod(self._pod) if self._context.api_access is not None else None
        while address is not None:
            try:
                token = await self._context.config_reader.request_token(self._pod, {"expirationSeconds": TOKEN_SECONDS})
                namespace = self._pod["metadata"]["namespace"]
                return write_pod_access(address, self._pod_dir / "account", token=token, namespace=namespace)
            except NotFoundError:
                # A manifest may name a service account that exists only on its original cluster.
                break
            except (KubeError, OSError) as error:
                self._record_warning("FailedMount", f"failed to request a service account token: {error}")
            await _sleep(backoff)
        return NO_ACCESS

    async def refresh_volumes(self, downward: DownwardValues) -> None:
        """Update volumes when their config maps and secrets change, until cancelled."""
        namespace = self._pod["metadata"]["namespace"]
        config_maps, secrets = referenced_sources(self._pod)
        keys = [(CONFIG_MAPS, namespace, name) for name in config_maps] + [(SECRETS, namespace, name) for name in secrets]
        with self._context.object_watcher.watching(keys) as changed:
            while keys:
                await changed.wait()
                changed.clear()
                for volume in self._pod["spec"].get("volumes") or ():
                    await self._refresh_volume(volume, downward)

    async def _refresh_volume(self, volume: JsonObject, downward: DownwardValues) -> None:
        if not {"configMap", "secret", "projected"} & volume.keys():
            return
        try:
            await self._set_up_volume_once(volume, downward)
        except (VolumeError, KubeError, OSError) as error:
            # The pod keeps the current content.
            self._record_warning("FailedMount", f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}')

    def _record_warning(self, reason: str, message: str) -> None:
        self._context.events.record(self._pod, PodEvent(reason=reason, message=message, is_warning=True))


async def _sleep(backoff: RestartBackoff) -> None:
    backoff.record_restart(now=asyncio.get_running_loop().time())
    await asyncio.sleep(backoff.delay_seconds)
