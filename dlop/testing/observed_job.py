"""One job of a test and everything that belongs to it, read from the store at the moment of asking."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dlop.api.phase import Phase
from dlop.api.types import Options
from dlop.embedded.apiserver.store import Key, Store
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, reader
from dlop.kube.types import JsonObject

_read_job = reader(CustomObject)


class ObservedJob:
    """A job by name. It need not exist: then it has no status and no pods."""

    def __init__(self, store: Store, framework: type[DLJob], *, namespace: str, name: str) -> None:
        self._store = store
        self.framework = framework
        self.namespace = namespace
        self.name = name

    @property
    def exists(self) -> bool:
        """Whether the job is there."""
        return self._stored() is not None

    @property
    def body(self) -> JsonObject:
        """The whole custom resource.

        Raises:
            LookupError: when it is not there.
        """
        found = self._stored()
        if found is None:
            raise LookupError(f"there is no {self.framework.job_type.kind} {self}")
        return found

    @property
    def status(self) -> JsonObject:
        """Its status; empty before there is one."""
        status: JsonObject = (self._stored() or {}).get("status") or {}
        return status

    @property
    def phase(self) -> Phase | None:
        """Where it stands, read from its status in the words of its kind."""
        found = self._stored()
        if found is None:
            return None
        job = self.framework(_read_job(msgspec.json.encode(found)), options=Options())
        return job.phase_in(self.status)

    @property
    def pods(self) -> dict[str, JsonObject]:
        """Its pods by name."""
        return {found["metadata"]["name"]: found for found in self._children("pods")}

    @property
    def services(self) -> dict[str, JsonObject]:
        """Its services by name."""
        return {found["metadata"]["name"]: found for found in self._children("services")}

    @property
    def events(self) -> list[tuple[str, str]]:
        """What was told about it, oldest first: reason and note."""
        found = sorted(self._events(), key=lambda event: event.get("eventTime") or event.get("firstTimestamp") or "")
        return [(event.get("reason", ""), event.get("note") or event.get("message", "")) for event in found]

    @property
    def pod_phases(self) -> dict[str, str]:
        """The phases of its pods by name."""
        return {name: pod["status"]["phase"] for name, pod in self.pods.items()}

    def condition(self, kind: str) -> JsonObject | None:
        """The condition of this type, for kinds that have conditions."""
        return next((found for found in self.status.get("conditions", ()) if found["type"] == kind), None)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def describe(self) -> str:
        """All that matters, for the message of a test that fails."""
        status = msgspec.json.encode(self.status).decode()
        return f"{self}: phase {self.phase}, pods {self.pod_phases}, status {status}, events {self.events}"

    def _stored(self) -> JsonObject | None:
        storage = self.framework.job_type.resource.qualified_name
        found = self._store.get(Key(storage, self.namespace, self.name))
        return None if found is None else found.body

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
            about = stored.body.get("regarding") or stored.body.get("involvedObject") or {}
            if (about.get("kind"), about.get("name")) == (self.framework.job_type.kind, self.name):
                yield stored.body
