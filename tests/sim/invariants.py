"""Invariants that hold under every fault, checked at every commit, and the state by which two runs are compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from dlop.api.constants import ATTEMPT_LABEL, REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL
from dlop.api.gang import POD_GROUPS
from dlop.api.phase import Phase
from dlop.api.record import BackoffState, parse_backoffs
from dlop.api.tensorboard import COMPANION_LABEL
from dlop.embedded.apiserver.store import ChangeType, ObjectKey, Store, StoreEvent
from dlop.frameworks.dlrover.scale_plan import SCALE_PLAN
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, object_decoder
from dlop.kube.resources import WORKLOADS
from dlop.kube.types import JsonObject

_WORKLOADS = WORKLOADS.qualified_name
_CHILDREN = (
    *("pods", "services", "configmaps", _WORKLOADS, SCALE_PLAN.resource.qualified_name),
    *(resource.qualified_name for resource in POD_GROUPS),
)
_FINAL_POD_PHASES = ("Succeeded", "Failed")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION = re.compile(r'"(resourceVersion|podsVersion)":"\d+"')

_decode_job = object_decoder(CustomObject)


class InvariantChecker:
    """Listens to a store, counts creates and deletes of each object, and records violations."""

    def __init__(self, store: Store, framework: type[DLJob], *, on_commit: Callable[[StoreEvent], None] = lambda _: None) -> None:
        """`on_commit` is called with every change of jobs, pods and other children."""
        self._store = store
        self._framework = framework
        self._jobs = framework.job_type.resource.qualified_name
        self._on_commit = on_commit
        self.creates: Counter[str] = Counter()
        self.deletes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.job_finished = False
        self._started: set[tuple[str, str, str]] = set()
        store.listeners.append(self._observe)

    def object_counts(self) -> dict[str, tuple[int, int]]:
        """Number of creates and deletes by object."""
        return {name: (self.creates[name], self.deletes[name]) for name in sorted(self.creates)}

    def _observe(self, event: StoreEvent) -> None:
        if event.key.storage not in (*_CHILDREN, self._jobs) or _is_foreign_config_map(event.key.storage, event.after.body):
            return
        name = f"{event.key.storage} {event.key.namespace}/{event.key.name}"
        if event.type is ChangeType.ADDED:
            self.creates[name] += 1
        elif event.type is ChangeType.DELETED:
            self.deletes[name] += 1
        self._check(event)
        self._on_commit(event)

    def _check(self, event: StoreEvent) -> None:
        if event.key.storage == self._jobs and event.before is not None:
            self._check_job(event.before.body, event.after.body)
        elif event.key.storage in _CHILDREN and event.type is ChangeType.ADDED:
            self._check_create(event)
        elif event.key.storage == _WORKLOADS and event.before is not None:
            self._check_returned_quota(event)
        elif event.key.storage == "pods" and event.after.body["status"].get("phase") in ("Running", *_FINAL_POD_PHASES):
            labels = _labels(event.after.body)
            if REPLICA_INDEX_LABEL in labels:
                self._started.add((labels[REPLICA_TYPE_LABEL], labels[REPLICA_INDEX_LABEL], labels[ATTEMPT_LABEL]))

    # --- jobs --------------------------------------------------------------------------------------------------------

    def _check_job(self, before: JsonObject, after: JsonObject) -> None:
        for counter in ("restarts", "disruptions", "spotDisruptions"):
            old, new = _record(before).get(counter, {}), _record(after).get(counter, {})
            if any(new.get(role, 0) < number for role, number in old.items()):
                self.violations.append(f"{counter} decreased from {old} to {new}")
        old_phase, new_phase = self._final_phase(before), self._final_phase(after)
        if old_phase is not None and old_phase is not new_phase:
            self.violations.append(f"the final phase of the job changed from {old_phase} to {new_phase}")
        self.job_finished = self.job_finished or new_phase is not None

    def _final_phase(self, job: JsonObject) -> Phase | None:
        """The phase of a finished job; None if it is not finished."""
        status = job.get("status")
        if not status:
            return None
        phase = self._framework.status.read_phase(status)
        return phase if phase is not None and phase.is_finished else None

    # --- children ----------------------------------------------------------------------------------------------------

    def _check_create(self, event: StoreEvent) -> None:
        job = self._owner(event.after.body)
        if job is None:
            self.violations.append(f"{event.key} was created for a deleted job")
            return
        if COMPANION_LABEL in _labels(event.after.body):
            return
        if self._final_phase(job) is not None:
            self.violations.append(f"{event.key} was created after the job had finished")
        if event.key.storage == "pods":
            self._check_duplicates(event)
            self._check_attempts(event, scope=job["spec"].get("runPolicy", {}).get("restartScope", "Replica"))
            self._check_order(event, job)
            self._check_quota(event, job)

    def _check_duplicates(self, event: StoreEvent) -> None:
        """Labels identify role, index and attempt, so no two live pods may have the same labels."""
        for key, other in self._other_pods(event):
            is_live = other["status"].get("phase") not in _FINAL_POD_PHASES
            if is_live and _labels(other) == _labels(event.after.body):
                self.violations.append(f"{event.key} and {key} are two live pods of one index and attempt")

    def _check_attempts(self, event: StoreEvent, *, scope: str) -> None:
        """With restart scope Role or Job, no pod of the old attempt may exist, not even a terminating one."""
        labels = _labels(event.after.body)
        for key, other in self._other_pods(event):
            other_labels = _labels(other)
            in_scope = scope == "Job" or (scope == "Role" and other_labels[REPLICA_TYPE_LABEL] == labels[REPLICA_TYPE_LABEL])
            if in_scope and other_labels[ATTEMPT_LABEL] != labels[ATTEMPT_LABEL]:
                self.violations.append(
                    f"{event.key} of attempt {labels[ATTEMPT_LABEL]} exists together with {key} of attempt {other_labels[ATTEMPT_LABEL]}"
                )

    def _check_order(self, event: StoreEvent, job: JsonObject) -> None:
        """Pods of a role with `dependsOn` are created when the replicas of the other roles have started in the same attempt."""
        labels, roles = _labels(event.after.body), job["spec"].get("replicaSpecs")
        role = (
            {name.lower(): spec for name, spec in roles.items()}.get(labels.get(REPLICA_TYPE_LABEL, ""))
            if isinstance(roles, dict)
            else None
        )
        for dependency in (role or {}).get("dependsOn") or []:
            name = dependency["role"].lower()
            other = next(spec for key, spec in roles.items() if key.lower() == name)
            replicas = {(name, str(index), labels[ATTEMPT_LABEL]) for index in range(other["replicas"])}
            if missing := replicas - self._started:
                self.violations.append(f"{event.key} was created before {sorted(missing)} started")

    def _check_quota(self, event: StoreEvent, job: JsonObject) -> None:
        """The pods of a job that names a queue are created while its Workload has quota."""
        if (job["spec"].get("runPolicy") or {}).get("schedulingPolicy", {}).get("queue"):
            workloads = self._store.list(_WORKLOADS, namespace=event.key.namespace)
            if not any(_holds_quota(stored.body) for _, stored in workloads):
                self.violations.append(f"{event.key} was created without quota")

    def _check_returned_quota(self, event: StoreEvent) -> None:
        """Quota is returned when the job has no pods, or has finished."""
        if event.before is None or not _holds_quota(event.before.body) or self.job_finished:
            return
        if event.type is ChangeType.DELETED or not _holds_quota(event.after.body):
            pods = [key.name for key, _ in self._store.list("pods", namespace=event.key.namespace)]
            if pods:
                self.violations.append(f"{event.key} returned its quota while {pods} existed")

    def _other_pods(self, event: StoreEvent) -> Iterator[tuple[ObjectKey, JsonObject]]:
        for key, stored in self._store.list("pods", namespace=event.key.namespace):
            if key != event.key and COMPANION_LABEL not in _labels(stored.body):
                yield key, stored.body

    def _owner(self, body: JsonObject) -> JsonObject | None:
        for owner in body["metadata"].get("ownerReferences", ()):
            job = self._store.get(ObjectKey(self._jobs, body["metadata"]["namespace"], owner["name"]))
            if job is not None and job.body["metadata"]["uid"] == owner["uid"]:
                return job.body
        return None


def masked_state(store: Store, *, jobs: str) -> dict[str, JsonObject]:
    """Jobs, pods and other children without times, uids and resource versions."""
    return {f"{key.storage} {key.name}": _mask(body) for key, body in _objects(store, (jobs, *_CHILDREN))}


def _objects(store: Store, storages: tuple[str, ...]) -> Iterator[tuple[ObjectKey, JsonObject]]:
    for storage in storages:
        for key, stored in store.list(storage, namespace="default"):
            if not _is_foreign_config_map(storage, stored.body):
                yield key, stored.body


def _is_foreign_config_map(storage: str, body: JsonObject) -> bool:
    """Every namespace has a config map with the CA of the API server."""
    return storage == "configmaps" and "ownerReferences" not in body["metadata"]


def _mask(body: JsonObject) -> JsonObject:
    text = msgspec.json.encode(body).decode()
    text = _VERSION.sub(r'"\1":"V"', _UID.sub("U", _TIME.sub("T", text)))
    masked: JsonObject = msgspec.json.decode(text)
    record = (masked.get("status") or {}).get("dlop") or {}
    if "backoffs" in record:
        # Replicas share an entry if their times are equal, which depends on when a fault delayed them.
        backoffs = msgspec.convert(record["backoffs"], dict[str, BackoffState])
        record["backoffs"] = msgspec.to_builtins(parse_backoffs(backoffs))
    return masked


def _holds_quota(workload: JsonObject) -> bool:
    status = workload.get("status") or {}
    is_finished = any(each["type"] == "Finished" and each["status"] == "True" for each in status.get("conditions", ()))
    return "admission" in status and not is_finished


def _labels(body: JsonObject) -> dict[str, str]:
    labels: dict[str, str] = body["metadata"].get("labels") or {}
    return labels


def _record(job: JsonObject) -> JsonObject:
    record: JsonObject = (job.get("status") or {}).get("dlop") or {}
    return record
