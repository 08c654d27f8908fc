"""A record that somebody else has written tells of pods that this operator's cache may not show yet.

Another operator has counted failures and claimed pods by what it saw. Whoever reads its record next to an older picture of
the pods would count a failure again, or take a pod for gone that has only just appeared. So a record that is news, and not
of one's own making, is looked at only when the cache of pods is as new as the job is. All versions come from one store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dlop.kube.objects import CustomObject
from dlop.kube.read_your_writes import ReadYourWrites
from dlop.kube.resources import PODS


class _Status(msgspec.Struct, frozen=True):
    dlop: dict[str, Any] | None = None


class _Answer(msgspec.Struct, frozen=True):
    status: msgspec.Raw = msgspec.Raw(b"{}")


_read_status = msgspec.json.Decoder(_Status).decode
_read_answer = msgspec.json.Decoder(_Answer).decode


class RecordGate:
    """The records that are known to be no newer than the cache of pods."""

    def __init__(self, gate: ReadYourWrites) -> None:
        self._gate = gate
        self._known: dict[str, int] = {}
        self._awaited: dict[str, int] = {}
        """Records that the cache of pods was to catch up with. Once the gate is content, so is this: it may have read anew."""

    def wrote(self, uid: str, answer: bytes) -> bool:
        """This operator has written the record that is in the server's answer: nobody knows more of the pods.

        Says whether there is a record in it.
        """
        try:
            mark = self._known[uid] = _mark(_read_answer(answer).status)
        except msgspec.MsgspecError:
            self.forget(uid)  # no object at all; what is stored will be looked at like anybody's
            return True
        return mark != _NO_RECORD

    def ready(self, job: CustomObject, *, wake: Callable[[], None]) -> bool:
        """Whether the pods may be compared with the job's record. If not, `wake` is called once, when they may."""
        uid, mark = job.metadata.uid, _mark(job.status)
        if mark not in (_NO_RECORD, self._known.get(uid)):
            if mark != self._awaited.get(uid):
                self._awaited[uid] = mark
                self._gate.wrote(uid, PODS, job.metadata.resource_version)
            if not self._gate.ready(uid, wake=wake):
                return False
        self._awaited.pop(uid, None)
        self._known[uid] = mark
        return True

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._known.pop(uid, None)
        self._awaited.pop(uid, None)

    def __len__(self) -> int:
        """How many jobs something is known of."""
        return len(self._known)


def _mark(status: msgspec.Raw) -> int:
    """What tells one record from another, however it is spelled. Where dlop has written none there is none."""
    try:
        record = _read_status(status).dlop
    except msgspec.MsgspecError:
        return _NO_RECORD
    return _NO_RECORD if record is None else hash(msgspec.json.encode(record, order="sorted"))


_NO_RECORD = 0
