"""The scale subresource, which autoscalers and `kubectl scale` use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlop.embedded.apiserver.api_errors import bad_request, internal_error, version_conflict
from dlop.embedded.apiserver.query_options import WriteOptions
from dlop.embedded.apiserver.resource_type import ResourceType, ScaleFieldPaths
from dlop.embedded.apiserver.rest.storage import ResourceStorage, to_served_version
from dlop.embedded.apiserver.store import StoredObject
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

SCALE = Resource("autoscaling", "v1", "scales", "Scale")
# Message of kube-apiserver for any body that is not a Scale.
_NOT_A_SCALE = 'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"'
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def get_scale(storage: ResourceStorage, type: ResourceType, namespace: str, name: str) -> JsonObject:
    return _scale(type, to_served_version(type, storage.get(type, namespace, name).body))


def change_scale(
    storage: ResourceStorage,
    type: ResourceType,
    namespace: str,
    name: str,
    mutate: Callable[[JsonObject], JsonObject],
    options: WriteOptions,
) -> JsonObject:
    """Apply `mutate` to the Scale of an object and store the replicas of the result in the object.

    Raises:
        StatusError: the new Scale is invalid or stale.
    """
    current: StoredObject = storage.get(type, namespace, name)
    old = _scale(type, to_served_version(type, current.body), must_exist=False)
    new = mutate(old)
    replicas = _validate_replicas(type, name, old, new)
    stored = storage.change(type, namespace, name, lambda body: _set_path(body, _paths(type).spec_replicas, replicas), options)
    return _scale(type, to_served_version(type, stored.body))


def _validate_replicas(type: ResourceType, name: str, old: JsonObject, new: JsonObject) -> int:
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
    replicas = _get_path(body, paths.spec_replicas)
    if replicas is None and must_exist:
        raise internal_error(f'the spec replicas field ".{".".join(paths.spec_replicas)}" does not exist')
    status: JsonObject = {"replicas": _get_path(body, paths.status_replicas) or 0}
    selector = _get_path(body, paths.label_selector) if paths.label_selector else None
    if selector:
        status["selector"] = selector
    # Go omits zero here, so clients must treat a missing value as zero.
    spec = {"replicas": replicas} if replicas else {}
    metadata = {field: body["metadata"][field] for field in _METADATA if field in body["metadata"]}
    return {"kind": "Scale", "apiVersion": SCALE.api_version, "metadata": metadata, "spec": spec, "status": status}


def _paths(type: ResourceType) -> ScaleFieldPaths:
    assert type.scale is not None  # noqa: S101 - callers check that the type has a scale subresource
    return type.scale


def _get_path(body: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        body = body.get(step) if isinstance(body, dict) else None
    return body


def _set_path(body: JsonObject, path: tuple[str, ...], value: Any) -> JsonObject:
    step, *rest = path
    return {**body, step: _set_path(body.get(step) or {}, tuple(rest), value) if rest else value}
