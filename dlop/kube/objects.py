"""Slim versions of Kubernetes objects, with only the fields that a job operator reads.

Fields that the structs do not name (above all managedFields) are skipped during decoding and never become Python
objects. All structs are read-only, so they can be shared. Parts that are equal in many objects are interned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from dlop.kube.types import JsonObject

Buffer = bytes | msgspec.Raw

Decoded = TypeVar("Decoded")
Value = TypeVar("Value", bound=Hashable)

# A full interner is cleared and fills again. Objects that share values arrive together, so little is lost.
_MAX_INTERNED = 16_384
# Far more levels than real objects have, and far below Python's recursion limit.
MAX_JSON_LEVELS = 200
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


class Interner:
    """Keeps one instance of each immutable value."""

    def __init__(self, max_entries: int = _MAX_INTERNED) -> None:
        self._max_entries = max_entries
        self._values: dict[Any, Any] = {}

    def intern(self, value: Value) -> Value:
        """The first instance that was equal to `value`."""
        if len(self._values) >= self._max_entries:
            self._values.clear()
        interned: Value = self._values.setdefault(value, value)
        return interned

    def __len__(self) -> int:
        return len(self._values)


_interner = Interner()
_set = msgspec.structs.force_setattr


class _SlimStruct(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all structs here. They cannot form cycles, so the garbage collector need not track them."""


class OwnerReference(_SlimStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(_SlimStruct, frozen=True):
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
            labels[name] = _interner.intern(value)
        _set(self, "namespace", _interner.intern(self.namespace))
        _set(self, "owner_references", _interner.intern(self.owner_references))

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with `controller: true`, if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class KubeObject(Protocol):
    """Any object with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=KubeObject)


class PartialObject(_SlimStruct, frozen=True):
    """An object reduced to its metadata."""

    metadata: ObjectMeta = ObjectMeta()


class CustomObject(_SlimStruct, frozen=True):
    """A custom resource. Its spec and status stay undecoded, for the model of the kind to read."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")

    def body(self) -> JsonObject:
        """The object as plain data, without the fields that were skipped."""
        data: JsonObject = msgspec.json.decode(msgspec.json.encode(self))
        return data


class PodContainer(_SlimStruct, frozen=True):
    name: str = ""


class SchedulingGate(_SlimStruct, frozen=True):
    name: str = ""


class PodSpec(_SlimStruct, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    restart_policy: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    containers: tuple[PodContainer, ...] = ()


class ContainerStateWaiting(_SlimStruct, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(_SlimStruct, frozen=True):
    started_at: datetime | None = None


class ContainerStateTerminated(_SlimStruct, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(_SlimStruct, frozen=True):
    """At most one of the fields is set. If none is, the state is unknown."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(_SlimStruct, frozen=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Condition(_SlimStruct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


_UNREADY_BY_CONTAINERS = frozenset({"ContainersNotReady", "PodCompleted", "PodFailed"})
"""Reasons of the condition Ready that the container statuses show as well. Others are readiness gates and lost nodes."""


class PodStatus(_SlimStruct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        _set(self, "phase", _interner.intern(self.phase))
        # Most conditions of a pod repeat the rest of its status. They would take a quarter of its memory.
        if self.conditions:
            _set(self, "conditions", tuple(filter(_is_relevant, self.conditions)))


def _is_relevant(condition: Condition) -> bool:
    """Whether a pod condition has information that no other field has.

    The pod is unschedulable, will be disrupted, or is not ready although all its containers are.
    """
    if condition.type == "Ready":
        return condition.status != "True" and condition.reason not in _UNREADY_BY_CONTAINERS
    return condition.type == "DisruptionTarget" or (condition.type == "PodScheduled" and condition.status != "True")


class Pod(_SlimStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        _set(self, "spec", _interner.intern(self.spec))


class ResourceList(_SlimStruct, frozen=True):
    """Quantities of the resources that the autoscaler considers."""

    cpu: str = ""
    memory: str = ""
    gpu: str = msgspec.field(default="", name="nvidia.com/gpu")


class ResourceRequirements(_SlimStruct, frozen=True):
    requests: ResourceList = ResourceList()
    limits: ResourceList = ResourceList()


class SizedContainer(PodContainer, frozen=True, gc=False, rename="camel", omit_defaults=True):
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class SizedPodSpec(PodSpec, frozen=True, gc=False, rename="camel", omit_defaults=True):
    containers: tuple[SizedContainer, ...] = ()
    init_containers: tuple[SizedContainer, ...] = ()
    overhead: ResourceList = ResourceList()
    resources: ResourceRequirements = ResourceRequirements()


class SizedPod(Pod, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A pod with its resource requests, which only the autoscaler reads."""

    spec: SizedPodSpec = SizedPodSpec()


class ServicePort(_SlimStruct, frozen=True):
    name: str = ""
    port: int = 0


class ServiceSpec(_SlimStruct, frozen=True):
    ports: tuple[ServicePort, ...] = ()


class Service(_SlimStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()

    def __post_init__(self) -> None:
        _set(self, "spec", _interner.intern(self.spec))


class PodGroupStatus(_SlimStruct, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class PodGroup(PartialObject, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The common fields of the PodGroup kinds of Volcano and scheduler-plugins."""

    spec: dict[str, Any] = {}
    status: PodGroupStatus = PodGroupStatus()


class PodSetAssignment(_SlimStruct, frozen=True):
    name: str = ""
    flavors: dict[str, str] = {}
    """Names of ResourceFlavors by resource."""


class Admission(_SlimStruct, frozen=True):
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodSetUpdate(_SlimStruct, frozen=True):
    """What an admission check adds to the pods of a pod set."""

    name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()


class AdmissionCheckState(_SlimStruct, frozen=True):
    pod_set_updates: tuple[PodSetUpdate, ...] = ()


class WorkloadSpec(_SlimStruct, frozen=True):
    priority: int | None = None
    priority_class_ref: dict[str, str] | None = None


class WorkloadStatus(_SlimStruct, frozen=True):
    conditions: tuple[dict[str, Any], ...] = ()
    """With all their fields, because a patch of one condition contains the others."""
    admission: Admission | None = None
    admission_checks: tuple[AdmissionCheckState, ...] = ()


class Workload(PartialObject, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The Workload of Kueue."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ResourceFlavorSpec(_SlimStruct, frozen=True):
    node_labels: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()


class ResourceFlavor(_SlimStruct, frozen=True):
    """The nodes on which a part of Kueue's quota is."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class Taint(_SlimStruct, frozen=True):
    key: str = ""
    effect: str = ""


class NodeSpec(_SlimStruct, frozen=True):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class Allocatable(ResourceList, frozen=True, gc=False, rename="camel", omit_defaults=True):
    pods: str = ""


class NodeStatus(_SlimStruct, frozen=True):
    conditions: tuple[Condition, ...] = ()
    allocatable: Allocatable = Allocatable()

    def __post_init__(self) -> None:
        _set(self, "conditions", tuple(condition for condition in self.conditions if condition.type == "Ready"))


class Node(_SlimStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> Condition | None:
        """The condition Ready; None if the kubelet has not reported one yet."""
        return self.status.conditions[0] if self.status.conditions else None


class PriorityClass(_SlimStruct, frozen=True):
    """Also the WorkloadPriorityClass of Kueue."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False


def object_decoder(kind: type[T], *, keep_annotation: Callable[[str], bool] | None = None) -> Callable[[Buffer], T]:
    """A function that decodes one object of this kind, with the annotations whose names `keep_annotation` accepts; None keeps all.

    If a field has an unexpected type, nulls are read as absent, as in Go. If the object is still invalid, only its metadata
    is decoded, so that the object is at least known to exist.

    The returned function raises msgspec.DecodeError if the metadata is invalid as well.
    """
    strict = msgspec.json.Decoder(kind)

    def decode(data: Buffer) -> T:
        try:
            obj = strict.decode(data)
        except msgspec.DecodeError:
            obj = _decode_leniently(data, strict)
        if keep_annotation is not None:
            _filter_annotations(obj.metadata, keep_annotation)
        return _copy_raw_fields(obj) if isinstance(obj, CustomObject) else obj

    return decode


def _decode_leniently(data: Buffer, strict: msgspec.json.Decoder[T]) -> T:
    plain = _without_nulls(msgspec.json.decode(data))
    if not isinstance(plain, dict):
        raise msgspec.DecodeError(f"expected an object, got {data!r:.80}")
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


def _filter_annotations(metadata: ObjectMeta, keep: Callable[[str], bool]) -> None:
    """Call this only for an object that is not shared yet."""
    if metadata.annotations:
        _set(metadata, "annotations", {name: value for name, value in metadata.annotations.items() if keep(name)})


def _copy_raw_fields(obj: CustomObject) -> Any:
    """The object with copies of its raw fields, which are views and would keep the whole input buffer alive."""
    return msgspec.structs.replace(obj, spec=obj.spec.copy(), status=obj.status.copy())


def decode_json(data: bytes, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    """Decode data of any depth; values below the depth limit become null.

    The API server stores up to ten thousand levels. One such object must not make a whole list unreadable.
    """
    try:
        return decoder.decode(data)
    except RecursionError:
        return decoder.decode(_truncate_depth(data))


def count_json_levels(data: bytes) -> int:
    """The number of levels of valid JSON."""
    level = levels = 0
    for token in _STRING_OR_BRACKET.finditer(data):
        if token[0] in (b"{", b"["):
            level += 1
            levels = max(levels, level)
        elif token[0] in (b"}", b"]"):
            level -= 1
    return levels


def _truncate_depth(data: bytes) -> bytes:
    pieces: list[bytes] = []
    level = start = 0
    for token in _STRING_OR_BRACKET.finditer(data):
        if token[0] in (b"{", b"["):
            if level == MAX_JSON_LEVELS:
                pieces += [data[start : token.start()], b"null"]
            level += 1
        elif token[0] in (b"}", b"]"):
            level -= 1
            if level == MAX_JSON_LEVELS:
                start = token.end()
    return b"".join([*pieces, data[start:]])
