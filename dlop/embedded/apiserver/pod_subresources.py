"""Subresources that are deeds rather than parts: binding and evicting a pod, finalizing a namespace."""

from __future__ import annotations

from dlop.embedded.apiserver.core.namespaces import FINALIZE
from dlop.embedded.apiserver.core.pods import bound, marked_for_eviction
from dlop.embedded.apiserver.query_options import WriteOptions, body_delete_options
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import Key, StoredObject
from dlop.kube.types import JsonObject

BINDING = "binding"
EVICTION = "eviction"

CREATED: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
"""What the deeds on pods are answered with."""


def bind(verbs: ResourceStorage, type: ResourceType, namespace: str, name: str, body: JsonObject, options: WriteOptions) -> None:
    """Put a pod on a node, as a scheduler does.

    Raises:
        StatusError: when the pod is on its way out or on a node already.
    """
    changed = bound(verbs.get(type, namespace, name).body, body, moment=verbs.moment())
    if not options.dry_run:
        verbs.store.update(Key(type.storage, namespace, name), changed)


def evict(verbs: ResourceStorage, type: ResourceType, namespace: str, name: str, body: JsonObject, options: WriteOptions) -> None:
    """Delete a pod, saying on it first that this is a disruption and not its own doing.

    Raises:
        StatusError: when there is no such pod, or it is another one than was meant.
    """
    asked = body_delete_options(body.get("deleteOptions") or {})
    pod = verbs.get(type, namespace, name).body
    if options.dry_run or asked.dry_run:
        return
    if "deletionTimestamp" not in pod["metadata"] and (asked.uid is None or asked.uid == pod["metadata"]["uid"]):
        verbs.store.update(Key(type.storage, namespace, name), marked_for_eviction(pod, moment=verbs.moment()))
    verbs.delete(type, namespace, name, asked)


def finalize(verbs: ResourceStorage, type: ResourceType, name: str, body: JsonObject) -> StoredObject:
    """Set the finalizers in a namespace's spec; the last one to go lets the namespace go."""
    return verbs.update(type, "", name, body, subresource=FINALIZE)
