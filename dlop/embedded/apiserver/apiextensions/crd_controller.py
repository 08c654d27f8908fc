"""The custom resources that the server serves, kept in step with the stored CustomResourceDefinitions.

A new CRD first gets its names accepted, then it is established and served. Every change of it changes what is served,
and when it is deleted its objects are deleted first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from dlop.embedded.apiserver.apiextensions.crd_strategy import CLEANUP_FINALIZER, CRD_TYPE, resource_types, with_condition
from dlop.embedded.apiserver.apiextensions.custom_resource_strategy import CustomResourceRules
from dlop.embedded.apiserver.object_queue import Background
from dlop.embedded.apiserver.registry import Registry
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ChangeType, Key, Store, StoreEvent
from dlop.kube.errors import NotFoundError
from dlop.kube.types import JsonObject

__all__ = ["CRD_TYPE", "CustomResources"]


class CustomResources:
    """Accepts CRDs, serves what they describe, and cleans up after them."""

    def __init__(
        self, store: Store, registry: Registry, background: Background, clock: Callable[[], float], *, verbs: ResourceStorage
    ) -> None:
        self._store = store
        self._registry = registry
        self._background = background
        self._clock = clock
        self._verbs = verbs
        self._served: dict[str, tuple[JsonObject, list[ResourceType]]] = {}
        self._noted: set[str] = set()
        store.listeners.append(self._heard)

    def _heard(self, change: StoreEvent) -> None:
        if change.key.storage == CRD_TYPE.storage:
            self._note(change.key.name)
        elif change.type is ChangeType.DELETED and change.key.storage in self._served:
            # A CRD is named as the storage of its objects.
            self._note(change.key.storage)

    def _note(self, name: str) -> None:
        if name not in self._noted:
            self._noted.add(name)
            self._background.later(lambda: self._settle(name))

    def _settle(self, name: str) -> None:
        """Bring one CRD a step nearer to where it should be; every step is a change that calls for the next."""
        self._noted.discard(name)
        stored = self._store.get(Key(CRD_TYPE.storage, "", name))
        if stored is None:
            self._withdraw(name)
            self._reconsider_refused()
        elif "deletionTimestamp" not in stored.body["metadata"]:
            self._establish(stored.body)
        elif CLEANUP_FINALIZER in stored.body["metadata"].get("finalizers", ()):
            self._clean_up(stored.body)

    def _establish(self, crd: JsonObject) -> None:
        name, status, moment = crd["metadata"]["name"], crd["status"], Moment(self._clock())
        if crd["spec"]["names"] != status["acceptedNames"]:
            status = self._named(crd, moment)
        elif _is_true(status, "NamesAccepted"):
            self._serve(name, crd)
            status = with_condition(status, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted", moment)
        if status != crd["status"]:
            self._store.update(Key(CRD_TYPE.storage, "", name), {**crd, "status": status})

    def _named(self, crd: JsonObject, moment: Moment) -> JsonObject:
        accepted, conflict = self._accepted_names(crd)
        status = {**crd["status"], "acceptedNames": accepted}
        if conflict is None:
            status = with_condition(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found", moment)
            reason, words = "Installing", "the initial names have been accepted"
        else:
            status = with_condition(status, "NamesAccepted", "False", *conflict, moment)
            reason, words = "NotAccepted", "not all names are accepted"
        return status if _is_true(status, "Established") else with_condition(status, "Established", "False", reason, words, moment)

    def _accepted_names(self, crd: JsonObject) -> tuple[JsonObject, tuple[str, str] | None]:
        """The names that the CRD can have, and what speaks against the rest."""
        wanted, accepted = crd["spec"]["names"], dict(crd["status"]["acceptedNames"])
        taken, conflict = self._names_of_others(crd), None
        for field in ("plural", "singular", "kind", "listKind"):
            if wanted.get(field) != accepted.get(field) and wanted.get(field) in taken:
                conflict = (f"{field[0].upper()}{field[1:]}Conflict", f'"{wanted[field]}" is already in use')
            elif field in wanted:
                accepted[field] = wanted[field]
        clashing = [f'"{short}" is already in use' for short in wanted.get("shortNames", ()) if short in taken]
        if clashing:
            conflict = ("ShortNamesConflict", clashing[0] if len(clashing) == 1 else f"[{', '.join(clashing)}]")
        for field in ("shortNames", "categories"):
            if field in wanted and not (field == "shortNames" and clashing):
                accepted[field] = wanted[field]
            elif field not in wanted:
                accepted.pop(field, None)
        return accepted, conflict

    def _names_of_others(self, crd: JsonObject) -> set[str]:
        taken: set[str] = set()
        for other in self._crds():
            if other["spec"]["group"] == crd["spec"]["group"] and other["metadata"]["name"] != crd["metadata"]["name"]:
                names = other.get("status", {}).get("acceptedNames", {})
                taken |= {names.get(field, "") for field in ("plural", "singular", "kind", "listKind")} | set(names.get("shortNames", ()))
        return taken - {""}

    def _crds(self) -> Iterator[JsonObject]:
        return (stored.body for _, stored in self._store.list(CRD_TYPE.storage))

    def _reconsider_refused(self) -> None:
        for crd in self._crds():
            if not _is_true(crd["status"], "NamesAccepted"):
                self._note(crd["metadata"]["name"])

    def _serve(self, name: str, crd: JsonObject) -> None:
        before = self._served.get(name)
        if before is not None and before[0] is crd["spec"]:
            return
        self._withdraw(name)
        types = resource_types(crd)
        for one in types:
            self._registry.add(one)
        self._served[name] = (crd["spec"], types)

    def _withdraw(self, name: str) -> None:
        _, types = self._served.pop(name, ({}, []))
        for one in types:
            self._registry.remove(one.resource.group, one.resource.version, one.resource.plural)

    def _clean_up(self, crd: JsonObject) -> None:
        name = crd["metadata"]["name"]
        _, types = self._served.get(name, ({}, []))
        for one in types:
            cast("CustomResourceRules", one.rules).is_ending = True
        if types:
            self._delete_objects(types[0])
        if self._store.count(name) == 0 or not types:
            self._release(crd)

    def _delete_objects(self, type: ResourceType) -> None:
        for key, stored in list(self._store.list(type.storage)):
            if "deletionTimestamp" in stored.body["metadata"]:
                continue
            try:
                self._verbs.delete(type, key.namespace, key.name)
            except NotFoundError:
                # An earlier one of these deletions has taken it along.
                continue

    def _release(self, crd: JsonObject) -> None:
        key = Key(CRD_TYPE.storage, "", crd["metadata"]["name"])
        rest = [finalizer for finalizer in crd["metadata"]["finalizers"] if finalizer != CLEANUP_FINALIZER]
        if not rest:
            self._store.delete(key)
            return
        words = ("InstanceDeletionCompleted", "removed all instances")
        status = with_condition(crd["status"], "Terminating", "False", *words, Moment(self._clock()))
        self._store.update(key, {**crd, "metadata": {**crd["metadata"], "finalizers": rest}, "status": status})


def _is_true(status: JsonObject, condition: str) -> bool:
    return any(one["type"] == condition and one["status"] == "True" for one in status.get("conditions") or ())
