"""Comparable views of a job and its children, without the parts that differ between equal jobs: times, uids and history."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from dlop.api.constants import TEMPLATE_HASH_ANNOTATION
from dlop.api.names import short_hash
from dlop.kube.objects import CustomObject
from dlop.kube.types import JsonObject

_TIME_FIELDS = frozenset({"startTime", "completionTime", "lastTransitionTime", "lastUpdateTime", "startedAt", "finishedAt", "since"})
_HISTORY_FIELDS = frozenset({"observedGeneration", "countedRestarts", "podsVersion"})
"""Fields of the record that depend on the number of edits, on earlier pods, and on when it was written."""


def status_of(job: CustomObject) -> JsonObject:
    status: JsonObject = msgspec.json.decode(job.status)
    return status


def record_of(job: CustomObject) -> JsonObject:
    record: JsonObject = status_of(job).get("dlop", {})
    return record


def comparable_status(job: CustomObject) -> Any:
    """The current status. Conditions that are not True are history and removed."""
    status = _without_times(status_of(job))
    if "conditions" in status:
        current = [condition for condition in status["conditions"] if condition["status"] == "True"]
        status["conditions"] = sorted(current, key=lambda condition: str(condition["type"]))
    record = status.get("dlop", {})
    status["dlop"] = {name: record[name] for name in record.keys() - _HISTORY_FIELDS}
    return _without_uid(status, job)


def spec_error(job: CustomObject) -> str:
    """The error message about the spec; empty if the spec is valid. A job that has started continues, with the condition Blocked."""
    status, record = status_of(job), record_of(job)
    if record.get("phase") != "Invalid":
        blocked = record.get("blocked", {})
        return str(blocked["message"]) if blocked.get("reason") == "InvalidSpec" else ""
    failed = [condition["message"] for condition in status.get("conditions", ()) if condition["type"] == "Failed"]
    return str(failed[0]) if failed else str(status.get("reason", "")).removeprefix("invalid job spec: ")


def comparable_children(job: CustomObject, children: Iterable[CustomObject]) -> Any:
    """The children by name: labels, annotations, owner and spec."""
    views = {child.metadata.name: _comparable_child(child) for child in children}
    return _without_uid(views, job)


def child_names(job: CustomObject, children: Iterable[CustomObject]) -> Any:
    return _without_uid(sorted(child.metadata.name for child in children), job)


def _comparable_child(child: CustomObject) -> JsonObject:
    metadata = child.metadata
    return {
        "labels": metadata.labels,
        "annotations": {name: value for name, value in metadata.annotations.items() if name != TEMPLATE_HASH_ANNOTATION},
        "owners": [(owner.kind, owner.name, owner.uid) for owner in metadata.owner_references],
        "spec": msgspec.json.decode(child.spec),
    }


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(item) for name, item in value.items() if name not in _TIME_FIELDS}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _without_uid(value: Any, job: CustomObject) -> Any:
    """Replaces the uid of the job and the runtime id derived from it."""
    text = msgspec.json.encode(value).decode().replace(job.metadata.uid, "UID")
    runtime_id = short_hash(job.metadata.uid, length=4)
    return msgspec.json.decode(re.sub(rf'(?<=[-"=]){runtime_id}(?=[-",])', "RUNTIME", text))


def differences(one: Any, other: Any, *, path: str = "") -> list[str]:
    """The differences between two JSON values, one line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted(one.keys() | other.keys())
        return [line for name in names for line in differences(one.get(name), other.get(name), path=f"{path}.{name}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for index, (left, right) in pairs for line in differences(left, right, path=f"{path}[{index}]")]
    return [] if one == other else [f"{path}: edited job has {one!r}, fresh job has {other!r}"]
