"""Which kinds the server serves: custom resource definitions, watched so that a kind may arrive later or go away.

Where these may not be watched (a namespaced operator has no such right), discovery is asked instead, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random

import msgspec
import structlog

from dlop.controller.kinds import ManagedKind
from dlop.kube.backoff import Backoff
from dlop.kube.cache import CacheChange
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, KubeError, NotFoundError, UnauthorizedError
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.objects import Condition, ObjectMeta
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS

log = structlog.get_logger(__name__)

Listener = Callable[[ManagedKind], None]


_KEEPS_UNKNOWN = "x-kubernetes-preserve-unknown-fields"


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """As the structs of `dlop.kube.objects`: what is not named is never kept. Definitions are large."""


class _Anything(_Slim, frozen=True):
    """Of which only matters that it is there."""


class _StatusProperties(_Slim, frozen=True):
    dlop: _Anything | None = None


class _StatusSchema(_Slim, frozen=True):
    keeps_unknown: bool = msgspec.field(default=False, name=_KEEPS_UNKNOWN)
    properties: _StatusProperties = _StatusProperties()


class _RootProperties(_Slim, frozen=True):
    status: _StatusSchema | None = None


class _RootSchema(_Slim, frozen=True):
    keeps_unknown: bool = msgspec.field(default=False, name=_KEEPS_UNKNOWN)
    properties: _RootProperties = _RootProperties()


class _Schema(_Slim, frozen=True):
    root: _RootSchema = msgspec.field(default_factory=_RootSchema, name="openAPIV3Schema")


class _Version(_Slim, frozen=True):
    name: str = ""
    served: bool = False
    schema: _Schema | None = None

    @property
    def keeps_record(self) -> bool:
        """Whether the server stores what dlop writes down about a job, and does not drop it as a field that it does not know."""
        if self.schema is None:
            return True
        root = self.schema.root
        status = root.properties.status
        return root.keeps_unknown if status is None else status.keeps_unknown or status.properties.dlop is not None


class _Spec(_Slim, frozen=True):
    group: str = ""
    versions: tuple[_Version, ...] = ()


class _Status(_Slim, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Definition(_Slim, frozen=True):
    """A custom resource definition, as far as it says what is served."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def serves(self, version: str) -> bool:
        """Whether objects of this version can be read now."""
        established = any(condition.type == "Established" and condition.status == "True" for condition in self.status.conditions)
        return established and any(found.name == version and found.served for found in self.spec.versions)

    def keeps_records(self, version: str) -> bool:
        """Whether jobs of this version can be run. A definition of another operator may drop what dlop has to remember."""
        return all(found.keeps_record for found in self.spec.versions if found.name == version)


class Definitions:
    """Tells when a kind begins and ceases to be served."""

    def __init__(
        self, client: Client, kinds: Iterable[ManagedKind], *, rng: Random, pace: InformerTimings, arrived: Listener, departed: Listener
    ) -> None:
        self._client = client
        self._kinds: dict[str, list[ManagedKind]] = {}
        for kind in kinds:
            self._kinds.setdefault(kind.resource.qualified_name, []).append(kind)
        self._arrived = arrived
        self._departed = departed
        self._served: set[ManagedKind] = set()
        self._backoff = Backoff(rng=rng, first_seconds=1.0, cap_seconds=30.0, reset_after_seconds=120.0)
        self._known = asyncio.Event()
        self.informer: Informer[Definition] = Informer(
            client, CUSTOM_RESOURCE_DEFINITIONS, Definition, rng=rng, handlers=[self._told], pace=pace
        )
        self.is_watching = False

    async def run(self) -> None:
        """Follow the definitions until cancelled; where that is not allowed, ask discovery and end."""
        if await self._may_watch():
            self.is_watching = True
            async with asyncio.TaskGroup() as group:
                group.create_task(self.informer.run(), name="definitions")
                await self.informer.wait_synced()
                self._known.set()
        else:
            await self._discover()
            self._known.set()

    async def wait_known(self) -> None:
        """Wait until it is known what is served now."""
        await self._known.wait()

    async def _may_watch(self) -> bool:
        """Only a clear no is a no: a server that cannot be reached is waited for, by the informer."""
        try:
            await self._client.call("GET", CUSTOM_RESOURCE_DEFINITIONS.path(), query=(("limit", "1"),), accept=_METADATA_ONLY)
        except (ForbiddenError, UnauthorizedError) as error:
            log.warning(
                "custom resource definitions may not be watched: kinds that are installed now are looked after, "
                "kinds that are installed later only after a restart",
                error=str(error),
            )
            return False
        except KubeError as error:
            log.info("custom resource definitions cannot be listed yet", error=str(error))
        return True

    async def _discover(self) -> None:
        for kind in [kind for kinds in self._kinds.values() for kind in kinds]:
            while True:
                try:
                    if await self._is_discovered(kind):
                        self._arrived(kind)
                    break
                except KubeError as error:
                    log.warning("discovery does not answer", kind=kind.resource.qualified_name, error=str(error))
                    await asyncio.sleep(self._backoff.delay_seconds(now=asyncio.get_running_loop().time()))

    async def _is_discovered(self, kind: ManagedKind) -> bool:
        path = f"/apis/{kind.resource.group}/{kind.resource.version}"
        try:
            found = msgspec.json.decode((await self._client.call("GET", path)).body)
        except NotFoundError:
            return False
        return any(resource.get("name") == kind.resource.plural for resource in found.get("resources") or [])

    def _told(self, change: CacheChange[Definition]) -> None:
        for kind in self._kinds.get(change.object.metadata.name, ()):
            serves = change.new is not None and _is_fit(change.new, kind)
            if serves and kind not in self._served:
                self._served.add(kind)
                self._arrived(kind)
            elif not serves and kind in self._served:
                self._served.remove(kind)
                self._departed(kind)


def _is_fit(definition: Definition, kind: ManagedKind) -> bool:
    """Whether jobs of a kind can be run under its definition."""
    if not definition.serves(kind.resource.version):
        return False
    if definition.keeps_records(kind.resource.version):
        return True
    # Without a memory, what has failed would be found anew for ever. Nothing is touched before that is mended.
    log.error(
        "the definition of a kind drops status.dlop, it may be that of another operator: its jobs are left alone "
        "until the definition of dlop is applied; do so with `dlop install --take-over`",
        kind=kind.resource.qualified_name,
    )
    return False


_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
