"""The API verbs on the store, for requests, controllers and tests.

All operations are synchronous and therefore atomic. The namespace "" stands for cluster-scoped objects, and for all
namespaces in lists. Bodies passed in are of the served version; returned `StoredObject` bodies are of the stored
version (see `to_served_version`).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dlop.embedded.apiserver.api_errors import not_found
from dlop.embedded.apiserver.object_queue import ObjectQueue
from dlop.embedded.apiserver.query_options import DeleteOptions, ListOptions, WriteOptions
from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.embedded.apiserver.rest.create import Creator
from dlop.embedded.apiserver.rest.delete import Deleter, DeleteResult
from dlop.embedded.apiserver.rest.list import ListedObjects, StoreReader, list_objects
from dlop.embedded.apiserver.rest.update import Updater, to_served_version
from dlop.embedded.apiserver.store import ObjectKey, Store, StoredObject
from dlop.kube.types import JsonObject

__all__ = ["DeleteResult", "ResourceStorage", "to_served_version"]

_WRITE = WriteOptions()
_DELETE = DeleteOptions()
_LIST = ListOptions()


class ResourceStorage:
    """The API verbs. Errors are `StatusError`s with the messages of kube-apiserver."""

    def __init__(
        self,
        store: Store,
        registry: ResourceRegistry,
        queue: ObjectQueue,
        *,
        clock: Callable[[], float],
        new_uid: Callable[[], str],
        rng: random.Random,
        view: StoreReader | None = None,
    ) -> None:
        """Reads use `view` if set; writes always use the store."""
        self.store = store
        self.registry = registry
        self.queue = queue
        self.rng = rng
        self.view: StoreReader = store if view is None else view
        self._clock = clock
        self._creator = Creator(store=store, clock=clock, new_uid=new_uid, rng=rng)
        self._updater = Updater(store=store, clock=clock)
        self._deleter = Deleter(store=store, clock=clock)

    def now(self) -> Timestamp:
        return Timestamp(self._clock())

    def create(self, type: ResourceType, namespace: str, body: JsonObject, options: WriteOptions = _WRITE) -> StoredObject:
        return self._creator.create(type, namespace, body, options)

    def get(self, type: ResourceType, namespace: str, name: str) -> StoredObject:
        stored = self.view.get(ObjectKey(type.storage, namespace, name))
        if stored is None:
            raise not_found(type.resource, name)
        return stored

    def list(self, type: ResourceType, namespace: str, options: ListOptions = _LIST) -> ListedObjects:
        return list_objects(self.view, type, namespace, options)

    def update(
        self,
        type: ResourceType,
        namespace: str,
        name: str,
        body: JsonObject,
        options: WriteOptions = _WRITE,
        *,
        subresource: str | None = None,
    ) -> StoredObject:
        """Replace an object, or with `subresource="status"` its status. For some types this creates missing objects."""
        key = ObjectKey(type.storage, namespace, name)
        if subresource is None and self.would_create(type, namespace, name):
            return self._creator.create(type, namespace, body, options)
        return self._updater.replace(type, key, body, options, subresource=subresource)

    def would_create(self, type: ResourceType, namespace: str, name: str) -> bool:
        """Whether an update would create the object."""
        return type.creates_on_update and self.store.get(ObjectKey(type.storage, namespace, name)) is None

    def change(
        self,
        type: ResourceType,
        namespace: str,
        name: str,
        mutate: Callable[[JsonObject], JsonObject],
        options: WriteOptions = _WRITE,
        *,
        subresource: str | None = None,
    ) -> StoredObject:
        """Apply `mutate` to the served body and store the result. `mutate` must not modify its argument."""
        return self._updater.change(type, ObjectKey(type.storage, namespace, name), mutate, options, subresource=subresource)

    def delete(self, type: ResourceType, namespace: str, name: str, options: DeleteOptions = _DELETE) -> DeleteResult:
        """Remove an object, or set its deletionTimestamp if it has a grace period or finalizers."""
        return self._deleter.delete(type, ObjectKey(type.storage, namespace, name), options)

    def delete_collection(
        self,
        type: ResourceType,
        namespace: str,
        options: DeleteOptions = _DELETE,
        selection: ListOptions = _LIST,
    ) -> ListedObjects:
        """Delete all selected objects. Returns their state before the deletion."""
        page = list_objects(self.store, type, namespace, selection)
        for stored in page.items:
            metadata = stored.body["metadata"]
            self.delete(type, metadata.get("namespace", ""), metadata["name"], options)
        return page
