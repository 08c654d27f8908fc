"""A cluster of dictionaries: it carries out plans, can stop in the middle of one, and keeps its own books of what is never allowed.

Nothing here knows how the engine works. Nodes do what pods ask of them; time stands still unless it is moved.
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
from dlop.api.types import Options
from dlop.embedded.apiserver.patches.patch import merge
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, ObjectMeta, PartialObject, Pod, PodGroup, Service
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.timestamps import format_time, parse_time
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Delete, Event, Patch, Plan
from dlop.reconcile.snapshot import NameConflict, RejectedWrite, Snapshot
from tests.unit.reconcile.ring import RingJob

START = 1_800_000_000.0
GRACE_SECONDS = 30
Effect = Callable[[], None]


@dataclass
class World:
    """One job and its children."""

    spec: Any
    kind: type[DLJob] = RingJob
    options: Options | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)
    now: float = START
    status: JsonObject = field(default_factory=dict)
    generation: int = 1
    version: int = 1
    """Of the job, counted up with every write."""
    is_deleted: bool = False
    pods: dict[str, JsonObject] = field(default_factory=dict)
    services: dict[str, JsonObject] = field(default_factory=dict)
    others: dict[tuple[Resource, str], JsonObject] = field(default_factory=dict)
    foreign: tuple[NameConflict, ...] = ()
    refusals: tuple[RejectedWrite, ...] = ()
    lost_nodes: set[str] = field(default_factory=set)
    """Pods whose nodes do not answer any more."""
    events: list[Event] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    look_again_at: float | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _finished: set[tuple[str, str]] = field(default_factory=set)
    """Pods that ended well, with their attempts."""

    # --- what the operator sees and does ---

    def job(self) -> DLJob:
        metadata = ObjectMeta(name="ring", namespace="team", uid="job-uid", generation=self.generation, annotations=self.annotations)
        found = CustomObject(
            api_version="example.org/v1",
            kind="RingJob",
            metadata=metadata,
            spec=msgspec.Raw(msgspec.json.encode(self.spec)),
            status=msgspec.Raw(msgspec.json.encode(self.status)),
        )
        return self.kind(found, options=self.options)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            pods=tuple(msgspec.convert(_versioned(pod), Pod) for pod in self.pods.values()),
            services=tuple(msgspec.convert(service, Service) for service in self.services.values()),
            others=tuple((resource, msgspec.convert(body, _shape(resource))) for (resource, _), body in self.others.items()),
            priorities=self.priorities,
            foreign=self.foreign,
            refusals=self.refusals,
        )

    def plan(self) -> Plan:
        return self.job().reconcile(self.snapshot(), self.now)

    def effects(self, plan: Plan, *, version: int | None = None) -> list[Effect]:
        """What a plan does, write by write, in the order in which it is done."""
        found: list[Effect] = [lambda each=each: self._delete(each) for each in plan.deletions]  # type: ignore[misc]
        found += [lambda each=each: self._change(each) for each in plan.changes]  # type: ignore[misc]
        found += [lambda each=each: self._create(each) for each in (*plan.others, *plan.services, *plan.pods)]  # type: ignore[misc]
        if plan.status is not None:
            found.append(lambda: self._write_status(plan.status or {}, version=version))
        if plan.delete_job:
            found.append(self._delete_job)
        return found

    def carry_out(self, plan: Plan, *, writes: int | None = None, version: int | None = None) -> bool:
        """Do what a plan says, or only its first few writes. Says whether there was anything to do.

        The status is written only if it still has the version that the plan was made from.
        """
        effects = self.effects(plan, version=version)
        for effect in effects[:writes]:
            effect()
        if writes is None or writes >= len(effects):
            self.events += plan.events
        self.look_again_at = plan.look_again_at
        if plan.is_complete and writes is None and version is None:
            again = self.plan()
            assert not self.effects(again), "there is more to do after a plan that says it is complete"
            if again.look_again_at is not None:  # told to the second
                assert plan.look_again_at is not None, "nobody looks again after a plan that says it is complete"
                assert plan.look_again_at < again.look_again_at + 1, "somebody looks too late"
        return bool(effects)

    def settle(self) -> None:
        """Pass after pass until there is nothing left to do; nodes let go of pods in between."""
        for _ in range(40):
            if self.is_deleted:
                return
            busy = self.carry_out(self.plan())
            if not busy and not self.let_go():
                return
        raise AssertionError("the engine does not come to rest")

    def wait(self, seconds: float) -> None:
        """Time goes by, and nobody looks."""
        self.now += seconds

    def pass_time(self, seconds: float) -> None:
        """Time goes by; the job is looked at when its last plan asked for it, and at no other moment."""
        end = self.now + seconds
        self.settle()
        while not self.is_deleted and self.look_again_at is not None and self.look_again_at <= end:
            assert self.look_again_at > self.now, "a moment that has passed is waited for"
            self.now = self.look_again_at
            self.settle()
        self.now = end

    # --- what nodes and people do ---

    def run(self, *names: str) -> None:
        """Pods begin to run: all that wait, or these."""
        for name, pod in self.pods.items():
            if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"] and (not names or name in names):
                pod["status"]["phase"] = "Running"
                pod["spec"]["nodeName"] = f"node-of-{name}"
                pod["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": {"running": {}}}]

    def exit(self, name: str, code: int) -> None:
        """The program of a pod ends; its node does what the pod asks of it."""
        pod = self.pods[name]
        terminated = {"exitCode": code, "finishedAt": format_time(self.now)}
        main = pod["status"]["containerStatuses"][0]
        policy = pod["spec"]["restartPolicy"]
        if policy == "Always" or (policy == "OnFailure" and code != 0):
            main.update(restartCount=main["restartCount"] + 1, lastState={"terminated": terminated}, state={"running": {}})
            return
        main["state"] = {"terminated": terminated}
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        if not code and "deletionTimestamp" not in pod["metadata"] and name in self.wanted():
            self._finished.add((name, pod["metadata"]["labels"][ATTEMPT_LABEL]))

    def fail(self, name: str, *, reason: str = "", code: int | None = None) -> None:
        """A pod is failed as a whole, by its node or the control plane."""
        status = self.pods[name]["status"]
        status.update(phase="Failed", **({"reason": reason} if reason else {}))
        if code is None:
            status.pop("containerStatuses", None)
        else:
            status["containerStatuses"] = [
                {"name": "main", "state": {"terminated": {"exitCode": code, "finishedAt": format_time(self.now)}}}
            ]

    def delete_pod(self, name: str) -> None:
        """Somebody deletes a pod: it has its grace period, unless nothing of it runs any more."""
        metadata = self.pods[name]["metadata"]
        if self.pods[name]["status"]["phase"] in ("Succeeded", "Failed"):
            del self.pods[name]
        elif "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = format_time(self.now + GRACE_SECONDS)
            metadata["deletionGracePeriodSeconds"] = GRACE_SECONDS

    def lose(self, name: str) -> None:
        """A pod is gone, without a trace."""
        del self.pods[name]

    def let_go(self, *, most: int | None = None) -> bool:
        """Nodes that answer let go of the pods that are being deleted: of all, or of the first few."""
        gone = [name for name, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"] and name not in self.lost_nodes]
        for name in gone[:most]:
            del self.pods[name]
        return bool(gone)

    def edit(self, change: Callable[[Any], None]) -> None:
        """Somebody edits the spec."""
        self.spec = copy.deepcopy(self.spec)
        change(self.spec)
        self.generation += 1
        self.version += 1

    def set_run_policy(self, **fields: object) -> None:
        self.edit(lambda spec: spec["runPolicy"].update(fields))

    def set_image(self, role: str, image: str) -> None:
        self.edit(lambda spec: spec["replicaSpecs"][role]["template"]["spec"]["containers"][0].update(image=image))

    def scale(self, role: str, replicas: int) -> None:
        """What is taken out of the spec and put in again begins from the start."""
        self.edit(lambda spec: spec["replicaSpecs"][role].update(replicas=replicas))
        kept = {f"ring-{role.lower()}-{index}" for index in range(replicas)}
        self._finished = {each for each in self._finished if role.lower() not in each[0] or each[0] in kept}

    # --- what the tests ask ---

    @property
    def record(self) -> JsonObject:
        found: JsonObject = self.status.get("dlop", {})
        return found

    @property
    def phase(self) -> str:
        return str(self.record.get("phase", ""))

    @property
    def conditions(self) -> list[tuple[str, str]]:
        return [(each["type"], each["status"]) for each in self.status.get("conditions", [])]

    def condition(self, kind: str) -> JsonObject:
        found: JsonObject = next(each for each in self.status["conditions"] if each["type"] == kind)
        return found

    def is_running(self, name: str) -> bool:
        return name in self.pods and self.pods[name]["status"]["phase"] == "Running"

    def wanted(self) -> set[str]:
        """The pods that the spec asks for."""
        job = self.job()
        return {job.replica_name(role, index) for role in job.spec.roles for index in range(role.replicas)}

    def images(self) -> dict[str, str]:
        return {name: pod["spec"]["containers"][0]["image"] for name, pod in self.pods.items()}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods.items()}

    # --- writes, with what is never allowed ---

    def _create(self, creation: Create) -> None:
        body = copy.deepcopy(creation.body)
        place = {PODS: self.pods, SERVICES: self.services}.get(creation.resource)
        assert self.phase not in ("Succeeded", "Failed"), f"{creation.name} is created after the end"
        assert body["metadata"]["name"] == creation.name
        if place is not None and creation.name in place:
            return  # 409: it is there already
        body["metadata"].update(uid=f"uid-{next(self._numbers)}", creationTimestamp=format_time(self.now))
        self.writes[f"create {creation.name}"] += 1
        if place is None:
            self.others.setdefault((creation.resource, creation.name), body)
            return
        place[creation.name] = body
        if creation.resource == PODS:
            self._check_pod(body)

    def _check_pod(self, body: JsonObject) -> None:
        body["status"] = {"phase": "Pending"}
        name, attempt = body["metadata"]["name"], body["metadata"]["labels"][ATTEMPT_LABEL]
        assert (name, attempt) not in self._finished, f"{name} runs a second time in attempt {attempt}"
        policy = self.job().spec.run_policy
        assert name in self.wanted(), f"nobody asks for {name}"
        assert not policy.suspend, f"{name} is created while the job is suspended"
        scope = {"Replica": name, "Role": name.rpartition("-")[0], "Job": ""}[policy.restart_scope]
        attempts = {pod["metadata"]["labels"][ATTEMPT_LABEL] for other, pod in self.pods.items() if other.startswith(scope)}
        assert attempts == {attempt}, f"{name} is created while an earlier attempt is not gone"

    def _change(self, change: Patch) -> None:
        found = self.others.get((change.resource, change.name))
        if found is not None and found["metadata"]["uid"] == change.uid:
            self.writes[f"change {change.name}"] += 1
            self.others[change.resource, change.name] = merge(found, {**change.body, "metadata": {}})

    def _delete_other(self, deletion: Delete) -> None:
        found = self.others.get((deletion.resource, deletion.name))
        if found is not None and found["metadata"]["uid"] == deletion.uid:
            self.writes[f"delete {deletion.name}"] += 1
            del self.others[deletion.resource, deletion.name]

    def _delete(self, deletion: Delete) -> None:
        if deletion.resource not in (PODS, SERVICES):
            self._delete_other(deletion)
            return
        place = self.pods if deletion.resource == PODS else self.services
        found = place.get(deletion.name)
        if found is None or found["metadata"]["uid"] != deletion.uid:
            return  # 404, or the precondition fails
        if deletion.resource_version not in (None, _versioned(found)["metadata"]["resourceVersion"]):
            return  # 409: something has happened to it
        self.writes[f"delete {deletion.name}"] += 1
        if deletion.resource != PODS or deletion.grace_seconds == 0:
            del place[deletion.name]
        else:
            self.delete_pod(deletion.name)

    def _write_status(self, status: JsonObject, *, version: int | None) -> None:
        if version is not None and version != self.version:
            return  # 409: the status has changed in the meantime
        self.version += 1
        before, after = self.record, status["dlop"]
        for counter in ("restarts", "disruptions"):
            for role, count in before.get(counter, {}).items():
                assert after.get(counter, {}).get(role, 0) >= count, f"{counter} of {role} fall"
        assert after.get("attempt", 0) >= before.get("attempt", 0)
        assert self.phase not in ("Succeeded", "Failed"), "the status is changed after the end"
        assert parse_time(after["startedAt"]) is not None if "startedAt" in after else True
        self.status = msgspec.json.decode(msgspec.json.encode(status))
        self.writes["status"] += 1

    def _delete_job(self) -> None:
        self.is_deleted = True
        self.pods, self.services = {}, {}


def _shape(resource: Resource) -> type[PartialObject]:
    return PodGroup if resource in POD_GROUPS else PartialObject


def _versioned(body: JsonObject) -> JsonObject:
    """The object with a version that is another one whenever anything about it is."""
    version = zlib.crc32(msgspec.json.encode(body))
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
