"""Nodes."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, column, columns, enum_errors, get_nested, invalid
from dlop.embedded.apiserver.name_validation import qualified_name_errors
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.kube.resources import NODES
from dlop.kube.types import JsonObject

_GO_TYPE = "core.v1.Node"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class _NodeStrategy(BuiltinStrategy):
    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        # The node lifecycle controller removes this taint when the node is ready.
        spec = body.get("spec") or {}
        taints = spec.get("taints") or []
        if not any(taint.get("key") == _NOT_READY["key"] and taint.get("effect") == _NOT_READY["effect"] for taint in taints):
            body["spec"] = {**spec, "taints": [*taints, _NOT_READY]}
        return _with_allocatable(body)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        for index, taint in enumerate(get_nested(body, "spec", "taints") or ()):
            # kube-apiserver reports spec.taints with the path metadata.taints.
            path, key, effect = f"metadata.taints[{index}]", taint.get("key", ""), taint.get("effect", "")
            errors += [invalid(f"{path}.key", key, detail) for detail in qualified_name_errors(key)]
            errors += enum_errors(f"{path}.effect", effect, ("NoSchedule", "PreferNoSchedule", "NoExecute"))
        return errors

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        return _with_allocatable(body)


def _with_allocatable(body: JsonObject) -> JsonObject:
    status = body.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        body["status"] = {**status, "allocatable": status["capacity"]}
    return body


def _status(node: JsonObject) -> str:
    states = [
        "Ready" if condition.get("status") == "True" else "NotReady"
        for condition in get_nested(node, "status", "conditions") or ()
        if condition.get("type") == "Ready"
    ]
    states = states[-1:] or ["Unknown"]
    if get_nested(node, "spec", "unschedulable"):
        states.append("SchedulingDisabled")
    return ",".join(states)


def _roles(node: JsonObject) -> str:
    roles: set[str] = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        role = key.removeprefix(_ROLE_PREFIX) if key.startswith(_ROLE_PREFIX) else value if key == "kubernetes.io/role" else ""
        if role:
            roles.add(role)
    return ",".join(sorted(roles)) or "<none>"


def _address(node: JsonObject, kind: str) -> str:
    matching = (address.get("address", "") for address in get_nested(node, "status", "addresses") or () if address.get("type") == kind)
    return next(matching, "<none>")


def _info(node: JsonObject, field: str) -> str:
    return get_nested(node, "status", "nodeInfo", field) or "<unknown>"


def _kernel(node: JsonObject) -> str:
    architecture = get_nested(node, "status", "nodeInfo", "architecture")
    return _info(node, "kernelVersion") + (f" ({architecture})" if architecture else "")


def node_types() -> list[ResourceType]:
    wide = (
        column("Version", lambda node: get_nested(node, "status", "nodeInfo", "kubeletVersion") or ""),
        column("Internal-IP", lambda node: _address(node, "InternalIP"), priority=1),
        column("External-IP", lambda node: _address(node, "ExternalIP"), priority=1),
        column("OS-Image", lambda node: _info(node, "osImage"), priority=1),
        column("Kernel-Version", _kernel, priority=1),
        column("Container-Runtime", lambda node: _info(node, "containerRuntimeVersion"), priority=1),
    )
    return [
        builtin_type(
            NODES,
            _GO_TYPE,
            strategy=_NodeStrategy(_GO_TYPE),
            short_names=("no",),
            has_status=True,
            keeps_status_on_create=True,
            columns=columns(column("Status", _status), column("Roles", _roles), after_age=wide),
            fields={"spec.unschedulable": ("spec", "unschedulable")},
        )
    ]
