"""A simulated cluster for planner tests. It executes plans, can stop in the middle of one, and checks invariants.

It does not know how the planner works. Nodes do what pods request, and time advances only explicitly.
"""

from __future__ import annotations

import copy
import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dlop.api.child_objects import Create
from dlop.api.constants import ATTEMPT_LABEL
from dlop.api.gang import POD_GROUPS
from dlop.api.types import ForceDeletion, Options
from dlop.embedded.apiserver.patches.patch import apply_merge_patch
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, ObjectMeta, PartialObject, Pod, PodGroup, Service
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.timestamps import format_time, parse_time
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Delete, Event, Patch, Plan
from dlop.reconcile.snapshot import NameConflict, RejectedWrite, Snapshot, TerminatingConflict
from tests.unit.reconcile.ring import RingJob

START = 1_800_000_000.0
GRACE_SECONDS = 30
OPTIONS = Options(force_deletion=ForceDeletion.TIMEOUT)
Effect = Callable[[], None]


@dataclass
class World:
    """One job and its children."""

    spec: Any
    kind: type[DLJob] = RingJob
    options: Options = OPTIONS
    annotations: dict[str, str] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)
    now: float = START
    status: JsonObject = field(default_factory=dict)
    generation: int = 1
    version: int = 1
    """Resource version of the job, incremented by every write."""
    is_deleted: bool = False
    pods: dict[str, JsonObject] = field(default_factory=dict)
    services: dict[str, JsonObject] = field(default_factory=dict)
    children: dict[tuple[Resource, str], JsonObject] = field(default_factory=dict)
    name_conflicts: tuple[NameConflict, ...] = ()
    terminating_conflicts: tuple[TerminatingConflict, ...] = ()
    rejected_writes: tuple[RejectedWrite, ...] = ()
    lost_nodes: set[str] = field(default_factory=set)
    """Pods whose nodes do not respond."""
    down_nodes: dict[str, str] = field(default_factory=dict)
    """What the operator sees of the nodes of terminating pods."""
    events: list[Event] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    requeue_at: float | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _finished: set[tuple[str, str]] = field(default_factory=set)
    """Names and attempts of pods that have succeeded."""

    # --- the operator ---

    def job(self) -> DLJob:
        metadata = ObjectMeta(name="ring", namespace="team", uid="job-uid", generation=self.generation, annotations=self.annotations)
        stored = CustomObject(
            api_version="example.org/v1",
            kind="RingJob",
            metadata=metadata,
            spec=msgspec.Raw(msgspec.json.encode(self.spec)),
            status=msgspec.Raw(msgspec.json.encode(self.status)),
        )
        return self.kind(stored, options=self.options)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            pods=tuple(msgspec.convert(_versioned(pod), Pod) for pod in self.pods.values()),
            services=tuple(msgspec.convert(service, Service) for service in self.services.values()),
            children=tuple((resource, msgspec.convert(body, _object_type(resource))) for (resource, _), body in self.children.items()),
            priorities=self.priorities,
            down_nodes=self.down_nodes,
            name_conflicts=self.name_conflicts,
            terminating_conflicts=self.terminating_conflicts,
            rejected_writes=self.rejected_writes,
        )

    def plan(self) -> Plan:
        return self.job().reconcile(self.snapshot(), self.now)

    def effects(self, plan: Plan, *, version: int | None = None) -> list[Effect]:
        """The writes of a plan, in the order of execution."""
        effects: list[Effect] = [lambda delete=delete: self._delete(delete) for delete in plan.deletes]  # type: ignore[misc]
        effects += [lambda patch=patch: self._patch(patch) for patch in plan.patches]  # type: ignore[misc]
        effects += [lambda create=create: self._create(create) for create in plan.creates]  # type: ignore[misc]
        if plan.status is not None:
            effects.append(lambda: self._write_status(plan.status or {}, version=version))
        if plan.delete_job:
            effects.append(self._delete_job)
        return effects

    def execute(self, plan: Plan, *, writes: int | None = None, version: int | None = None) -> bool:
        """Execute a plan, or only its first writes. Returns whether the plan has any writes.

        With `version`, the status is written only if the job still has this resource version.
        """
        effects = self.effects(plan, version=version)
        for effect in effects[:writes]:
            effect()
        if writes is None or writes >= len(effects):
            self.events += plan.events
        self.requeue_at = plan.requeue_at
        if plan.settles and writes is None and version is None:
            again = self.plan()
            assert not self.effects(again), "a plan that settles leaves work to do"
            if again.requeue_at is not None:  # stored in whole seconds
                assert plan.requeue_at is not None, "a plan that settles has no requeue time"
                assert plan.requeue_at < again.requeue_at + 1, "a plan that settles requeues too late"
        return bool(effects)

    def settle(self) -> None:
        """Run passes until nothing is left to do. Nodes confirm deletions in between."""
        for _ in range(40):
            if self.is_deleted:
                return
            busy = self.execute(self.plan())
            if not busy and not self.confirm_deletions():
                return
        raise AssertionError("the planner does not settle")

    def wait(self, seconds: float) -> None:
        """Advance the time without a pass."""
        self.now += seconds

    def pass_time(self, seconds: float) -> None:
        """Advance the time. The job is reconciled only at the requeue times of its plans."""
        end = self.now + seconds
        self.settle()
        while not self.is_deleted and self.requeue_at is not None and self.requeue_at <= end:
            assert self.requeue_at > self.now, "the requeue time is in the past"
            self.now = self.requeue_at
            self.settle()
        self.now = end

    # --- nodes and users ---

    def run(self, *names: str) -> None:
        """Start these pending pods; all if none is named."""
        for name, pod in self.pods.items():
            if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"] and (not names or name in names):
                pod["status"]["phase"] = "Running"
                pod["spec"]["nodeName"] = f"node-of-{name}"
                pod["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": {"running": {}}}]

    def exit(self, name: str, code: int) -> None:
        """The main container of a pod exits. The kubelet restarts it according to the restart policy."""
        pod = self.pods[name]
        terminated = {"exitCode": code, "finishedAt": format_time(self.now)}
        main = pod["status"]["containerStatuses"][0]
        policy = pod["spec"]["restartPolicy"]
        if policy == "Always" or (policy == "OnFailure" and code != 0):
            main.update(restartCount=main["restartCount"] + 1, lastState={"terminated": terminated}, state={"running": {}})
            return
        main["state"] = {"terminated": terminated}
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        if not code and "deletionTimestamp" not in pod["metadata"] and name in self.desired_pods():
            self._finished.add((name, pod["metadata"]["labels"][ATTEMPT_LABEL]))

    def fail(self, name: str, *, reason: str = "", code: int | None = None) -> None:
        """The kubelet or the control plane sets a pod to Failed."""
        status = self.pods[name]["status"]
        status.update(phase="Failed", **({"reason": reason} if reason else {}))
        if code is None:
            status.pop("containerStatuses", None)
        else:
            status["containerStatuses"] = [
                {"name": "main", "state": {"terminated": {"exitCode": code, "finishedAt": format_time(self.now)}}}
            ]

    def delete_pod(self, name: str) -> None:
        """Delete a pod with its grace period. A completed pod is removed at once."""
        metadata = self.pods[name]["metadata"]
        if self.pods[name]["status"]["phase"] in ("Succeeded", "Failed"):
            del self.pods[name]
        elif "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = format_time(self.now + GRACE_SECONDS)
            metadata["deletionGracePeriodSeconds"] = GRACE_SECONDS

    def interrupt_delete(self, name: str) -> None:
        """Leave a pod between the two steps of a delete without a grace period, one second from now. Only another delete removes it."""
        self.pods[name]["metadata"] |= {"deletionTimestamp": format_time(self.now + 1), "deletionGracePeriodSeconds": 0}

    def remove_pod(self, name: str) -> None:
        """Remove a pod without a trace."""
        del self.pods[name]

    def confirm_deletions(self, *, limit: int | None = None) -> bool:
        """Nodes that respond remove their terminating pods, at most `limit`. Returns whether there were any."""
        names = [
            name for name, pod in self.pods.items() if pod["metadata"].get("deletionGracePeriodSeconds") and name not in self.lost_nodes
        ]
        for name in names[:limit]:
            del self.pods[name]
        return bool(names)

    def edit(self, change: Callable[[Any], None]) -> None:
        """Change the spec."""
        self.spec = copy.deepcopy(self.spec)
        change(self.spec)
        self.generation += 1
        self.version += 1

    def set_run_policy(self, **fields: object) -> None:
        self.edit(lambda spec: spec["runPolicy"].update(fields))

    def set_image(self, role: str, image: str) -> None:
        self.edit(lambda spec: spec["replicaSpecs"][role]["template"]["spec"]["containers"][0].update(image=image))

    def scale(self, role: str, replicas: int) -> None:
        """Scale a role. Indexes that are removed and added again start from the beginning."""
        self.edit(lambda spec: spec["replicaSpecs"][role].update(replicas=replicas))
        kept = {f"ring-{role.lower()}-{index}" for index in range(replicas)}
        self._finished = {(name, attempt) for name, attempt in self._finished if role.lower() not in name or name in kept}

    # --- assertions ---

    @property
    def record(self) -> JsonObject:
        record: JsonObject = self.status.get("dlop", {})
        return record

    @property
    def phase(self) -> str:
        return str(self.record.get("phase", ""))

    @property
    def conditions(self) -> list[tuple[str, str]]:
        return [(condition["type"], condition["status"]) for condition in self.status.get("conditions", [])]

    def condition(self, type: str) -> JsonObject:
        condition: JsonObject = next(condition for condition in self.status["conditions"] if condition["type"] == type)
        return condition

    def is_running(self, name: str) -> bool:
        return name in self.pods and self.pods[name]["status"]["phase"] == "Running"

    def desired_pods(self) -> set[str]:
        """The names of all pods of the spec."""
        job = self.job()
        return {job.naming.pod_name(job, role, index) for role in job.spec.roles for index in range(role.replicas)}

    def images(self) -> dict[str, str]:
        return {name: pod["spec"]["containers"][0]["image"] for name, pod in self.pods.items()}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods.items()}

    # --- writes, with invariants ---

    def _create(self, create: Create) -> None:
        body = copy.deepcopy(create.body)
        existing = {PODS: self.pods, SERVICES: self.services}.get(create.resource)
        assert self.phase not in ("Succeeded", "Failed"), f"{create.name} is created after the job has finished"
        assert body["metadata"]["name"] == create.name
        if existing is not None and create.name in existing:
            return  # 409 AlreadyExists
        body["metadata"].update(uid=f"uid-{next(self._numbers)}", creationTimestamp=format_time(self.now))
        self.writes[f"create {create.name}"] += 1
        if existing is None:
            self.children.setdefault((create.resource, create.name), body)
            return
        existing[create.name] = body
        if create.resource == PODS:
            self._check_pod(body)

    def _check_pod(self, body: JsonObject) -> None:
        body["status"] = {"phase": "Pending"}
        name, attempt = body["metadata"]["name"], body["metadata"]["labels"][ATTEMPT_LABEL]
        assert (name, attempt) not in self._finished, f"{name} runs a second time in attempt {attempt}"
        policy = self.job().spec.run_policy
        assert name in self.desired_pods(), f"{name} is not in the spec"
        assert not policy.suspend, f"{name} is created while the job is suspended"
        scope = {"Replica": name, "Role": name.rpartition("-")[0], "Job": ""}[policy.restart_scope]
        attempts = {pod["metadata"]["labels"][ATTEMPT_LABEL] for other, pod in self.pods.items() if other.startswith(scope)}
        assert attempts == {attempt}, f"{name} is created while pods of an earlier attempt exist"

    def _patch(self, patch: Patch) -> None:
        child = self.children.get((patch.resource, patch.name))
        if child is not None and child["metadata"]["uid"] == patch.uid:
            self.writes[f"patch {patch.name}"] += 1
            self.children[patch.resource, patch.name] = apply_merge_patch(child, {**patch.body, "metadata": {}})

    def _delete_child(self, delete: Delete) -> None:
        child = self.children.get((delete.resource, delete.name))
        if child is not None and child["metadata"]["uid"] == delete.uid:
            self.writes[f"delete {delete.name}"] += 1
            del self.children[delete.resource, delete.name]

    def _delete(self, delete: Delete) -> None:
        if delete.resource not in (PODS, SERVICES):
            self._delete_child(delete)
            return
        objects = self.pods if delete.resource == PODS else self.services
        body = objects.get(delete.name)
        if body is None or body["metadata"]["uid"] != delete.uid:
            return  # 404, or 409 because of the UID precondition
        if delete.resource_version not in (None, _versioned(body)["metadata"]["resourceVersion"]):
            return  # 409 Conflict
        self.writes[f"delete {delete.name}"] += 1
        if delete.resource != PODS or delete.grace_seconds == 0:
            del objects[delete.name]
        else:
            self.delete_pod(delete.name)

    def _write_status(self, status: JsonObject, *, version: int | None) -> None:
        if version is not None and version != self.version:
            return  # 409 Conflict
        self.version += 1
        before, after = self.record, status["dlop"]
        for counter in ("restarts", "disruptions"):
            for role, count in before.get(counter, {}).items():
                assert after.get(counter, {}).get(role, 0) >= count, f"{counter} of {role} decrease"
        assert after.get("attempt", 0) >= before.get("attempt", 0)
        assert self.phase not in ("Succeeded", "Failed"), "the status is written after the job has finished"
        assert parse_time(after["startedAt"]) is not None if "startedAt" in after else True
        self.status = msgspec.json.decode(msgspec.json.encode(status))
        self.writes["status"] += 1

    def _delete_job(self) -> None:
        self.is_deleted = True
        self.pods, self.services = {}, {}


def _object_type(resource: Resource) -> type[PartialObject]:
    return PodGroup if resource in POD_GROUPS else PartialObject


def _versioned(body: JsonObject) -> JsonObject:
    """The object with a resource version that changes with its contents."""
    version = zlib.crc32(msgspec.json.encode(body))
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
