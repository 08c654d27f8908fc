"""Watches all objects of a chaos test in etcd, so that a restart of the API server loses no change.

The API server must store objects as JSON: `STORAGE_FLAGS`. All changes arrive in the order of their revisions.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import aiohttp
import msgspec
from chaos_history import (
    ChildChange,
    CompanionChange,
    Entry,
    Injection,
    JobChange,
    ReplicaKey,
    find_member,
    is_companion,
    job_change,
    member_change,
    plan_change,
    pod_change,
    pod_names,
)

from dlop.api.constants import MANAGER
from dlop.api.record import Record
from dlop.job import DLJob
from dlop.kube.types import JsonObject

STORAGE_FLAGS = ("--storage-media-type=application/json",)
_PREFIX = "/registry/"
_MAX_LINE_BYTES = 16 * 1024 * 1024


class WatchLostError(Exception):
    """etcd has ended the watch, so that the history is incomplete."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a key."""

    revision: int
    seconds: float
    resource: str
    """The resource with its group, as in the key: `pods`, `services/specs`, `kubeflow.org/mpijobs`."""
    namespace: str
    name: str
    body: JsonObject
    """The object; the last state of a deleted one."""
    created: bool
    deleted: bool

    @property
    def key(self) -> str:
        return f"{self.resource} {self.name}"


def parse_event(event: JsonObject, *, seconds: float) -> Change | None:
    """A change of a namespaced object; None for other keys."""
    pair = event["kv"]
    *resource, namespace, name = _decode(pair["key"]).decode().removeprefix(_PREFIX).split("/")
    if not resource:
        return None
    deleted = event.get("type") == "DELETE"
    value = _decode((event.get("prev_kv") or {} if deleted else pair).get("value", ""))
    if not value.startswith(b"{"):
        return None
    body = msgspec.json.decode(value)
    # etcd keeps it outside the object.
    body.setdefault("metadata", {})["resourceVersion"] = pair["mod_revision"]
    created = not deleted and pair["create_revision"] == pair["mod_revision"]
    return Change(int(pair["mod_revision"]), seconds, "/".join(resource), namespace, name, body, created, deleted)


def _decode(text: str) -> bytes:
    return base64.b64decode(text)


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Histories:
    """The histories of all jobs of a namespace, built from changes and injections."""

    def __init__(self, kinds: Mapping[str, type[DLJob]], *, namespace: str, others: Collection[str] = ()) -> None:
        """`kinds` by resource, as in the keys. `others` are further resources that the operator writes."""
        self.namespace = namespace
        self.entries: defaultdict[str, list[Entry]] = defaultdict(list)
        self.bodies: dict[str, JsonObject] = {}
        """The last state of each job, by name."""
        self.ended: set[str] = set()
        """Jobs that have finished or were deleted."""
        self.deleted: set[str] = set()
        self.revision = 0
        self.quiet_since = 0.0
        """When the operator may have written last."""
        self.late_changes: list[Change] | None = None
        """Changes while the test is at rest; None before."""
        self.first_write_after: dict[float, float] = {}
        """The time of the operator's first write after a restart of the API server, by the time of the restart."""
        self._kinds = kinds
        self._written = {*kinds, *others}
        self._plans = {
            f"{plan.group}/{plan.plural}" for kind in kinds.values() if kind.members is not None for plan in (kind.members.plan_type,)
        }
        self._kind_of: dict[str, type[DLJob]] = {}
        """By the name of the job."""
        self._names: dict[str, dict[str, ReplicaKey]] = {}
        self._records: dict[str, Record] = {}
        self._pods: dict[str, str] = {}
        """The jobs of all existing pods, by uid."""

    def add(self, change: Change) -> None:
        self.revision = change.revision
        if change.namespace != self.namespace:
            return
        if self._may_be_operators(change):
            self.quiet_since = change.seconds
            if self.late_changes is not None:
                self.late_changes.append(change)
        if change.resource in self._kinds:
            self._add_job(change)
        elif owner := self.job_of(change.body):
            self._add_child(change, owner)

    def _may_be_operators(self, change: Change) -> bool:
        """Whether the operator may have caused a change. Other controllers write endpoints, and delete what deleted jobs have owned."""
        if change.resource == "events":
            return not change.deleted and change.body.get("reportingController") == MANAGER
        job = self.job_of(change.body)
        return change.resource in self._written or (bool(job) and not (change.deleted and job in self.deleted))

    @property
    def orphans(self) -> set[str]:
        """Pods of deleted jobs, by uid."""
        return {uid for uid, job in self._pods.items() if job in self.deleted}

    def inject(self, job: str, description: str, *, seconds: float, deleted_uid: str = "") -> None:
        self.entries[job].append(Injection(revision=self.revision, seconds=seconds, description=description, deleted_uid=deleted_uid))

    def job_of(self, body: JsonObject) -> str:
        """The name of the job that owns an object; empty if there is none. The job is not the controller of what its master creates."""
        owners = body["metadata"].get("ownerReferences") or ()
        return next((owner["name"] for owner in owners if owner["name"] in self._names), "")

    def replica_of(self, job: str, pod: str) -> ReplicaKey:
        return self._names[job][pod]

    def wait_for_write_after(self, seconds: float) -> None:
        """Note the operator's first write after this time."""
        self.first_write_after[seconds] = -1.0

    def _add_job(self, change: Change) -> None:
        kind = self._kinds[change.resource]
        self._kind_of[change.name] = kind
        if change.name not in self._names:
            self._names[change.name] = pod_names(kind, change.body)
        elif kind.members is not None:
            self._names[change.name] |= pod_names(kind, change.body)  # each master has a name of its own
        entry: JobChange = job_change(
            kind,
            change.body,
            revision=change.revision,
            seconds=change.seconds,
            deleted=change.deleted,
            previous=self.bodies.get(change.name),
        )
        self.bodies[change.name] = change.body
        if self._records.get(change.name) != entry.record:
            self._records[change.name] = entry.record
            self._note_write(change)
        if entry.deleted or entry.is_finished:
            self.ended.add(change.name)
        if entry.deleted:
            self.deleted.add(change.name)
        self.entries[change.name].append(entry)

    def _add_child(self, change: Change, job: str) -> None:
        revision, seconds, created, deleted = change.revision, change.seconds, change.created, change.deleted
        member = find_member(self._kind_of[job], change.body) if change.resource == "pods" else None
        if created and member is None and change.resource not in self._plans:
            self._note_write(change)
        if change.resource == "pods":
            self._note_pod(change, job)
        if is_companion(change.body):
            uid, is_pod = change.body["metadata"]["uid"], change.resource == "pods"
            entry: Entry = CompanionChange(
                revision=revision, seconds=seconds, key=change.key, uid=uid, is_pod=is_pod, created=created, deleted=deleted
            )
        elif member is not None:
            self._names[job][change.name] = (member.role, member.id)
            entry = member_change(change.body, member, revision=revision, seconds=seconds, created=created, deleted=deleted)
        elif change.resource == "pods":
            replica = self.replica_of(job, change.name)
            entry = pod_change(change.body, replica, revision=revision, seconds=seconds, created=created, deleted=deleted)
        elif change.resource in self._plans:
            entry = plan_change(change.body, revision=revision, seconds=seconds, created=created, deleted=deleted)
        else:
            entry = ChildChange(revision=revision, seconds=seconds, key=change.key, created=created, deleted=deleted)
        self.entries[job].append(entry)

    def _note_pod(self, change: Change, job: str) -> None:
        uid = change.body["metadata"]["uid"]
        if change.deleted:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = job

    def _note_write(self, change: Change) -> None:
        for restarted_at, written_at in self.first_write_after.items():
            if written_at < 0 and change.seconds >= restarted_at:
                self.first_write_after[restarted_at] = change.seconds


class EtcdWatch:
    """Watches etcd and calls the handlers for each change."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.handlers: list[Callable[[Change], None]] = []
        self._started_at = time.monotonic()
        self.opened = asyncio.Event()

    @property
    def seconds(self) -> float:
        """Since the watch was made."""
        return time.monotonic() - self._started_at

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            WatchLostError: the watch ended.
        """
        request = {"key": _encode(_PREFIX), "range_end": _encode("/registry0"), "prev_kv": True}
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=timeout, read_bufsize=_MAX_LINE_BYTES) as session,
            session.post(f"{self._url}/v3/watch", json={"create_request": request}) as response,
        ):
            async for line in response.content:
                message = msgspec.json.decode(line)
                result = message.get("result")
                if result is None or result.get("canceled"):
                    raise WatchLostError(f"etcd has ended the watch of the chaos test: {line[:300]!r}")
                self.opened.set()
                for event in result.get("events") or ():
                    self._handle(event)
        raise WatchLostError("the connection of the chaos test to etcd has ended")

    def _handle(self, event: JsonObject) -> None:
        change = parse_event(event, seconds=self.seconds)
        if change is not None:
            for handler in self.handlers:
                handler(change)
