"""A job and its children as the API server shows them, without what two equal jobs may differ in: times, uids, and the past."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from dlop.api.constants import RENDERED_ANNOTATION
from dlop.api.names import fingerprint
from dlop.kube.objects import CustomObject
from dlop.kube.types import JsonObject

_TIMES = frozenset({"startTime", "completionTime", "lastTransitionTime", "lastUpdateTime", "startedAt", "finishedAt", "since"})
_PAST = frozenset({"observedGeneration", "counted"})
"""In the record: how many edits there were, and by uid what the pods have been through."""


def status_of(job: CustomObject) -> JsonObject:
    """The whole status, as plain data."""
    status: JsonObject = msgspec.json.decode(job.status)
    return status


def record_of(job: CustomObject) -> JsonObject:
    """The operator's own record."""
    record: JsonObject = status_of(job).get("dlop", {})
    return record


def told_status(job: CustomObject) -> Any:
    """What the status says now. Conditions that are over are history."""
    status = _timeless(status_of(job))
    if "conditions" in status:
        now = [condition for condition in status["conditions"] if condition["status"] == "True"]
        status["conditions"] = sorted(now, key=lambda condition: str(condition["type"]))
    record = status.get("dlop", {})
    status["dlop"] = {name: record[name] for name in record.keys() - _PAST}
    return _nameless(status, job)


def told_mistake(job: CustomObject) -> str:
    """What the status says to be wrong with the spec; empty when nothing is. A job that has begun goes on, and has it in its way."""
    status, record = status_of(job), record_of(job)
    if record.get("phase") != "Invalid":
        blocked = record.get("blocked", {})
        return str(blocked["message"]) if blocked.get("reason") == "InvalidSpec" else ""
    failed = [condition["message"] for condition in status.get("conditions", ()) if condition["type"] == "Failed"]
    return str(failed[0]) if failed else str(status.get("reason", "")).removeprefix("invalid job spec: ")


def told_children(job: CustomObject, children: Iterable[CustomObject]) -> Any:
    """The children by name: labels, annotations, owner and spec."""
    found = {child.metadata.name: _told_child(child) for child in children}
    return _nameless(found, job)


def told_names(job: CustomObject, children: Iterable[CustomObject]) -> Any:
    """The names of the children."""
    return _nameless(sorted(child.metadata.name for child in children), job)


def _told_child(child: CustomObject) -> JsonObject:
    metadata = child.metadata
    return {
        "labels": metadata.labels,
        "annotations": {name: value for name, value in metadata.annotations.items() if name != RENDERED_ANNOTATION},
        "owners": [(owner.kind, owner.name, owner.uid) for owner in metadata.owner_references],
        "spec": msgspec.json.decode(child.spec),
    }


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(each) for name, each in value.items() if name not in _TIMES}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def _nameless(value: Any, job: CustomObject) -> Any:
    """Without the job's uid, and without the part of names that is made of it."""
    text = msgspec.json.encode(value).decode().replace(job.metadata.uid, "UID")
    runtime_id = fingerprint(job.metadata.uid, length=4)
    return msgspec.json.decode(re.sub(rf'(?<=[-"=]){runtime_id}(?=[-",])', "RUNTIME", text))


def differences(one: Any, other: Any, *, path: str = "") -> list[str]:
    """Where two pieces of plain data differ, one line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted(one.keys() | other.keys())
        return [line for name in names for line in differences(one.get(name), other.get(name), path=f"{path}.{name}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for index, (left, right) in pairs for line in differences(left, right, path=f"{path}[{index}]")]
    return [] if one == other else [f"{path}: edited job has {one!r}, fresh job has {other!r}"]
