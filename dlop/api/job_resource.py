"""A job as stored in the API server: metadata, parsed spec and status. `dlop.job` adds the behavior.

Parsed specs are cached across passes, because a job is reconciled many times before its spec changes. The spec itself is the
cache key, so an entry is never stale.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import msgspec

from dlop.api.cached_property import cached_property
from dlop.api.defaults import validate_with_model
from dlop.api.fields import ManifestField
from dlop.api.spec import CleanPodPolicy, JobSpec, Problem, SpecError
from dlop.api.types import Options
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.types import JsonObject

MAX_CACHED_SPECS = 1024


@dataclass(frozen=True, slots=True)
class ParsedSpec:
    """A spec as plain data, as parsed by its kind, and its problems. Shared between passes; do not modify."""

    raw: Any
    spec: JobSpec
    problems: tuple[Problem, ...]


class SpecCache:
    """LRU cache of parsed specs, by kind and serialized spec."""

    def __init__(self, max_entries: int = MAX_CACHED_SPECS) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[tuple[type[Any], bytes], ParsedSpec] = OrderedDict()

    def get(self, kind: type[Any], spec: bytes) -> ParsedSpec | None:
        entry = self._entries.get((kind, spec))
        if entry is not None:
            self._entries.move_to_end((kind, spec))
        return entry

    def put(self, kind: type[Any], spec: bytes, parsed: ParsedSpec) -> ParsedSpec:
        """Add an entry, and return it."""
        self._entries[kind, spec] = parsed
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return parsed

    def __len__(self) -> int:
        return len(self._entries)


_cache = SpecCache()


class StoredJob(ABC):
    """A stored custom resource. Reading it never raises for invalid input, except for `SpecError` from `spec`."""

    # Internal: declared by the kind, see `dlop.job`.

    manager_names: ClassVar[tuple[str, ...]]

    def __init__(self, stored: CustomObject, *, options: Options | None = None) -> None:
        self._stored = stored
        self._spec: JobSpec | SpecError | None = None
        self._stored_status: JsonObject | None = None
        self.options = options or Options()

    @abstractmethod
    def normalize_legacy(self, spec: Any) -> Any:
        """See `DLJob.normalize_legacy`."""

    @abstractmethod
    def read_spec(self, spec: ManifestField) -> JobSpec:
        """See `DLJob.read_spec`."""

    @abstractmethod
    def apply_defaults(self, spec: JobSpec) -> JobSpec:
        """See `DLJob.apply_defaults`."""

    @abstractmethod
    def validate(self, spec: JobSpec) -> Iterable[Problem]:
        """See `DLJob.validate`."""

    # Helpers.

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the custom resource."""
        return self._stored.metadata

    @property
    def managed_by_other(self) -> bool:
        """Whether `managedBy` names another controller."""
        manager = ManifestField("spec", self.raw_spec).get("runPolicy").get("managedBy").string()
        return bool(manager) and manager not in self.manager_names

    @property
    def spec(self) -> JobSpec:
        """The parsed spec. Raises SpecError if it is invalid."""
        if self._spec is None:
            self._spec = self._validated_spec()
        if isinstance(self._spec, SpecError):
            raise self._spec
        return self._spec

    @property
    def raw_spec(self) -> Any:
        """The spec from the manifest as plain data. Do not modify it."""
        return self._parsed.raw

    @property
    def stored_status(self) -> JsonObject:
        """The status as currently stored."""
        if self._stored_status is None:
            status = msgspec.json.decode(self._stored.status)
            self._stored_status = status if isinstance(status, dict) else {}
        return self._stored_status

    # Internal: used by the planner and the controller.

    def with_parsable_fields(self) -> Self:
        """The same job with defaults for all invalid fields, for the cleanup of a finished job.

        If the clean-pod policy cannot be read, the pods are kept.
        """
        job = type(self)(self._stored, options=self.options)
        spec = self._parsed_spec()
        if any(_hides_clean_pod_policy(problem) for problem in self._parsed.problems):
            spec = replace(spec, run_policy=replace(spec.run_policy, clean_pod_policy=CleanPodPolicy.NONE))
        job._spec = spec
        return job

    def _validated_spec(self) -> JobSpec | SpecError:
        spec = self._parsed_spec()
        problems = self._parsed.problems or tuple(self.validate(spec))
        return SpecError(problems) if problems else spec

    def _parsed_spec(self) -> JobSpec:
        parsed = self._parsed
        policy = replace(parsed.spec.run_policy, node_lost_seconds=self.options.node_lost_seconds)
        spec = replace(parsed.spec, run_policy=policy)
        return spec if parsed.problems else self.apply_defaults(spec)

    @cached_property
    def _parsed(self) -> ParsedSpec:
        data = bytes(self._stored.spec)
        return _cache.get(type(self), data) or _cache.put(type(self), data, self._parse(msgspec.json.decode(data)))

    def _parse(self, raw: Any) -> ParsedSpec:
        field = ManifestField("spec", self.normalize_legacy(raw))
        spec = self.read_spec(field)
        return ParsedSpec(raw, spec, tuple(field.problems) or tuple(validate_with_model(type(self), field.value)))


def _hides_clean_pod_policy(problem: Problem) -> bool:
    return problem.path in ("spec", "spec.runPolicy") or problem.path.endswith(".cleanPodPolicy")
