"""Leases as they are read and written: the record that electors leave each other on the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlop.kube.resources import LEASES
from dlop.kube.timestamps import to_the_microsecond
from dlop.kube.types import JsonObject


class MalformedLeaseError(Exception):
    """The server's answer is no lease that could be written over safely."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One state of a lease. What people have put into it that makes no sense reads as absent."""

    body: JsonObject
    spec: JsonObject
    holder: str
    duration_seconds: int
    """0 when the record does not say."""
    transitions: int
    acquired: str

    @property
    def resource_version(self) -> str:
        """The version of the lease that this is."""
        return str(self.body["metadata"]["resourceVersion"])

    @classmethod
    def of(cls, body: Any) -> LeaseRecord:
        """Read a lease.

        Raises:
            MalformedLeaseError: when it has no resourceVersion. To write without one would write over anything.
        """
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
            raise MalformedLeaseError("the server's answer is no lease with a resourceVersion")
        spec = body.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        return cls(
            body=body,
            spec=spec,
            holder=_text(spec.get("holderIdentity")),
            duration_seconds=_whole_number(spec.get("leaseDurationSeconds")),
            transitions=_whole_number(spec.get("leaseTransitions")),
            acquired=_text(spec.get("acquireTime")),
        )


@dataclass(frozen=True, slots=True)
class LeaseWriter:
    """Writes the records of one elector."""

    namespace: str
    name: str
    identity: str
    duration_seconds: int
    wall_clock: Callable[[], float]

    def first(self) -> JsonObject:
        """A lease where there was none."""
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self._spec(acquired=self._now(), transitions=0),
        }

    def held(self, old: LeaseRecord) -> JsonObject:
        """The lease with us as its holder: renewed if it was ours, else taken over."""
        if old.holder == self.identity:
            spec = self._spec(acquired=old.acquired or self._now(), transitions=old.transitions)
        else:
            spec = self._spec(acquired=self._now(), transitions=old.transitions + 1)
        return {**old.body, "spec": {**old.spec, **spec}}

    def released(self, old: LeaseRecord) -> JsonObject:
        """The lease with nobody as its holder, free for anyone at once."""
        spec = {**self._spec(acquired=self._now(), transitions=old.transitions), "holderIdentity": "", "leaseDurationSeconds": 1}
        return {**old.body, "spec": {**old.spec, **spec}}

    def _spec(self, *, acquired: str, transitions: int) -> JsonObject:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.duration_seconds,
            "acquireTime": acquired,
            "renewTime": self._now(),
            "leaseTransitions": transitions,
        }

    def _now(self) -> str:
        """MicroTime, as Kubernetes writes it."""
        return to_the_microsecond(self.wall_clock())


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
