"""Sets up a pod before its containers start: volumes, API access and the sandbox. Keeps volumes and tokens current while it runs.

Each step is retried with back-off until it succeeds, because missing objects may still be created.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from dlop.embedded.kubelet.api_access import NO_ACCESS, PodAccess, write_pod_access
from dlop.embedded.kubelet.config_sources import ServiceAccountToken
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

T = TypeVar("T")

# A token is renewed after this part of its lifetime, and at the latest after a day, as by the kubelet.
_RENEWAL_FRACTION = 0.8
_MAX_TOKEN_AGE_SECONDS = 24 * 3600.0
_CLOCK_CHECK_SECONDS = 60.0
_API_ACCESS = ""
_TOKEN_FAILURE = "failed to request a service account token"  # noqa: S105 - a message


class PodSetup:
    def __init__(self, pod: JsonObject, *, context: NodeContext, pod_dir: Path) -> None:
        self._pod = pod
        self._context = context
        self._pod_dir = pod_dir
        self._renew_at: dict[str, float] = {}
        """When the tokens of a volume are renewed, by volume name, and that of the API access, under an empty name."""

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
        failure = f'MountVolume.SetUp failed for volume "{volume["name"]}" '
        return await self._retry(lambda: self._set_up_volume_once(volume, downward), failure=failure)

    async def _set_up_volume_once(self, volume: JsonObject, downward: DownwardValues) -> Path:
        pod_with_volume = {**self._pod, "spec": {**self._pod["spec"], "volumes": [volume]}}
        config_maps, secrets = referenced_sources(pod_with_volume)
        namespace, name = self._pod["metadata"]["namespace"], volume["name"]
        sources = await self._context.config_reader.read(namespace, config_maps=config_maps, secrets=secrets)
        tokens = await self._context.config_reader.request_tokens(pod_with_volume)
        token_values = {key: token.value for key, token in tokens.items()}
        inputs = VolumeInputs(downward, sources, token_values, node_dir=self._context.root_dir)
        path = set_up_volume(plan_volume(self._pod, volume, inputs), self._pod_dir / "volumes" / name)
        self._schedule_renewal(name, *tokens.values())
        return path

    async def set_up_api_access(self) -> PodAccess:
        return await self._retry(self._set_up_api_access_once, failure=_TOKEN_FAILURE)

    async def _set_up_api_access_once(self) -> PodAccess:
        try:
            return await self._write_api_access()
        except NotFoundError:
            # A manifest may name a service account that exists only on its original cluster.
            return NO_ACCESS

    async def _write_api_access(self) -> PodAccess:
        address = self._context.api_access.for_pod(self._pod) if self._context.api_access is not None else None
        if address is None:
            return NO_ACCESS
        token = await self._context.config_reader.request_token(self._pod, {})
        namespace = self._pod["metadata"]["namespace"]
        access = write_pod_access(address, self._pod_dir / "account", token=token.value, namespace=namespace)
        self._schedule_renewal(_API_ACCESS, token)
        return access

    async def _retry(self, work: Callable[[], Awaitable[T]], *, failure: str) -> T:
        backoff = RestartBackoff(self._context.timings.volumes)
        while True:
            try:
                return await work()
            except (VolumeError, KubeError, OSError) as error:
                self._record_warning("FailedMount", f"{failure}: {error}")
            await _sleep(backoff)

    # --- while the pod runs ------------------------------------------------------------------------------------------

    async def refresh_volumes(self, downward: DownwardValues) -> None:
        """Update volumes when their config maps and secrets change, and renew tokens before they expire, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_sources(downward))
            for volume in self._pod["spec"].get("volumes") or ():
                if volume["name"] in self._renew_at:
                    group.create_task(self._renew_tokens(volume["name"], partial(self._set_up_volume, volume, downward)))
            if _API_ACCESS in self._renew_at:
                group.create_task(self._renew_tokens(_API_ACCESS, partial(self._retry, self._write_api_access, failure=_TOKEN_FAILURE)))

    async def _renew_tokens(self, name: str, renew: Callable[[], Awaitable[object]]) -> None:
        while True:
            remaining = self._renew_at[name] - self._context.clock()
            if remaining > 0:
                # In steps, because the clock of the loop stands still while the machine is suspended.
                await asyncio.sleep(min(remaining, _CLOCK_CHECK_SECONDS))
            else:
                await renew()

    def _schedule_renewal(self, name: str, *tokens: ServiceAccountToken) -> None:
        if tokens:
            ages = (token.lifetime_seconds * _RENEWAL_FRACTION for token in tokens)
            self._renew_at[name] = self._context.clock() + min(*ages, _MAX_TOKEN_AGE_SECONDS)

    async def _follow_sources(self, downward: DownwardValues) -> None:
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
