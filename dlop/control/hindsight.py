"""A record that somebody else has written tells of pods that this operator's cache may not show yet.

Another operator has counted failures and claimed pods by what it saw. Whoever reads its record next to an older picture of
the pods would count a failure again, or take a pod for gone that has only just appeared. So a record that is news, and not
of one's own making, is looked at only when the cache of pods is as new as the job is. All versions come from one store.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dlop.kube.consistency import ReadYourWrites
from dlop.kube.objects import CustomObject
from dlop.kube.resources import PODS


class _Status(msgspec.Struct, frozen=True):
    dlop: msgspec.Raw = msgspec.Raw(b"")


_read_status = msgspec.json.Decoder(_Status).decode


class Hindsight:
    """The records that are known to be no newer than the cache of pods."""

    def __init__(self, gate: ReadYourWrites) -> None:
        self._gate = gate
        self._own: dict[str, str] = {}
        self._known: dict[str, int] = {}

    def wrote(self, uid: str, resource_version: str) -> None:
        """The job has this version by a write of this operator: nobody knows more of its pods."""
        self._own[uid] = resource_version

    def ready(self, job: CustomObject, *, wake: Callable[[], None]) -> bool:
        """Whether the pods may be compared with the job's record. If not, `wake` is called once, when they may."""
        uid, version, record = job.metadata.uid, job.metadata.resource_version, _record_in(job)
        if not record:
            return True
        mark = hash(record)
        if self._known.get(uid) != mark and self._own.get(uid) != version:
            self._gate.wrote(uid, PODS, version)
            if not self._gate.ready(uid, wake=wake):
                return False
        self._known[uid] = mark
        return True

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._own.pop(uid, None)
        self._known.pop(uid, None)

    def __len__(self) -> int:
        """How many jobs something is known of."""
        return max(len(self._own), len(self._known))


def _record_in(job: CustomObject) -> bytes:
    """The record as it came; nothing, where the status is not one that dlop has written."""
    try:
        return bytes(_read_status(job.status).dlop)
    except msgspec.MsgspecError:
        return b""
