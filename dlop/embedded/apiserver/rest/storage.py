"""The verbs of the API on the store: what a request, a controller or a test may do to objects.

Everything here is synchronous and therefore atomic: nothing can happen between a check and the change that relies on
it. A namespace of "" stands for cluster-scoped objects, and for all namespaces where objects are listed. Bodies that go
in have the shape of the served version; `StoredObject` bodies that come out have the stored shape (see `served`).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dlop.embedded.apiserver.api_errors import not_found
from dlop.embedded.apiserver.object_queue import Background
from dlop.embedded.apiserver.query_options import DeleteOptions, ListOptions, WriteOptions
from dlop.embedded.apiserver.registry import Registry
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.embedded.apiserver.rest.create import Creator
from dlop.embedded.apiserver.rest.delete import Deleted, Deleter
from dlop.embedded.apiserver.rest.list import Listing, View, list_objects
from dlop.embedded.apiserver.rest.update import Updater, served
from dlop.embedded.apiserver.store import Key, Store, StoredObject
from dlop.kube.types import JsonObject

__all__ = ["Deleted", "ResourceStorage", "served"]

_WRITE = WriteOptions()
_DELETE = DeleteOptions()
_LIST = ListOptions()


class ResourceStorage:
    """What can be done to objects. Refusals are `StatusError`s in the real server's words."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        background: Background,
        *,
        clock: Callable[[], float],
        new_uid: Callable[[], str],
        randomness: random.Random,
        view: View | None = None,
    ) -> None:
        """With a `view`, reads are answered from it; writes go to the store in any case."""
        self.store = store
        self.registry = registry
        self.background = background
        self.randomness = randomness
        self.view: View = store if view is None else view
        self._clock = clock
        self._creator = Creator(store=store, clock=clock, new_uid=new_uid, randomness=randomness)
        self._updater = Updater(store=store, clock=clock)
        self._deleter = Deleter(store=store, clock=clock)

    def moment(self) -> Moment:
        """What time it is."""
        return Moment(self._clock())

    def create(self, type: ResourceType, namespace: str, body: JsonObject, options: WriteOptions = _WRITE) -> StoredObject:
        """Create an object."""
        return self._creator.create(type, namespace, body, options)

    def get(self, type: ResourceType, namespace: str, name: str) -> StoredObject:
        """One object."""
        found = self.view.get(Key(type.storage, namespace, name))
        if found is None:
            raise not_found(type.resource, name)
        return found

    def list(self, type: ResourceType, namespace: str, options: ListOptions = _LIST) -> Listing:
        """The objects that the options select."""
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
        """Replace an object, or with `subresource="status"` its status. Some types are created when they are not there."""
        key = Key(type.storage, namespace, name)
        if subresource is None and self.would_create(type, namespace, name):
            return self._creator.create(type, namespace, body, options)
        return self._updater.replace(type, key, body, options, subresource=subresource)

    def would_create(self, type: ResourceType, namespace: str, name: str) -> bool:
        """Whether an update would create the object."""
        return type.creates_on_update and self.store.get(Key(type.storage, namespace, name)) is None

    def change(
        self,
        type: ResourceType,
        namespace: str,
        name: str,
        changed: Callable[[JsonObject], JsonObject],
        options: WriteOptions = _WRITE,
        *,
        subresource: str | None = None,
    ) -> StoredObject:
        """Apply the pure function `changed` to the served body and store the result: a patch, or a controller's own change."""
        return self._updater.change(type, Key(type.storage, namespace, name), changed, options, subresource=subresource)

    def delete(self, type: ResourceType, namespace: str, name: str, options: DeleteOptions = _DELETE) -> Deleted:
        """Remove an object, or mark it for deletion as long as something holds it."""
        return self._deleter.delete(type, Key(type.storage, namespace, name), options)

    def delete_collection(
        self,
        type: ResourceType,
        namespace: str,
        options: DeleteOptions = _DELETE,
        selection: ListOptions = _LIST,
    ) -> Listing:
        """Delete every selected object; returns them as they were."""
        found = list_objects(self.store, type, namespace, selection)
        for stored in found.items:
            metadata = stored.body["metadata"]
            self.delete(type, metadata.get("namespace", ""), metadata["name"], options)
        return found
