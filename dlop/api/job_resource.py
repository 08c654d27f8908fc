"""A job as it is stored: the custom resource, its spec as its kind reads it, its status. What becomes of it is for `dlop.job`.

What was read out of specs, kept for the next pass: a job is looked at many times before its spec changes.

The key is the spec itself, so nothing can be out of date. The least used readings are dropped; a job that is looked at
again after a long time is read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import msgspec

from dlop.api.cached_property import cached_property
from dlop.api.defaults import problems_by_model
from dlop.api.fields import ManifestField
from dlop.api.spec import CleanPodPolicy, JobSpec, Problem, SpecError
from dlop.api.types import Options
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.types import JsonObject

MOST_KEPT = 1024


@dataclass(frozen=True, slots=True)
class ParsedSpec:
    """One spec: as plain data, as its kind understands it, and what is wrong with it. Shared: never to be changed."""

    raw: Any
    spec: JobSpec
    problems: tuple[Problem, ...]


class SpecCache:
    """Readings by kind and spec."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[type[Any], bytes], ParsedSpec] = OrderedDict()

    def get(self, kind: type[Any], spec: bytes) -> ParsedSpec | None:
        """The reading of a spec, if it is still known."""
        found = self._kept.get((kind, spec))
        if found is not None:
            self._kept.move_to_end((kind, spec))
        return found

    def keep(self, kind: type[Any], spec: bytes, reading: ParsedSpec) -> ParsedSpec:
        """Keep a reading, and give it back."""
        self._kept[kind, spec] = reading
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return reading

    def __len__(self) -> int:
        return len(self._kept)


_readings = SpecCache()


class StoredJob(ABC):
    """What a custom resource says. Nothing that a user wrote raises anything, save `SpecError` from `spec`."""

    # What the kind says: see `dlop.job`.

    manager_names: ClassVar[tuple[str, ...]]

    def __init__(self, found: CustomObject, *, options: Options | None = None) -> None:
        self._found = found
        self._spec: JobSpec | SpecError | None = None
        self._stored_status: JsonObject | None = None
        self.options = options or Options()

    @abstractmethod
    def understood(self, spec: Any) -> Any:
        """The spec with what this kind takes in other words than its definition has."""

    @abstractmethod
    def read_spec(self, spec: ManifestField) -> JobSpec:
        """The spec in the dialect of this kind."""

    @abstractmethod
    def fill_in(self, spec: JobSpec) -> JobSpec:
        """The spec with whatever depends on more than one field filled in."""

    @abstractmethod
    def validate(self, spec: JobSpec) -> Iterable[Problem]:
        """What is wrong with a spec beyond its shape."""

    # What a framework finds here.

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the custom resource."""
        return self._found.metadata

    @property
    def managed_elsewhere(self) -> bool:
        """Whether the manifest names somebody else as the one who reconciles the job."""
        manager = ManifestField("spec", self.raw_spec).get("runPolicy").get("managedBy").text()
        return bool(manager) and manager not in self.manager_names

    @property
    def spec(self) -> JobSpec:
        """What the job asks for. Raises SpecError when that makes no sense."""
        if self._spec is None:
            self._spec = self._read_spec()
        if isinstance(self._spec, SpecError):
            raise self._spec
        return self._spec

    @property
    def raw_spec(self) -> Any:
        """The spec as the user wrote it, as plain data. Not to be changed."""
        return self._reading.raw

    @property
    def stored_status(self) -> JsonObject:
        """The status as it is stored now."""
        if self._stored_status is None:
            found = msgspec.json.decode(self._found.status)
            self._stored_status = found if isinstance(found, dict) else {}
        return self._stored_status

    # What the engine and the operator ask.

    def as_far_as_legible(self) -> Self:
        """The same job with a spec of what can be read of it, and defaults for the rest: for one that has come to its end.

        Where it cannot be read what is to become of its pods, they stay.
        """
        found = type(self)(self._found, options=self.options)
        spec = self._legible_spec()
        if any(_hides_what_becomes_of_pods(problem) for problem in self._reading.problems):
            spec = replace(spec, run_policy=replace(spec.run_policy, clean_pod_policy=CleanPodPolicy.NONE))
        found._spec = spec
        return found

    def _read_spec(self) -> JobSpec | SpecError:
        spec = self._legible_spec()
        problems = self._reading.problems or tuple(self.validate(spec))
        return SpecError(problems) if problems else spec

    def _legible_spec(self) -> JobSpec:
        found = self._reading
        policy = replace(found.spec.run_policy, node_lost_seconds=self.options.node_lost_seconds)
        spec = replace(found.spec, run_policy=policy)
        return spec if found.problems else self.fill_in(spec)

    @cached_property
    def _reading(self) -> ParsedSpec:
        data = bytes(self._found.spec)
        return _readings.get(type(self), data) or _readings.keep(type(self), data, self._read(msgspec.json.decode(data)))

    def _read(self, raw: Any) -> ParsedSpec:
        field = ManifestField("spec", self.understood(raw))
        spec = self.read_spec(field)
        return ParsedSpec(raw, spec, tuple(field.problems) or tuple(problems_by_model(type(self), field.value)))


def _hides_what_becomes_of_pods(problem: Problem) -> bool:
    return problem.path in ("spec", "spec.runPolicy") or problem.path.endswith(".cleanPodPolicy")
