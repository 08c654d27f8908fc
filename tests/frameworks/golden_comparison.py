"""What was recorded and what is there, laid side by side. Nothing here talks to anybody.

Both ways: what is recorded and not there is a difference, and so is what is there and was not recorded. `as_recorded`
brings an object of an API server into the shape of the recordings first: without defaults, uids, times and versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]

NAMESPACE = "NS"
MOMENT = "TIME"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

SERVERS_OWN = {
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
"""What the API server writes into objects where nobody has said anything."""
# What is the API server's or the scheduler's, whatever it says: of an object and its spec, and of its metadata.
_SERVERS_FIELDS = frozenset({"apiVersion", "kind", "status", "clusterIPs", "ipFamilies", "nodeName"})
_SERVERS_METADATA = frozenset({"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"})
_SERVERS_VOLUME = "kube-api-access-"
_SERVERS_TOLERATIONS = [
    {"effect": "NoExecute", "key": f"node.kubernetes.io/{trouble}", "operator": "Exists", "tolerationSeconds": 300}
    for trouble in ("not-ready", "unreachable")
]


class _Absent:
    """In place of a value that is not there."""

    def __repr__(self) -> str:
        return "(nothing)"


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where the recording and the world are not the same."""

    moment: str
    """When, in the words of the recording: `at first`, `after run *`."""
    path: str
    recorded: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.moment}: {self.path}: recorded {_shown(self.recorded)}, ours {_shown(self.ours)}"


def differences(recorded: Any, ours: Any, *, moment: str = "", path: str = "") -> Iterator[Difference]:
    """Every place where the two are not the same, as deep down as it can be told."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        for key in sorted(recorded.keys() | ours.keys()):
            yield from differences(recorded.get(key, ABSENT), ours.get(key, ABSENT), moment=moment, path=_below(path, key))
    elif _are_named(recorded, ours):
        yield from _differences_of_named(_listed(recorded), _listed(ours), moment=moment, path=path)
    elif recorded != ours:
        yield Difference(moment, path, recorded, ours)


def as_recorded(body: JsonObject, *, namespace: str, owner_uid: str) -> JsonObject:
    """An object that somebody has made, in the shape of the recordings."""
    metadata = {key: value for key, value in body["metadata"].items() if key not in _SERVERS_METADATA}
    if "ownerReferences" in metadata:
        metadata["ownerReferences"] = [_owner(reference, owner_uid) for reference in metadata["ownerReferences"]]
    made = {key: value for key, value in body.items() if key not in _SERVERS_FIELDS} | {"metadata": metadata}
    if "spec" in made:
        spec = {key: value for key, value in made["spec"].items() if key not in _SERVERS_FIELDS}
        made["spec"] = _without_defaults(spec)
    plain: JsonObject = _in_namespace(made, namespace)
    return plain


def status_as_recorded(status: JsonObject, *, namespace: str) -> JsonObject:
    """The status of a job in the shape of the recordings: conditions have lost their times, which they must have had."""
    made: JsonObject = {key: MOMENT if isinstance(value, str) and _MOMENT.fullmatch(value) else value for key, value in status.items()}
    if "conditions" in made:
        made["conditions"] = [_condition(found) for found in made["conditions"]]
    plain: JsonObject = _in_namespace(made, namespace)
    return plain


# --- lists whose entries have names -----------------------------------------------------------------------------------


def _are_named(recorded: Any, ours: Any) -> bool:
    """Whether both are lists of things with names; one of them may be empty or not there at all."""
    given = [value for value in (recorded, ours) if value is not ABSENT]
    entries = [entry for value in given if isinstance(value, list) for entry in value]
    return all(isinstance(value, list) for value in given) and bool(entries) and all(_name(entry) for entry in entries)


def _differences_of_named(recorded: list[JsonObject], ours: list[JsonObject], *, moment: str, path: str) -> Iterator[Difference]:
    wanted, there = _by_name(recorded), _by_name(ours)
    for name in sorted(wanted.keys() | there.keys()):
        yield from differences(wanted.get(name, ABSENT), there.get(name, ABSENT), moment=moment, path=f"{path}[{name}]")
    if wanted.keys() == there.keys() and list(wanted) != list(there) and not path.endswith(".env"):
        yield Difference(moment, f"{path} (order)", list(wanted), list(there))


def _listed(value: Any) -> list[JsonObject]:
    return value if isinstance(value, list) else []


def _by_name(entries: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """The last of a name counts, as in a container's environment; those before it are kept under a name of their own."""
    made: dict[str, JsonObject] = {}
    for entry in entries:
        name = _name(entry)
        if name in made:
            made[f"{name}, overridden"] = made.pop(name)
        made[name] = entry
    return made


def _name(entry: Any) -> str:
    return str(entry.get("name") or entry.get("type") or "") if isinstance(entry, dict) else ""


# --- into the shape of the recordings ---------------------------------------------------------------------------------


def _owner(reference: JsonObject, uid: str) -> JsonObject:
    """Without the uid, if it is that of the job."""
    return {key: value for key, value in reference.items() if key != "uid" or value != uid}


def _condition(found: JsonObject) -> JsonObject:
    """Without its times, if they are times."""
    times = ("lastTransitionTime", "lastUpdateTime")
    kept = {key: value for key, value in found.items() if key not in times}
    wrong = {key: found.get(key, "MISSING") for key in times if not _MOMENT.fullmatch(str(found.get(key)))}
    return kept | wrong


def _without_defaults(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_defaults(entry) for entry in value if not _is_servers_entry(entry)]
    if not isinstance(value, dict):
        return value
    plain = {key: _without_defaults(found) for key, found in value.items() if not _is_default(key, found, beside=value)}
    return {key: found for key, found in plain.items() if found != [] or value[key] == []}


def _is_servers_entry(entry: Any) -> bool:
    return _name(entry).startswith(_SERVERS_VOLUME) or entry in _SERVERS_TOLERATIONS


def _is_default(key: str, value: Any, *, beside: JsonObject) -> bool:
    if key == "targetPort":
        return bool(value == beside.get("port"))
    if key == "value":
        return bool(value == "")
    return key in SERVERS_OWN and bool(SERVERS_OWN[key] == value)


def _in_namespace(value: Any, namespace: str) -> Any:
    """With the name that the recordings have for the namespace, wherever it is part of a text."""
    if isinstance(value, dict):
        return {key: _in_namespace(found, namespace) for key, found in value.items()}
    if isinstance(value, list):
        return [_in_namespace(found, namespace) for found in value]
    return value.replace(namespace, NAMESPACE) if isinstance(value, str) else value


# --- for people -------------------------------------------------------------------------------------------------------


def _below(path: str, key: str) -> str:
    if not key.replace("_", "").isalnum():
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _shown(value: Any) -> str:
    return repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False)
