"""A job of a test and its children. Every property reads the current state of the store."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dlop.api.phase import Phase
from dlop.embedded.apiserver.store import ObjectKey, Store
from dlop.job import DLJob
from dlop.kube.types import JsonObject


class ObservedJob:
    """A job by name. It need not exist; then it has no status and no children."""

    def __init__(self, store: Store, framework: type[DLJob], *, namespace: str, name: str) -> None:
        self._store = store
        self.framework = framework
        self.namespace = namespace
        self.name = name

    @property
    def exists(self) -> bool:
        return self._stored() is not None

    @property
    def body(self) -> JsonObject:
        """The custom resource.

        Raises:
            LookupError: the job does not exist.
        """
        body = self._stored()
        if body is None:
            raise LookupError(f"{self.framework.job_type.kind} {self} does not exist")
        return body

    @property
    def status(self) -> JsonObject:
        status: JsonObject = (self._stored() or {}).get("status") or {}
        return status

    @property
    def phase(self) -> Phase | None:
        """The phase, read from the status by the kind; None if the job does not exist."""
        return None if self._stored() is None else self.framework.status.read_phase(self.status)

    @property
    def pods(self) -> dict[str, JsonObject]:
        return self.children("pods")

    @property
    def services(self) -> dict[str, JsonObject]:
        return self.children("services")

    def children(self, plural: str) -> dict[str, JsonObject]:
        """The child objects of one resource by name, for example `configmaps`."""
        return {child["metadata"]["name"]: child for child in self._children(plural)}

    @property
    def events(self) -> list[tuple[str, str]]:
        """Reason and note of its events, oldest first."""
        events = sorted(self._events(), key=lambda event: event.get("eventTime") or event.get("firstTimestamp") or "")
        return [(event.get("reason", ""), event.get("note") or event.get("message", "")) for event in events]

    @property
    def pod_phases(self) -> dict[str, str]:
        return {name: pod["status"]["phase"] for name, pod in self.pods.items()}

    def condition(self, kind: str) -> JsonObject | None:
        """The condition of a type; None if there is none."""
        return next((condition for condition in self.status.get("conditions", ()) if condition["type"] == kind), None)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def describe(self) -> str:
        """Phase, pods, status and events, for error messages of tests."""
        status = msgspec.json.encode(self.status).decode()
        return f"{self}: phase {self.phase}, pods {self.pod_phases}, status {status}, events {self.events}"

    def _stored(self) -> JsonObject | None:
        storage = self.framework.job_type.resource.qualified_name
        stored = self._store.get(ObjectKey(storage, self.namespace, self.name))
        return None if stored is None else stored.body

    def _children(self, storage: str) -> Iterator[JsonObject]:
        job = self._stored()
        if job is None:
            return
        for _, stored in self._store.list(storage, namespace=self.namespace):
            owners = stored.body["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == job["metadata"]["uid"] for owner in owners):
                yield stored.body

    def _events(self) -> Iterator[JsonObject]:
        for _, stored in self._store.list("events", namespace=self.namespace):
            regarding = stored.body.get("regarding") or stored.body.get("involvedObject") or {}
            if (regarding.get("kind"), regarding.get("name")) == (self.framework.job_type.kind, self.name):
                yield stored.body
