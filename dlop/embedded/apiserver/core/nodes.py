"""Nodes: registered by whoever runs pods."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinRules, builtin_type, column, columns, dig, invalid, not_one_of
from dlop.embedded.apiserver.name_validation import qualified_name_errors
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.kube.resources import NODES
from dlop.kube.types import JsonObject

_SHAPE = "core.v1.Node"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class _NodeRules(BuiltinRules):
    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        # A new node gets no pods before somebody has seen it ready and takes this taint away.
        spec = body.get("spec") or {}
        taints = spec.get("taints") or []
        if not any(taint.get("key") == _NOT_READY["key"] and taint.get("effect") == _NOT_READY["effect"] for taint in taints):
            body["spec"] = {**spec, "taints": [*taints, _NOT_READY]}
        return _with_allocatable(body)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        for index, taint in enumerate(dig(body, "spec", "taints") or ()):
            # The real server looks for taints in the spec and says that they are in the metadata.
            path, key, effect = f"metadata.taints[{index}]", taint.get("key", ""), taint.get("effect", "")
            errors += [invalid(f"{path}.key", key, detail) for detail in qualified_name_errors(key)]
            errors += not_one_of(f"{path}.effect", effect, ("NoSchedule", "PreferNoSchedule", "NoExecute"))
        return errors

    def prepare_update(self, body: JsonObject, old: JsonObject, *, moment: Moment) -> JsonObject:
        return _with_allocatable(body)


def _with_allocatable(body: JsonObject) -> JsonObject:
    status = body.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        body["status"] = {**status, "allocatable": status["capacity"]}
    return body


def _status(node: JsonObject) -> str:
    words = [
        "Ready" if condition.get("status") == "True" else "NotReady"
        for condition in dig(node, "status", "conditions") or ()
        if condition.get("type") == "Ready"
    ]
    words = words[-1:] or ["Unknown"]
    if dig(node, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(node: JsonObject) -> str:
    roles: set[str] = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        role = key.removeprefix(_ROLE_PREFIX) if key.startswith(_ROLE_PREFIX) else value if key == "kubernetes.io/role" else ""
        if role:
            roles.add(role)
    return ",".join(sorted(roles)) or "<none>"


def _address(node: JsonObject, kind: str) -> str:
    matching = (each.get("address", "") for each in dig(node, "status", "addresses") or () if each.get("type") == kind)
    return next(matching, "<none>")


def _info(node: JsonObject, field: str) -> str:
    return dig(node, "status", "nodeInfo", field) or "<unknown>"


def _kernel(node: JsonObject) -> str:
    architecture = dig(node, "status", "nodeInfo", "architecture")
    return _info(node, "kernelVersion") + (f" ({architecture})" if architecture else "")


def node_types() -> list[ResourceType]:
    """The type of nodes."""
    wide = (
        column("Version", lambda node: dig(node, "status", "nodeInfo", "kubeletVersion") or ""),
        column("Internal-IP", lambda node: _address(node, "InternalIP"), priority=1),
        column("External-IP", lambda node: _address(node, "ExternalIP"), priority=1),
        column("OS-Image", lambda node: _info(node, "osImage"), priority=1),
        column("Kernel-Version", _kernel, priority=1),
        column("Container-Runtime", lambda node: _info(node, "containerRuntimeVersion"), priority=1),
    )
    return [
        builtin_type(
            NODES,
            _SHAPE,
            rules=_NodeRules(_SHAPE),
            short_names=("no",),
            has_status=True,
            keeps_status_on_create=True,
            columns=columns(column("Status", _status), column("Roles", _roles), after_age=wide),
            fields={"spec.unschedulable": ("spec", "unschedulable")},
        )
    ]
