"""Watches CRDs to know which kinds the API server serves. Kinds can be installed and removed while the operator runs.

Where the operator may not watch CRDs, as in namespaced mode, it queries discovery once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random

import msgspec
import structlog

from dlop.controller.kinds import ManagedKind
from dlop.controller.read_access import check_read_access
from dlop.kube.cache import CacheChange
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, KubeError, NotFoundError, StatusError
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.objects import Condition, ObjectMeta
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from dlop.kube.server_contact import ServerRetry

log = structlog.get_logger(__name__)

KindListener = Callable[[ManagedKind], None]


_PRESERVE_UNKNOWN_FIELDS = "x-kubernetes-preserve-unknown-fields"


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Keeps the declared fields only, like the structs of `dlop.kube.objects`. CRDs are large."""


class _Present(_Slim, frozen=True):
    """A value whose content does not matter."""


class _StatusProperties(_Slim, frozen=True):
    dlop: _Present | None = None


class _StatusSchema(_Slim, frozen=True):
    preserves_unknown: bool = msgspec.field(default=False, name=_PRESERVE_UNKNOWN_FIELDS)
    properties: _StatusProperties = _StatusProperties()


class _RootProperties(_Slim, frozen=True):
    status: _StatusSchema | None = None


class _RootSchema(_Slim, frozen=True):
    preserves_unknown: bool = msgspec.field(default=False, name=_PRESERVE_UNKNOWN_FIELDS)
    properties: _RootProperties = _RootProperties()


class _Schema(_Slim, frozen=True):
    root: _RootSchema = msgspec.field(default_factory=_RootSchema, name="openAPIV3Schema")


class _Version(_Slim, frozen=True):
    name: str = ""
    served: bool = False
    schema: _Schema | None = None

    @property
    def preserves_record(self) -> bool:
        """Whether the API server stores `status.dlop` and does not prune it."""
        if self.schema is None:
            return True
        root = self.schema.root
        status = root.properties.status
        return root.preserves_unknown if status is None else status.preserves_unknown or status.properties.dlop is not None


class _Spec(_Slim, frozen=True):
    group: str = ""
    versions: tuple[_Version, ...] = ()


class _Status(_Slim, frozen=True):
    conditions: tuple[Condition, ...] = ()


class CustomResourceDefinition(_Slim, frozen=True):
    """The fields of a CRD that say which versions are served."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def serves(self, version: str) -> bool:
        established = any(condition.type == "Established" and condition.status == "True" for condition in self.status.conditions)
        return established and any(candidate.name == version and candidate.served for candidate in self.spec.versions)

    def preserves_record(self, version: str) -> bool:
        """Whether this version stores `status.dlop`. A CRD of another operator may prune it."""
        return all(candidate.preserves_record for candidate in self.spec.versions if candidate.name == version)


class CrdWatcher:
    """Calls `on_served` and `on_removed` as kinds are installed and removed."""

    def __init__(
        self,
        client: Client,
        kinds: Iterable[ManagedKind],
        *,
        rng: Random,
        timings: InformerTimings,
        on_served: KindListener,
        on_removed: KindListener,
    ) -> None:
        self._client = client
        self._kinds: dict[str, list[ManagedKind]] = {}
        for kind in kinds:
            self._kinds.setdefault(kind.resource.qualified_name, []).append(kind)
        self._on_served = on_served
        self._on_removed = on_removed
        self._served: set[ManagedKind] = set()
        self._retry = ServerRetry(
            client.contact,
            rng=rng,
            first_seconds=timings.initial_backoff_seconds,
            cap_seconds=timings.max_backoff_seconds,
            reset_after_seconds=timings.backoff_reset_seconds,
        )
        self._synced = asyncio.Event()
        self.informer: Informer[CustomResourceDefinition] = Informer(
            client,
            CUSTOM_RESOURCE_DEFINITIONS,
            CustomResourceDefinition,
            rng=rng,
            keep_annotation=lambda _: False,
            handlers=[self._on_change],
            timings=timings,
        )
        self.is_watching = False

    async def run(self) -> None:
        """Watch CRDs until cancelled. Where that is forbidden, query discovery and return."""
        if await self._may_watch():
            self.is_watching = True
            async with asyncio.TaskGroup() as group:
                group.create_task(self.informer.run(), name="informer of CRDs")
                await self.informer.wait_synced()
                self._synced.set()
        else:
            await self._discover()
            self._synced.set()

    async def wait_synced(self) -> None:
        """Wait until the kinds that are currently served are known."""
        await self._synced.wait()

    async def _may_watch(self) -> bool:
        """Retries until the API server allows or denies it. Rejected credentials (401) and other failures are neither."""
        while True:
            started_at = asyncio.get_running_loop().time()
            try:
                await check_read_access(self._client, CUSTOM_RESOURCE_DEFINITIONS, namespace=None)
            except ForbiddenError as error:
                log.warning("not allowed to watch CRDs; kinds installed later need a restart of the operator", error=str(error))
                return False
            except KubeError as error:
                log.warning("failed to list or watch CRDs, retrying", error=str(error))
                await self._retry.wait(self._retry.delay_seconds(error, started_at=started_at))
            else:
                return True

    async def _discover(self) -> None:
        """Query discovery for all kinds, until each has an answer. Kinds with an answer do not wait for the others."""
        kinds = [kind for kinds in self._kinds.values() for kind in kinds]
        while kinds:
            started_at = asyncio.get_running_loop().time()
            errors = {kind: error for kind in kinds if (error := await self._discover_kind(kind)) is not None}
            kinds = list(errors)
            if errors:
                if all(isinstance(error, StatusError) for error in errors.values()):
                    self._synced.set()  # the server answers; the operator starts without these kinds
                await self._retry.wait(self._retry.delay_seconds(next(iter(errors.values())), started_at=started_at))

    async def _discover_kind(self, kind: ManagedKind) -> KubeError | None:
        try:
            if await self._is_discovered(kind):
                self._on_served(kind)
        except KubeError as error:
            log.warning("discovery failed, retrying", kind=kind.resource.qualified_name, error=str(error))
            return error
        return None

    async def _is_discovered(self, kind: ManagedKind) -> bool:
        path = f"/apis/{kind.resource.group}/{kind.resource.version}"
        try:
            resource_list = msgspec.json.decode((await self._client.call("GET", path)).body)
        except NotFoundError:
            return False
        return any(resource.get("name") == kind.resource.plural for resource in resource_list.get("resources") or [])

    def _on_change(self, change: CacheChange[CustomResourceDefinition]) -> None:
        for kind in self._kinds.get(change.object.metadata.name, ()):
            is_served = change.new is not None and _is_usable(change.new, kind)
            if is_served and kind not in self._served:
                self._served.add(kind)
                self._on_served(kind)
            elif not is_served and kind in self._served:
                self._served.remove(kind)
                self._on_removed(kind)


def _is_usable(crd: CustomResourceDefinition, kind: ManagedKind) -> bool:
    """Whether the CRD serves the kind and stores its record."""
    if not crd.serves(kind.resource.version):
        return False
    if crd.preserves_record(kind.resource.version):
        return True
    # Without a record, every pass would count the same failures again. Do not touch the jobs until the CRD is replaced.
    log.error(
        "CRD drops status.dlop and may belong to another operator; "
        "ignoring its jobs until the CRD of dlop is installed with `dlop install --take-over`",
        kind=kind.resource.qualified_name,
    )
    return False
