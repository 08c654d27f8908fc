"""What is kept of an object: only the fields that a job operator reads.

Decoding into these structs *is* the slimming: everything that they do not name (managedFields above all) is skipped
while the bytes are read and never becomes a Python object. All of them are read-only, so they are shared freely, and
their parts are: what an object has in common with others is kept once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from dlop.kube.interning import Interner
from dlop.kube.types import JsonObject

Buffer = bytes | msgspec.Raw

_shared = Interner()
_set = msgspec.structs.force_setattr


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """How every struct here behaves. Without `gc` they cost the garbage collector nothing: they cannot form cycles."""


class OwnerReference(_Slim, frozen=True):
    """Who an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(_Slim, frozen=True):
    """What every object says of itself."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None

    def __post_init__(self) -> None:
        labels = self.labels
        for name, value in labels.items():
            labels[name] = _shared.one(value)
        _set(self, "namespace", _shared.one(self.namespace))
        _set(self, "owner_references", _shared.one(self.owner_references))

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class KubeObject(Protocol):
    """Anything that has metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """What the object says of itself."""
        ...


T = TypeVar("T", bound=KubeObject)


class PartialObject(_Slim, frozen=True):
    """An object of which nothing but the metadata is of interest."""

    metadata: ObjectMeta = ObjectMeta()


class CustomObject(_Slim, frozen=True):
    """A custom resource: its metadata read, its spec and status as they came, for their own model to read."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")

    def body(self) -> JsonObject:
        """The whole object as plain data, without what was slimmed away."""
        data: JsonObject = msgspec.json.decode(msgspec.json.encode(self))
        return data


class Container(_Slim, frozen=True):
    """A container as the pod asks for it."""

    name: str = ""


class SchedulingGate(_Slim, frozen=True):
    """Something that keeps a pod from being scheduled."""

    name: str = ""


class PodSpec(_Slim, frozen=True):
    """What a pod asks for."""

    node_name: str = ""
    restart_policy: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    containers: tuple[Container, ...] = ()


class Waiting(_Slim, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Running(_Slim, frozen=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class Terminated(_Slim, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(_Slim, frozen=True):
    """Exactly one of the three, or none when nothing is known."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Slim, frozen=True):
    """What has become of a container."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Condition(_Slim, frozen=True):
    """One statement about an object, and whether it holds."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodStatus(_Slim, frozen=True):
    """What has become of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        _set(self, "phase", _shared.one(self.phase))
        # Every pod has half a dozen conditions that tell what the rest of its status tells: a quarter of its size.
        if self.conditions:
            _set(self, "conditions", tuple(filter(_tells_more, self.conditions)))


def _tells_more(condition: Condition) -> bool:
    """Whether a condition of a pod tells what nothing else does: that it cannot be placed, or has to go."""
    return condition.type == "DisruptionTarget" or (condition.type == "PodScheduled" and condition.status != "True")


class Pod(_Slim, frozen=True):
    """A pod, as far as its job is concerned."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        _set(self, "spec", _shared.one(self.spec))


class ServicePort(_Slim, frozen=True):
    """A port of a service."""

    name: str = ""
    port: int = 0


class ServiceSpec(_Slim, frozen=True):
    """What a service leads to."""

    ports: tuple[ServicePort, ...] = ()


class Service(_Slim, frozen=True):
    """A service, as far as its job is concerned."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()

    def __post_init__(self) -> None:
        _set(self, "spec", _shared.one(self.spec))


class PodGroupStatus(_Slim, frozen=True):
    """How far a scheduler has come with a group of pods."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class PodGroup(PartialObject, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Pods that are placed together, as a scheduler is told. Two schedulers have kinds of this name, with much in common."""

    spec: dict[str, Any] = {}
    status: PodGroupStatus = PodGroupStatus()


class PriorityClass(_Slim, frozen=True):
    """How important pods are."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    """Whether pods have it that name no class."""


def reader(kind: type[T]) -> Callable[[Buffer], T]:
    """A function that decodes one object of this kind.

    An object is kept as far as it can be understood. Where a field has an unexpected type, nulls are read as absent (as
    Go does); where that is not enough, the metadata alone is kept: what exists is then still known to exist.

    The function raises msgspec.DecodeError when not even the metadata makes sense.
    """
    strict = msgspec.json.Decoder(kind)

    def read(data: Buffer) -> T:
        try:
            found = strict.decode(data)
        except msgspec.DecodeError:
            found = _read_leniently(data, strict)
        return _detached(found) if isinstance(found, CustomObject) else found

    return read


def _read_leniently(data: Buffer, strict: msgspec.json.Decoder[T]) -> T:
    plain = _without_nulls(msgspec.json.decode(data))
    if not isinstance(plain, dict):
        raise msgspec.DecodeError(f"an object was expected, not {data!r:.80}")
    try:
        return strict.decode(msgspec.json.encode(plain))
    except msgspec.ValidationError:
        identity = {name: plain.get(name) for name in ("apiVersion", "kind", "metadata")}
        return strict.decode(msgspec.json.encode(identity))


def _without_nulls(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _without_nulls(value) for name, value in data.items() if value is not None}
    if isinstance(data, list):
        return [_without_nulls(value) for value in data if value is not None]
    return data


def _detached(found: CustomObject) -> Any:
    """The same object without a hold on the buffer that it was read from: raw parts are views of it."""
    return msgspec.structs.replace(found, spec=found.spec.copy(), status=found.status.copy())
