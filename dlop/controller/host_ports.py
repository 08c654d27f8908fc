"""Assigns ports of the host network to jobs, so that no two jobs use the same ports.

The assignment of a job is in its status. The assignments of other jobs are known from the job caches. They end when the job has finished or
is deleted. Ports that other programs use are not known.
Before a new leader assigns ports, its caches must show what earlier leaders have assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from dlop.api.phase import Phase
from dlop.api.record import AssignedPorts, Record, parse_record
from dlop.controller.kinds import JobKey
from dlop.kube.cache import CacheChange
from dlop.kube.objects import CustomObject

_MARK = b'"hostPorts"'
_FINISHED = (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class HostPortRange:
    """The ports that the operator may assign."""

    first: int
    last: int


DEFAULT_HOST_PORTS = HostPortRange(36_000, 55_999)


class HostPorts:
    """Assignments by job UID."""

    def __init__(self, ports: HostPortRange, *, on_free: Callable[[JobKey], None]) -> None:
        """`on_free` is called for jobs that wait for ports when others have become free."""
        self._ports = ports
        self._on_free = on_free
        self._assigned: dict[str, AssignedPorts] = {}
        self._unstored: dict[str, list[AssignedPorts]] = {}
        """Earlier assignments of jobs whose status does not have the last one yet. A status with one of them is outdated."""
        self._waiting: dict[str, JobKey] = {}

    def on_job(self, change: CacheChange[CustomObject]) -> None:
        """Take over what the status of a job says. Most jobs have no ports, and their statuses are not decoded."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._release(old.metadata.uid)
        if new is None or _MARK not in bytes(new.status):
            return
        uid, status = new.metadata.uid, msgspec.json.decode(new.status)
        record = (parse_record(status) if isinstance(status, dict) else None) or Record()
        if record.phase in _FINISHED:
            self._release(uid)
        elif record.host_ports is not None:
            if record.host_ports != self._assigned.get(uid) and record.host_ports in self._unstored.get(uid, ()):
                return
            # This operator could not store its assignment, and another leader has stored one.
            self._assigned[uid] = record.host_ports
            self._unstored.pop(uid, None)

    def find(self, uid: str, count: int) -> int | None:
        """The first port of a job that has at least `count`; None if it has fewer."""
        assigned = self._assigned.get(uid)
        return None if assigned is None or assigned.count < count else assigned.first

    def assign(self, uid: str, key: JobKey, count: int) -> int | None:
        """The first of at least `count` consecutive ports for a job; None if no such ports are free.

        The ports are taken at once. The same job gets the same ports again until it needs more, and then keeps the first one if the next
        ports are free.
        """
        first = self.find(uid, count)
        if first is not None:
            return first
        assigned = self._assigned.get(uid)
        others = sorted((ports for other, ports in self._assigned.items() if other != uid), key=lambda ports: ports.first)
        first = self._find_gap(count, others) if assigned is None or not self._is_free(assigned.first, count, others) else assigned.first
        if first is None:
            self._waiting[uid] = key
        else:
            self._waiting.pop(uid, None)
            if assigned is not None:
                self._unstored.setdefault(uid, []).append(assigned)
            self._assigned[uid] = AssignedPorts(first, count)
        return first

    def _release(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._unstored.pop(uid, None)
        if self._assigned.pop(uid, None) is not None:
            waiting, self._waiting = self._waiting, {}
            for key in waiting.values():
                self._on_free(key)

    def _is_free(self, first: int, count: int, others: Iterable[AssignedPorts]) -> bool:
        end = first + count
        return end - 1 <= self._ports.last and all(end <= ports.first or ports.first + ports.count <= first for ports in others)

    def _find_gap(self, count: int, others: Iterable[AssignedPorts]) -> int | None:
        """The first gap that is large enough. `others` are ordered."""
        first = self._ports.first
        for assigned in others:
            if first + count <= assigned.first:
                break
            first = max(first, assigned.first + assigned.count)
        return first if first + count - 1 <= self._ports.last else None
