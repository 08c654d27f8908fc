"""From what the caches are told to what the workers look at: which job does a change concern, and how soon.

Pods of one job tend to change together, so a change that can wait a moment waits for the others. What is under way for
a job is settled here, as the caches show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey, ManagedKinds
from dlop.kube.cache import CacheChange
from dlop.kube.expectations import Child, Expectations
from dlop.kube.informer import Handler
from dlop.kube.objects import CustomObject, KubeObject, ObjectMeta, PartialObject, Pod, PodGroup, PodStatus
from dlop.kube.resources import Resource
from dlop.kube.workqueue import WorkQueue

# How long a change of a pod that calls for no deed waits for further ones.
_CALM_SECONDS = 0.5
# How long a pod that runs waits for its peers: until they all do, there is little to tell.
_RUNNING_SECONDS = 2.0
# How long one waits that does, or that of the last pod of a job to get somewhere.
_BRISK_SECONDS = 0.02
# How long a pod that has finished waits for its peers: they tend to finish together, and then the job is done.
_FINISHED_SECONDS = 0.3
# How long the second one waits, and each after it: where pods finish one by one, the job is told of them in lots.
_ALSO_FINISHED_SECONDS = 1.0
# How much longer for each pod: a pass over a thousand pods takes a while, and a thousand pods have a thousand changes.
_SECONDS_A_POD = 0.0002
_NEW_POD = PodStatus(phase="Pending")


class EventHandlers:
    """Makes the handlers of the informers."""

    def __init__(
        self,
        queue: WorkQueue[JobKey],
        *,
        expectations: Expectations,
        memories: JobStates,
        kinds: ManagedKinds,
        forget: Callable[[str], None],
        deleted: Callable[[Resource, CustomObject], None],
    ) -> None:
        """`forget` is called with the uid of a job that is gone, `deleted` with the last that was seen of it."""
        self._queue = queue
        self._forget = forget
        self._deleted = deleted
        self._expectations = expectations
        self._memories = memories
        self._kinds = kinds

    def of_jobs(self, resource: Resource) -> Handler[CustomObject]:
        """Told of the jobs of a kind."""

        def told(change: CacheChange[CustomObject]) -> None:
            old, new = change.old, change.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self._deleted(resource, old)
                self._forget(old.metadata.uid)
            elif old is not None and new is not None and self._is_echo(old, new):
                return
            metadata = change.object.metadata
            key = JobKey(resource, metadata.namespace, metadata.name)
            self._queue.add(key, initial=change.initial)

        return told

    def of_children(self, resource: Resource) -> Handler[Any]:
        """Told of the objects that jobs own."""

        def told(change: CacheChange[KubeObject]) -> None:
            old, new = change.old, change.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self._gone(resource, old)
                old = None
            if new is not None:
                self._there(resource, old, new, initial=change.initial)

        return told

    def relisted(self, resource: Resource) -> None:
        """Told after a list that has taken the place of a watch: what came and went in between is not on it, and never shows."""
        self._expectations.doubt_creates(resource)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _gone(self, resource: Resource, last: KubeObject) -> None:
        metadata = last.metadata
        self._look_at_those_who_wait(resource, metadata)
        owner = metadata.controller
        if owner is None:
            return
        if not self._expectations.are_met(owner.uid):
            self._expectations.settle(owner.uid, Child(resource, metadata.namespace, metadata.name, metadata.uid))
            self._expectations.settle(owner.uid, Child(resource, metadata.namespace, metadata.name))
        self._look_at_owner(last, after_seconds=_BRISK_SECONDS)

    def _there(self, resource: Resource, old: KubeObject | None, new: KubeObject, *, initial: bool) -> None:
        metadata = new.metadata
        self._look_at_those_who_wait(resource, metadata)
        owner = metadata.controller
        if old is not None and old.metadata.controller != owner:
            self._look_at_owner(old, after_seconds=_BRISK_SECONDS)
        if owner is None:
            return
        was_expected = self._settle(owner.uid, resource, new)
        # The first list says nothing new: its jobs are on the list of jobs.
        if initial or (old is not None and not _matters(old, new)):
            return
        if was_expected and old is None and _is_as_it_was_made(new):
            self._look_if_there_is_news(owner.uid)
        else:
            self._look_at_owner(new, after_seconds=self._patience_with(old, new))

    def _look_at_those_who_wait(self, resource: Resource, metadata: ObjectMeta) -> None:
        for key in self._memories.who_waits_for(resource, metadata.namespace, metadata.name):
            self._queue.add(key)

    def _settle(self, owner_uid: str, resource: Resource, new: KubeObject) -> bool:
        """Whether the object was expected to appear."""
        if self._expectations.are_met(owner_uid):
            return False
        metadata = new.metadata
        created = Child(resource, metadata.namespace, metadata.name)
        was_expected = self._expectations.expects(owner_uid, created)
        self._expectations.settle(owner_uid, created)
        if metadata.deletion_timestamp is not None:
            self._expectations.settle(owner_uid, Child(resource, metadata.namespace, metadata.name, metadata.uid))
        return was_expected

    def _look_if_there_is_news(self, owner_uid: str) -> None:
        memory = self._memories.find(owner_uid)
        if memory is not None and memory.has_news and self._expectations.are_met(owner_uid):
            self._queue.add(memory.key)

    def _look_at_owner(self, child: KubeObject, *, after_seconds: float) -> None:
        owner = child.metadata.controller
        if owner is None:
            return
        memory = self._memories.find(owner.uid)
        if memory is not None and not self._expectations.are_met(owner.uid):
            memory.has_news = True  # the last of the expected ones will bring it up
            return
        kind = self._kinds.of_owner(api_version=owner.api_version, kind=owner.kind)
        if kind is not None:
            size_seconds = 0.0 if memory is None else memory.pods * _SECONDS_A_POD
            self._queue.add_after(JobKey(kind.resource, child.metadata.namespace, owner.name), after_seconds + size_seconds)

    def _patience_with(self, old: KubeObject | None, new: KubeObject) -> float:
        """How long a change waits for others."""
        if new.metadata.deletion_timestamp is not None or isinstance(new, PodGroup):
            return _BRISK_SECONDS
        phase = new.status.phase if isinstance(new, Pod) else ""
        owner = new.metadata.controller
        memory = None if owner is None else self._memories.find(owner.uid)
        has_turned = not isinstance(old, Pod) or old.status.phase != phase
        if phase == "Failed" or (memory is not None and has_turned and memory.has_turned(phase)):
            return _BRISK_SECONDS
        if phase == "Succeeded":
            return _FINISHED_SECONDS if memory is None or memory.succeeded <= 1 else _ALSO_FINISHED_SECONDS
        return _RUNNING_SECONDS if phase == "Running" else _CALM_SECONDS

    def _is_echo(self, old: CustomObject, new: CustomObject) -> bool:
        """Whether all that is new of a job is the status that was just written for it, and nobody waits to see it there."""
        memory = self._memories.find(new.metadata.uid)
        if memory is None or memory.said is None:
            return False
        said, memory.said = memory.said, None
        return _differ_in_status_alone(old.metadata, new.metadata) and msgspec.json.decode(new.status) == said


def _differ_in_status_alone(old: ObjectMeta, new: ObjectMeta) -> bool:
    return msgspec.structs.replace(old, resource_version=new.resource_version) == new


def _is_as_it_was_made(found: KubeObject) -> bool:
    """Whether nothing has happened to an object since it was created."""
    if found.metadata.deletion_timestamp is not None:
        return False
    return not isinstance(found, Pod) or (found.status == _NEW_POD and not found.spec.node_name)


def _matters(old: KubeObject, new: KubeObject) -> bool:
    """Whether a job could care. Most changes of most objects are in fields that are not even kept."""
    before, after = old.metadata, new.metadata
    if before.deletion_timestamp != after.deletion_timestamp or before.owner_references != after.owner_references:
        return True
    if isinstance(old, Pod) and isinstance(new, Pod):
        return old.status != new.status or old.spec.node_name != new.spec.node_name or before.labels != after.labels
    if isinstance(old, PodGroup) and isinstance(new, PodGroup):
        # A scheduler counts in the status what each pod does, and the pods tell that themselves.
        return old.status.phase != new.status.phase or old.spec != new.spec
    # An autoscaler has a new status every few seconds, and it is not kept.
    return not isinstance(new, PartialObject) or not _differ_in_status_alone(before, after)
