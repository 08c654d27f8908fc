"""Action subresources: binding and eviction of pods, and finalize of namespaces."""

from __future__ import annotations

from dlop.embedded.apiserver.core.namespaces import FINALIZE
from dlop.embedded.apiserver.core.pods import with_disruption_condition, with_node
from dlop.embedded.apiserver.query_options import WriteOptions, body_delete_options
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ObjectKey, StoredObject
from dlop.kube.types import JsonObject

BINDING = "binding"
EVICTION = "eviction"

CREATED: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
"""Response of binding and eviction."""


def bind(storage: ResourceStorage, type: ResourceType, namespace: str, name: str, body: JsonObject, options: WriteOptions) -> None:
    """Assign a pod to a node.

    Raises:
        StatusError: the pod is terminating or already assigned.
    """
    bound_pod = with_node(storage.get(type, namespace, name).body, body, now=storage.now())
    if not options.dry_run:
        storage.store.update(ObjectKey(type.storage, namespace, name), bound_pod)


def evict(storage: ResourceStorage, type: ResourceType, namespace: str, name: str, body: JsonObject, options: WriteOptions) -> None:
    """Set the DisruptionTarget condition of a pod and delete it.

    Raises:
        StatusError: the pod does not exist, or its uid does not match.
    """
    delete_opts = body_delete_options(body.get("deleteOptions") or {})
    pod = storage.get(type, namespace, name).body
    if options.dry_run or delete_opts.dry_run:
        return
    if "deletionTimestamp" not in pod["metadata"] and (delete_opts.uid is None or delete_opts.uid == pod["metadata"]["uid"]):
        storage.store.update(ObjectKey(type.storage, namespace, name), with_disruption_condition(pod, now=storage.now()))
    storage.delete(type, namespace, name, delete_opts)


def finalize(storage: ResourceStorage, type: ResourceType, name: str, body: JsonObject) -> StoredObject:
    """Update the finalizers in a namespace's spec. Without finalizers, a terminating namespace is removed."""
    return storage.update(type, "", name, body, subresource=FINALIZE)
