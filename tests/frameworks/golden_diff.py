"""Compares recorded objects and statuses with actual ones.

The comparison works in both directions: a missing recorded value is a difference, and so is a value that was not recorded.
`normalize_object` brings an object of an API server into the form of the recordings, without defaults, uids, times and versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]

NAMESPACE_PLACEHOLDER = "NS"
TIME_PLACEHOLDER = "TIME"
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

SERVER_DEFAULTS = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "internalTrafficPolicy": "Cluster",
    "ipFamilyPolicy": "SingleStack",
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "protocol": "TCP",
    "resources": {},
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "serviceAccount": "default",
    "serviceAccountName": "default",
    "sessionAffinity": "None",
    "terminationGracePeriodSeconds": 30,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
"""Values that the API server sets if the client leaves the field out."""
# Fields of an object or its spec, and of its metadata, that the API server or the scheduler writes.
_SERVER_FIELDS = frozenset({"apiVersion", "kind", "status", "clusterIPs", "ipFamilies", "nodeName"})
_SERVER_METADATA = frozenset({"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"})
_SERVER_VOLUME_PREFIX = "kube-api-access-"
_SERVER_TOLERATIONS = [
    {"effect": "NoExecute", "key": f"node.kubernetes.io/{condition}", "operator": "Exists", "tolerationSeconds": 300}
    for condition in ("not-ready", "unreachable")
]


class _Absent:
    """Placeholder for a value that does not exist."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class Difference:
    """A path at which the recorded value and the actual value differ."""

    step: str
    """The step of the recording after which the values were compared, such as `initial state` or `after run *`."""
    path: str
    recorded: Any
    actual: Any

    def __str__(self) -> str:
        return f"{self.step}: {self.path}: recorded {_format(self.recorded)}, actual {_format(self.actual)}"


def find_differences(recorded: Any, actual: Any, *, step: str = "", path: str = "") -> Iterator[Difference]:
    """All differences, with paths as deep as possible."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for key in sorted(recorded.keys() | actual.keys()):
            yield from find_differences(recorded.get(key, ABSENT), actual.get(key, ABSENT), step=step, path=_child_path(path, key))
    elif _are_named_lists(recorded, actual):
        yield from _named_differences(_as_list(recorded), _as_list(actual), step=step, path=path)
    elif recorded != actual:
        yield Difference(step, path, recorded, actual)


def normalize_object(body: JsonObject, *, namespace: str, owner_uid: str) -> JsonObject:
    """An object of an API server in the form of the recordings."""
    metadata = {key: value for key, value in body["metadata"].items() if key not in _SERVER_METADATA}
    if "ownerReferences" in metadata:
        metadata["ownerReferences"] = [_normalize_owner(reference, owner_uid) for reference in metadata["ownerReferences"]]
    normalized = {key: value for key, value in body.items() if key not in _SERVER_FIELDS} | {"metadata": metadata}
    if "spec" in normalized:
        spec = {key: value for key, value in normalized["spec"].items() if key not in _SERVER_FIELDS}
        normalized["spec"] = _without_defaults(spec)
    result: JsonObject = _replace_namespace(normalized, namespace)
    return result


def normalize_status(status: JsonObject, *, namespace: str) -> JsonObject:
    """The status of a job in the form of the recordings. Conditions lose their times, and a missing time stays visible."""
    normalized: JsonObject = {
        key: TIME_PLACEHOLDER if isinstance(value, str) and _TIMESTAMP.fullmatch(value) else value for key, value in status.items()
    }
    if "conditions" in normalized:
        normalized["conditions"] = [_normalize_condition(condition) for condition in normalized["conditions"]]
    result: JsonObject = _replace_namespace(normalized, namespace)
    return result


# --- lists with named entries -----------------------------------------------------------------------------------------


def _are_named_lists(recorded: Any, actual: Any) -> bool:
    """Whether both are lists whose entries have names. One of them may be empty or absent."""
    values = [value for value in (recorded, actual) if value is not ABSENT]
    entries = [entry for value in values if isinstance(value, list) for entry in value]
    return all(isinstance(value, list) for value in values) and bool(entries) and all(_name(entry) for entry in entries)


def _named_differences(recorded: list[JsonObject], actual: list[JsonObject], *, step: str, path: str) -> Iterator[Difference]:
    recorded_by_name, actual_by_name = _by_name(recorded), _by_name(actual)
    for name in sorted(recorded_by_name.keys() | actual_by_name.keys()):
        yield from find_differences(recorded_by_name.get(name, ABSENT), actual_by_name.get(name, ABSENT), step=step, path=f"{path}[{name}]")
    same_names = recorded_by_name.keys() == actual_by_name.keys()
    if same_names and list(recorded_by_name) != list(actual_by_name) and not path.endswith(".env"):
        yield Difference(step, f"{path} (order)", list(recorded_by_name), list(actual_by_name))


def _as_list(value: Any) -> list[JsonObject]:
    return value if isinstance(value, list) else []


def _by_name(entries: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Entries by name. As in a container's environment, the last one of a name wins; earlier ones get a name of their own."""
    by_name: dict[str, JsonObject] = {}
    for entry in entries:
        name = _name(entry)
        if name in by_name:
            by_name[f"{name}, overridden"] = by_name.pop(name)
        by_name[name] = entry
    return by_name


def _name(entry: Any) -> str:
    return str(entry.get("name") or entry.get("type") or "") if isinstance(entry, dict) else ""


# --- normalization ----------------------------------------------------------------------------------------------------


def _normalize_owner(reference: JsonObject, uid: str) -> JsonObject:
    """Without the uid if it is the job's. Another uid stays and shows up as a difference."""
    return {key: value for key, value in reference.items() if key != "uid" or value != uid}


def _normalize_condition(condition: JsonObject) -> JsonObject:
    """Without its times. A missing or malformed time stays and shows up as a difference."""
    times = ("lastTransitionTime", "lastUpdateTime")
    kept = {key: value for key, value in condition.items() if key not in times}
    invalid = {key: condition.get(key, "MISSING") for key in times if not _TIMESTAMP.fullmatch(str(condition.get(key)))}
    return kept | invalid


def _without_defaults(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_defaults(entry) for entry in value if not _is_server_entry(entry)]
    if not isinstance(value, dict):
        return value
    normalized = {key: _without_defaults(child) for key, child in value.items() if not _is_default(key, child, parent=value)}
    return {key: child for key, child in normalized.items() if child != [] or value[key] == []}


def _is_server_entry(entry: Any) -> bool:
    return _name(entry).startswith(_SERVER_VOLUME_PREFIX) or entry in _SERVER_TOLERATIONS


def _is_default(key: str, value: Any, *, parent: JsonObject) -> bool:
    if key == "targetPort":
        return bool(value == parent.get("port"))
    if key == "value":
        return bool(value == "")
    return key in SERVER_DEFAULTS and bool(SERVER_DEFAULTS[key] == value)


def _replace_namespace(value: Any, namespace: str) -> Any:
    """Replaces the namespace by the placeholder in all strings."""
    if isinstance(value, dict):
        return {key: _replace_namespace(child, namespace) for key, child in value.items()}
    if isinstance(value, list):
        return [_replace_namespace(child, namespace) for child in value]
    return value.replace(namespace, NAMESPACE_PLACEHOLDER) if isinstance(value, str) else value


# --- formatting -------------------------------------------------------------------------------------------------------


def _child_path(path: str, key: str) -> str:
    if not key.replace("_", "").isalnum():
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _format(value: Any) -> str:
    return repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False)
