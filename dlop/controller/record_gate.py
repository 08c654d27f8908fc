"""Delays a pass until the pod cache is at least as fresh as a record that another operator instance wrote.

Another instance counted failures and claimed pods according to its own cache. With its record and an older pod cache, a
pass would count a failure twice, or treat a new pod as lost. Therefore a foreign record is used only once the pod cache has
reached the version of the pod cache that the record is based on, which the record contains. Without it (a status that was edited,
or written by another operator) the resource version of the job is used instead. If pods are in another etcd than jobs, that version
may never be reached; the gate then refreshes the pod cache after ten seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dlop.api.record import parse_record
from dlop.kube.objects import CustomObject
from dlop.kube.read_your_writes import ReadYourWrites
from dlop.kube.resources import PODS


class _Status(msgspec.Struct, frozen=True):
    dlop: dict[str, Any] | None = None


class _StatusResponse(msgspec.Struct, frozen=True):
    status: msgspec.Raw = msgspec.Raw(b"{}")


_read_status = msgspec.json.Decoder(_Status).decode
_read_response = msgspec.json.Decoder(_StatusResponse).decode


class RecordGate:
    """Tracks fingerprints of the records that are not newer than the pod cache."""

    def __init__(self, gate: ReadYourWrites) -> None:
        self._gate = gate
        self._known: dict[str, int] = {}
        self._awaited: dict[str, int] = {}
        """Records that the pod cache has to catch up with. Ready once the gate is, because the gate may relist instead."""

    def record_write(self, uid: str, response: bytes) -> bool:
        """Mark the record in the response to this operator's own status write as known.

        Returns whether the response has a record.
        """
        try:
            fingerprint = self._known[uid] = _fingerprint(_read_response(response).status)
        except msgspec.MsgspecError:
            self.forget(uid)  # not an object; the stored record is treated like one of another instance
            return True
        return fingerprint != _NO_RECORD

    def ready(self, job_object: CustomObject, *, wake: Callable[[], None]) -> bool:
        """Whether the pod cache can be used with the job's record. If not, `wake` is called once when it can."""
        uid, fingerprint = job_object.metadata.uid, _fingerprint(job_object.status)
        if fingerprint not in (_NO_RECORD, self._known.get(uid)):
            if fingerprint != self._awaited.get(uid):
                self._awaited[uid] = fingerprint
                self._gate.record_write(uid, PODS, _pods_version(job_object))
            if not self._gate.ready(uid, wake=wake):
                return False
        self._awaited.pop(uid, None)
        self._known[uid] = fingerprint
        return True

    def forget(self, uid: str) -> None:
        self._known.pop(uid, None)
        self._awaited.pop(uid, None)

    def __len__(self) -> int:
        return len(self._known)


def _pods_version(job_object: CustomObject) -> str:
    """The version that the pod cache must have reached."""
    record = parse_record({"dlop": _read_status(job_object.status).dlop})
    return record.pods_version if record is not None and record.pods_version else job_object.metadata.resource_version


def _fingerprint(status: msgspec.Raw) -> int:
    """A hash of the record that does not depend on its formatting; `_NO_RECORD` if there is none."""
    try:
        record = _read_status(status).dlop
    except msgspec.MsgspecError:
        return _NO_RECORD
    return _NO_RECORD if record is None else hash(msgspec.json.encode(record, order="sorted"))


_NO_RECORD = 0
