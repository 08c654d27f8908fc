"""A job as stored in the API server: metadata, parsed spec and status.

Parsed specs are cached across passes, because a job is reconciled many times before its spec changes. The spec itself, with the
annotations that add to it, is the cache key, so an entry is never stale.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from dlop.api.cached_property import cached_property
from dlop.api.code_sync import check_code_sync
from dlop.api.depends_on import check_start_order
from dlop.api.fields import ManifestField
from dlop.api.host_ports import with_host_network
from dlop.api.job_annotations import NETWORK_MODE_ANNOTATION, annotation_path, spec_annotations, with_annotations
from dlop.api.record import Record, parse_record
from dlop.api.spec import CleanPodPolicy, JobSpec, Problem, RoleSpec, SpecError
from dlop.api.spot_replicas import check_spot_replicas
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from dlop.job import DLJob

MAX_CACHED_SPECS = 1024
MAX_CACHED_SPEC_BYTES = 4 * 1024 * 1024
"""Of serialized specs. A parsed spec takes 8 to 10 times the memory of its serialized form."""


@dataclass(frozen=True, slots=True)
class ParsedSpec:
    """A spec as plain data, as parsed by its kind, with its problems and warnings. Shared between passes; do not modify."""

    raw: Any
    spec: JobSpec
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()


class SpecCache:
    """LRU cache of parsed specs, by kind and serialized spec with annotations. For one thread only."""

    def __init__(self, *, max_entries: int = MAX_CACHED_SPECS, max_bytes: int = MAX_CACHED_SPEC_BYTES) -> None:
        """`max_bytes` limits the total length of the serialized specs."""
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[type[Any], bytes], ParsedSpec] = OrderedDict()

    def get(self, kind: type[Any], spec: bytes) -> ParsedSpec | None:
        entry = self._entries.get((kind, spec))
        if entry is not None:
            self._entries.move_to_end((kind, spec))
        return entry

    def put(self, kind: type[Any], spec: bytes, parsed: ParsedSpec) -> ParsedSpec:
        """Add an entry, and return it. An entry that alone exceeds `max_bytes` is not kept."""
        if len(spec) > self._max_bytes:
            return parsed
        if (kind, spec) not in self._entries:
            self._bytes += len(spec)
        self._entries[kind, spec] = parsed
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            (_, dropped), _ = self._entries.popitem(last=False)
            self._bytes -= len(dropped)
        return parsed

    def __len__(self) -> int:
        return len(self._entries)


_cache = SpecCache()


class JobResource:
    """A stored custom resource. Reading it never raises for invalid input, except for `SpecError` from `spec`."""

    def __init__(self, stored: CustomObject, kind: type[DLJob], *, node_lost_seconds: int | None) -> None:
        """`node_lost_seconds` is a setting of the operator that becomes part of the run policy."""
        self.stored = stored
        self._kind = kind
        self._node_lost_seconds = node_lost_seconds
        self._ignores_problems = False
        self._new_record: Record | None = None

    def with_record(self, record: Record) -> JobResource:
        """The same resource with the record that is going to be stored."""
        resource = JobResource(self.stored, self._kind, node_lost_seconds=self._node_lost_seconds)
        resource._new_record = record
        return resource

    def ignoring_problems(self) -> JobResource:
        """The same resource with defaults for all invalid fields. If the clean-pod policy cannot be read, the pods are kept."""
        resource = copy(self)  # with the parsed spec
        resource._ignores_problems = True
        return resource

    @property
    def metadata(self) -> ObjectMeta:
        return self.stored.metadata

    @cached_property
    def status(self) -> JsonObject:
        """The stored status; empty if it is not an object."""
        status = msgspec.json.decode(self.stored.status)
        return status if isinstance(status, dict) else {}

    @cached_property
    def record(self) -> Record:
        """The record; empty if none is stored."""
        return self._new_record or parse_record(self.status) or Record()

    @property
    def raw_spec(self) -> Any:
        """The spec as plain data. Do not modify it."""
        return self._parsed.raw

    @property
    def spec(self) -> JobSpec:
        """The parsed spec. Raises SpecError if it is invalid."""
        if self._parsed.problems and not self._ignores_problems:
            raise SpecError(self._parsed.problems)
        return self._spec

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Warnings of the kind about its spec."""
        return self._parsed.warnings

    @cached_property
    def managed_by_other(self) -> bool:
        """Whether the spec names another controller."""
        return self._kind.schema.managed_by_other(ManifestField("spec", self.raw_spec))

    @cached_property
    def _spec(self) -> JobSpec:
        """The parsed spec with defaults for all invalid fields."""
        spec = self._parsed.spec
        policy = replace(spec.run_policy, node_lost_seconds=self._node_lost_seconds)
        if any(_hides_clean_pod_policy(problem) for problem in self._parsed.problems):
            policy = replace(policy, clean_pod_policy=CleanPodPolicy.NONE)
        return replace(spec, run_policy=policy, roles=self._sized_roles(spec.roles))

    def _sized_roles(self, roles: tuple[RoleSpec, ...]) -> tuple[RoleSpec, ...]:
        """The roles, with the number of replicas that the autoscaler has chosen for the elastic ones."""
        if not any(role.elastic for role in roles):
            return roles
        chosen = self.record.elastic_replicas
        return tuple(_sized(role, chosen.get(role.name)) for role in roles)

    @cached_property
    def _parsed(self) -> ParsedSpec:
        data, annotations = bytes(self.stored.spec), self.metadata.annotations
        annotations = spec_annotations(annotations) if annotations else {}
        key = data + msgspec.json.encode(annotations) if annotations else data
        return _cache.get(self._kind, key) or _cache.put(self._kind, key, self._parse(msgspec.json.decode(data), annotations))

    def _parse(self, raw: Any, annotations: Mapping[str, str]) -> ParsedSpec:
        schema = self._kind.schema
        field = ManifestField("spec", schema.normalize_legacy(raw))
        spec = schema.read(field, self._kind)
        if annotations:
            spec = with_annotations(spec, annotations, field, types=self._kind.replica_types)
        if spec.run_policy.host_network:
            spec = self._with_host_network(spec, field, annotations)
        member_roles = () if self._kind.members is None else self._kind.members.roles
        check_start_order(spec, field, member_roles=member_roles)
        check_spot_replicas(spec, field, member_roles=member_roles)
        if spec.run_policy.code_sync:
            check_code_sync(spec, field, lambda role: schema.template_path(field, role))
        # A field that is read twice reports its problem twice.
        problems, warnings = (tuple(dict.fromkeys(reports)) for reports in (field.problems, field.warnings))
        return ParsedSpec(raw, spec, problems or schema.model_problems(field.value, self._kind), warnings)

    def _with_host_network(self, spec: JobSpec, field: ManifestField, annotations: Mapping[str, str]) -> JobSpec:
        path = annotation_path(NETWORK_MODE_ANNOTATION) if NETWORK_MODE_ANNOTATION in annotations else f"{field.path}.runPolicy.hostNetwork"
        kind = self._kind
        return with_host_network(
            spec,
            ManifestField(path, None, field.problems, field.warnings),
            types=kind.replica_types,
            container=kind.container_properties,
            unsupported=kind.schema.no_host_network,
        )


def _sized(role: RoleSpec, replicas: int | None) -> RoleSpec:
    """A role with this number of replicas, as far as its elastic range allows."""
    return role if role.elastic is None or replicas is None else replace(role, replicas=role.elastic.clamp(replicas))


def _hides_clean_pod_policy(problem: Problem) -> bool:
    return problem.path in ("spec", "spec.runPolicy") or problem.path.endswith(".cleanPodPolicy")
