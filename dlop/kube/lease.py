"""Lease objects: how electors read them, and the bodies that they write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlop.kube.resources import LEASES
from dlop.kube.timestamps import format_micro_time
from dlop.kube.types import JsonObject


class MalformedLeaseError(Exception):
    """The server's response is not a lease that can be replaced safely."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One state of a lease. Fields with an invalid value read as absent."""

    body: JsonObject
    spec: JsonObject
    holder: str
    """Empty if the lease has no holder."""
    duration_seconds: int
    """0 if the record has no duration."""
    transitions: int
    acquire_time: str

    @property
    def resource_version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @classmethod
    def parse(cls, body: Any) -> LeaseRecord:
        """Read a lease.

        Raises:
            MalformedLeaseError: it has no resourceVersion. A write without one would overwrite any state.
        """
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
            raise MalformedLeaseError("the server's response is not a lease with a resourceVersion")
        spec = body.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        return cls(
            body=body,
            spec=spec,
            holder=_string(spec.get("holderIdentity")),
            duration_seconds=_positive_int(spec.get("leaseDurationSeconds")),
            transitions=_positive_int(spec.get("leaseTransitions")),
            acquire_time=_string(spec.get("acquireTime")),
        )


@dataclass(frozen=True, slots=True)
class LeaseBuilder:
    """Builds the lease bodies that one elector writes."""

    namespace: str
    name: str
    identity: str
    duration_seconds: int
    wall_clock: Callable[[], float]

    def new(self) -> JsonObject:
        """The body of a lease that does not exist yet."""
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self._spec(acquire_time=self._now(), transitions=0),
        }

    def held(self, old: LeaseRecord) -> JsonObject:
        """The lease held by this elector: renewed if it was the holder, otherwise acquired."""
        if old.holder == self.identity:
            spec = self._spec(acquire_time=old.acquire_time or self._now(), transitions=old.transitions)
        else:
            spec = self._spec(acquire_time=self._now(), transitions=old.transitions + 1)
        return {**old.body, "spec": {**old.spec, **spec}}

    def released(self, old: LeaseRecord) -> JsonObject:
        """The lease without a holder, so that another elector can acquire it at once."""
        spec = {**self._spec(acquire_time=self._now(), transitions=old.transitions), "holderIdentity": "", "leaseDurationSeconds": 1}
        return {**old.body, "spec": {**old.spec, **spec}}

    def _spec(self, *, acquire_time: str, transitions: int) -> JsonObject:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.duration_seconds,
            "acquireTime": acquire_time,
            "renewTime": self._now(),
            "leaseTransitions": transitions,
        }

    def _now(self) -> str:
        return format_micro_time(self.wall_clock())


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _positive_int(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
