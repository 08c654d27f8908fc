"""What happens in a namespace by itself: it gets a service account, and when it is deleted it is emptied first.

Pods go before everything else, with the grace they ask for; the namespace goes when nothing is left in it. As long as
something holds on, the conditions of the namespace say what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.core.namespaces import CONTENT_FINALIZER, FINALIZE
from dlop.embedded.apiserver.object_queue import Background
from dlop.embedded.apiserver.query_options import DeleteOptions, PropagationPolicy
from dlop.embedded.apiserver.registry import Registry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ChangeType, Key, Store, StoreEvent
from dlop.kube.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject

DEFAULT_SERVICE_ACCOUNT = "default"
# So many deletes in one piece of work: requests are answered in between.
_AT_ONCE = 100
# The conditions of a namespace that is going: type, and reason and message when there is nothing to complain about.
_CONDITIONS = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    ("NamespaceDeletionContentFailure", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
)


class NamespaceController:
    """Looks after all namespaces. Has to be there before the first one is created."""

    def __init__(self, store: Store, registry: Registry, verbs: ResourceStorage, background: Background) -> None:
        self._store = store
        self._registry = registry
        self._verbs = verbs
        self._background = background
        self._noted: set[str] = set()
        store.listeners.append(self._observe)

    def _observe(self, change: StoreEvent) -> None:
        key = change.key
        if key.storage == NAMESPACES.plural:
            self._observe_namespace(change)
        elif change.type is ChangeType.DELETED and key.namespace:
            if self._is_terminating(key.namespace):
                # One look when the last of a kind has gone, not one for each.
                if next(self._store.list(key.storage, namespace=key.namespace), None) is None:
                    self._look_later(key.namespace)
            elif key.storage == SERVICE_ACCOUNTS.plural and key.name == DEFAULT_SERVICE_ACCOUNT:
                self._background.later(lambda: self._provide_account(key.namespace))

    def _observe_namespace(self, change: StoreEvent) -> None:
        if change.type is ChangeType.ADDED:
            self._background.later(lambda: self._provide_account(change.key.name))
        elif change.type is ChangeType.MODIFIED and _is_marked(change.after.body) and not _is_marked((change.before or change.after).body):
            self._look_later(change.key.name)

    def _is_terminating(self, namespace: str) -> bool:
        stored = self._store.get(Key(NAMESPACES.plural, "", namespace))
        return stored is not None and _is_marked(stored.body)

    def _look_later(self, namespace: str) -> None:
        if namespace not in self._noted:
            self._noted.add(namespace)
            self._background.later(lambda: self._look(namespace))

    def _provide_account(self, namespace: str) -> None:
        accounts = self._registry.find(SERVICE_ACCOUNTS.group, SERVICE_ACCOUNTS.version, SERVICE_ACCOUNTS.plural)
        stored = self._store.get(Key(NAMESPACES.plural, "", namespace))
        if accounts is None or stored is None or _is_marked(stored.body):
            return
        if self._store.get(Key(accounts.storage, namespace, DEFAULT_SERVICE_ACCOUNT)) is None:
            self._verbs.create(accounts, namespace, {"metadata": {"name": DEFAULT_SERVICE_ACCOUNT, "namespace": namespace}})

    def _look(self, namespace: str) -> None:
        """Delete some of what is left; when nothing is, let the namespace go."""
        self._noted.discard(namespace)
        stored = self._store.get(Key(NAMESPACES.plural, "", namespace))
        if stored is None or not _is_marked(stored.body) or CONTENT_FINALIZER not in _finalizers(stored.body):
            return
        if self._delete_some(namespace):
            self._look_later(namespace)
            return
        pods_left = next(self._store.list(PODS.plural, namespace=namespace), None) is not None
        remaining = Counter[str]() if pods_left else self._remaining(namespace)
        self._report(namespace, remaining, Counter[str]() if pods_left else self._held(namespace))
        if not pods_left and not remaining:
            self._finalize(namespace)

    def _contents(self, namespace: str) -> Iterator[tuple[ResourceType, Key, JsonObject]]:
        types = {type_.storage: type_ for type_ in reversed(self._registry.all()) if type_.resource.namespaced}
        # Nothing else goes before the pods have gone: they may need it until then.
        types = {PODS.plural: types.pop(PODS.plural), **types}
        for storage, type_ in types.items():
            found = False
            for key, stored in self._store.list(storage, namespace=namespace):
                found = True
                yield type_, key, stored.body
            if found and storage == PODS.plural:
                return

    def _delete_some(self, namespace: str) -> bool:
        """Delete up to a slice of what is not yet marked; says whether there may be more."""
        found = ((type_, key) for type_, key, body in self._contents(namespace) if not _is_marked(body))
        unmarked = list(islice(found, _AT_ONCE))
        for type_, key in unmarked:
            self._verbs.delete(type_, namespace, key.name, DeleteOptions(propagation=PropagationPolicy.BACKGROUND))
        return bool(unmarked)

    def _remaining(self, namespace: str) -> Counter[str]:
        counted = Counter(type_.resource for type_, _, _ in self._contents(namespace))
        return Counter({f"{resource.plural}.{resource.group}": count for resource, count in counted.items()})

    def _held(self, namespace: str) -> Counter[str]:
        bodies = [body for _, _, body in self._contents(namespace)]
        return Counter(finalizer for body in bodies for finalizer in body["metadata"].get("finalizers") or ())

    def _report(self, namespace: str, remaining: Counter[str], held: Counter[str]) -> None:
        complaints: dict[str, tuple[str, str]] = {}
        if remaining:
            listed = ", ".join(sorted(f"{name} has {count} resource instances" for name, count in remaining.items()))
            complaints["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {listed}")
        if held:
            listed = ", ".join(sorted(f"{name} in {count} resource instances" for name, count in held.items()))
            message = f"Some content in the namespace has finalizers remaining: {listed}"
            complaints["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
        now = format_time(self._verbs.moment())
        self._change(namespace, lambda body: _with_conditions(body, complaints, now=now), subresource="status")

    def _finalize(self, namespace: str) -> None:
        self._change(namespace, _without_content_finalizer, subresource=FINALIZE)

    def _change(self, namespace: str, changed: Callable[[JsonObject], JsonObject], *, subresource: str | None) -> None:
        type_ = self._registry.by_storage(NAMESPACES.plural)[0]
        self._verbs.change(type_, "", namespace, changed, subresource=subresource)


def _is_marked(body: JsonObject) -> bool:
    return "deletionTimestamp" in body["metadata"]


def _finalizers(namespace: JsonObject) -> list[str]:
    return (namespace.get("spec") or {}).get("finalizers") or []


def _without_content_finalizer(namespace: JsonObject) -> JsonObject:
    kept = [finalizer for finalizer in _finalizers(namespace) if finalizer != CONTENT_FINALIZER]
    return {**namespace, "spec": {**namespace["spec"], "finalizers": kept}}


def _with_conditions(namespace: JsonObject, complaints: dict[str, tuple[str, str]], *, now: str) -> JsonObject:
    status = namespace.get("status") or {}
    before = {condition["type"]: condition for condition in status.get("conditions") or ()}
    made = [_condition(kind, complaints.get(kind), fine, before.get(kind), now=now) for kind, *fine in _CONDITIONS]
    return {**namespace, "status": {**status, "conditions": made}}


def _condition(kind: str, complaint: tuple[str, str] | None, fine: list[str], before: JsonObject | None, *, now: str) -> JsonObject:
    reason, message = complaint or fine
    status = "True" if complaint else "False"
    since = before["lastTransitionTime"] if before is not None and before["status"] == status else now
    return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
