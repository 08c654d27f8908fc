"""The scale subresource: the one number that autoscalers and `kubectl scale` may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlop.embedded.apiserver.api_errors import bad_request, internal_error, version_conflict
from dlop.embedded.apiserver.query_options import WriteOptions
from dlop.embedded.apiserver.resource_type import ResourceType, ScalePaths
from dlop.embedded.apiserver.rest.storage import ResourceStorage, served
from dlop.embedded.apiserver.store import StoredObject
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

SCALE = Resource("autoscaling", "v1", "scales", "Scale")
# What the real server says about every body that is no Scale.
_NOT_A_SCALE = 'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"'
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def get_scale(verbs: ResourceStorage, type: ResourceType, namespace: str, name: str) -> JsonObject:
    """The Scale of an object."""
    return _scale(type, served(type, verbs.get(type, namespace, name).body))


def change_scale(
    verbs: ResourceStorage,
    type: ResourceType,
    namespace: str,
    name: str,
    changed: Callable[[JsonObject], JsonObject],
    options: WriteOptions,
) -> JsonObject:
    """Apply a pure function to the Scale of an object and carry the wanted replicas over into the object.

    Raises:
        StatusError: when the new Scale makes no sense, or is one of another version.
    """
    found: StoredObject = verbs.get(type, namespace, name)
    old = _scale(type, served(type, found.body), must_exist=False)
    new = changed(old)
    replicas = _checked_replicas(type, name, old, new)
    stored = verbs.change(type, namespace, name, lambda body: _with(body, _paths(type).spec_replicas, replicas), options)
    return _scale(type, served(type, stored.body))


def _checked_replicas(type: ResourceType, name: str, old: JsonObject, new: JsonObject) -> int:
    metadata, spec = new.get("metadata") or {}, new.get("spec") or {}
    if (new.get("kind", "Scale"), new.get("apiVersion", SCALE.api_version)) != ("Scale", SCALE.api_version):
        raise bad_request(_NOT_A_SCALE)
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise bad_request(_NOT_A_SCALE)
    if not metadata.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if metadata["name"] != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    if metadata.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
        raise version_conflict(type.resource, name)
    replicas = spec.get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request(_NOT_A_SCALE)
    return replicas


def _scale(type: ResourceType, body: JsonObject, *, must_exist: bool = True) -> JsonObject:
    paths = _paths(type)
    replicas = _found(body, paths.spec_replicas)
    if replicas is None and must_exist:
        raise internal_error(f'the spec replicas field ".{".".join(paths.spec_replicas)}" does not exist')
    status: JsonObject = {"replicas": _found(body, paths.status_replicas) or 0}
    selector = _found(body, paths.label_selector) if paths.label_selector else None
    if selector:
        status["selector"] = selector
    # Go leaves out a zero here, so clients have to take nothing for none.
    spec = {"replicas": replicas} if replicas else {}
    metadata = {field: body["metadata"][field] for field in _METADATA if field in body["metadata"]}
    return {"kind": "Scale", "apiVersion": SCALE.api_version, "metadata": metadata, "spec": spec, "status": status}


def _paths(type: ResourceType) -> ScalePaths:
    assert type.scale is not None  # noqa: S101 - only types with a scale have the subresource
    return type.scale


def _found(body: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        body = body.get(step) if isinstance(body, dict) else None
    return body


def _with(body: JsonObject, path: tuple[str, ...], value: Any) -> JsonObject:
    step, *rest = path
    return {**body, step: _with(body.get(step) or {}, tuple(rest), value) if rest else value}
