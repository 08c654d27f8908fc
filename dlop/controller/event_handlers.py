"""Informer event handlers: map a change to the job it concerns and enqueue it after a debounce delay.

The pods of a job tend to change together, so changes that are not urgent wait for others. The handlers also satisfy the
expectations of the jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from dlop.api.kueue import decision
from dlop.api.start_order import is_ready
from dlop.api.tensorboard import is_tensorboard
from dlop.controller.job_state import JobState, JobStates
from dlop.controller.kinds import JobKey, ManagedKinds, cron_key
from dlop.kube.cache import CacheChange
from dlop.kube.expectations import Child, Expectations
from dlop.kube.informer import Handler
from dlop.kube.objects import CustomObject, KubeObject, ObjectMeta, PartialObject, Pod, PodGroup, PodStatus, Workload
from dlop.kube.resources import Resource
from dlop.kube.workqueue import WorkQueue

# For changes that need no action.
_DEBOUNCE_SECONDS = 0.5
# For changes that need action, and for the last pod of a job to enter a phase. The first such change of a job is handled at once.
_URGENT_DEBOUNCE_SECONDS = 0.02
# For a pod that has started. The status changes little until all pods run.
_RUNNING_DEBOUNCE_SECONDS = 2.0
# For the first pod that succeeds. Pods tend to succeed together, and then the job is finished.
_FIRST_SUCCEEDED_DEBOUNCE_SECONDS = 0.3
# For every further pod that succeeds. Where pods succeed one by one, the job is reconciled once for several of them.
_NEXT_SUCCEEDED_DEBOUNCE_SECONDS = 1.0
# Added for each pod of the job. Larger jobs take longer to reconcile and have more changes.
_DEBOUNCE_SECONDS_PER_POD = 0.0002
_NEW_POD_STATUS = PodStatus(phase="Pending")


class EventHandlers:
    def __init__(
        self,
        queue: WorkQueue[JobKey],
        *,
        expectations: Expectations,
        job_states: JobStates,
        kinds: ManagedKinds,
        forget: Callable[[str], None],
        on_job_deleted: Callable[[Resource, CustomObject], None],
    ) -> None:
        """`forget` is called with the uid of a deleted job, `on_job_deleted` with its last cached state."""
        self._queue = queue
        self._forget = forget
        self._on_job_deleted = on_job_deleted
        self._expectations = expectations
        self._job_states = job_states
        self._kinds = kinds

    def job_handler(self, resource: Resource) -> Handler[CustomObject]:
        """The handler for jobs of a kind."""

        def handle(change: CacheChange[CustomObject]) -> None:
            old, new = change.old, change.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self._on_job_deleted(resource, old)
                self._forget(old.metadata.uid)
            elif old is not None and new is not None and self._consume_echo(old, new):
                return
            metadata = change.object.metadata
            key = JobKey(resource, metadata.namespace, metadata.name)
            self._queue.add(key, initial=change.initial)

        return handle

    def cron_handler(self, change: CacheChange[CustomObject]) -> None:
        """Handle a change of a job that may have a Cron: enqueue the Cron if the job is new or was edited."""
        old, new = change.old, change.new
        if new is None or (old is not None and (old.metadata.uid, old.metadata.generation) == (new.metadata.uid, new.metadata.generation)):
            return
        key = cron_key(new)
        if key is not None:
            self._queue.add(key, initial=change.initial)

    def child_handler(self, resource: Resource) -> Handler[Any]:
        """The handler for objects that jobs own."""

        def handle(change: CacheChange[KubeObject]) -> None:
            old, new = change.old, change.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self._on_delete(resource, old)
                old = None
            if new is not None:
                self._on_upsert(resource, old, new, initial=change.initial)

        return handle

    def on_relist(self, resource: Resource) -> None:
        """Handle a relist. It does not show objects that were created and deleted since the watch broke."""
        self._expectations.mark_creates_uncertain(resource)

    # --- children ----------------------------------------------------------------------------------------------------

    def _on_delete(self, resource: Resource, last: KubeObject) -> None:
        metadata = last.metadata
        self._enqueue_waiting_jobs(resource, metadata)
        owner = metadata.controller
        if owner is None:
            return
        if not self._expectations.satisfied(owner.uid):
            self._expectations.observe(owner.uid, Child(resource, metadata.namespace, metadata.name, metadata.uid))
        state = self._job_states.get(owner.uid)
        if state is not None and metadata.uid in state.known_deletes:
            state.known_deletes.remove(metadata.uid)
            self._enqueue_if_dirty(owner.uid)
            return
        if state is not None and isinstance(last, Pod) and last.status.phase == "Pending":
            state.lost_new_pods = True
        self._expectations.observe(owner.uid, Child(resource, metadata.namespace, metadata.name))
        self._enqueue_owner(last, after_seconds=_URGENT_DEBOUNCE_SECONDS)

    def _on_upsert(self, resource: Resource, old: KubeObject | None, new: KubeObject, *, initial: bool) -> None:
        metadata = new.metadata
        self._enqueue_waiting_jobs(resource, metadata)
        owner = metadata.controller
        if old is not None and old.metadata.controller != owner:
            self._enqueue_owner(old, after_seconds=_URGENT_DEBOUNCE_SECONDS)
        if owner is None:
            self._enqueue_adopter(metadata)
            return
        state = self._job_states.get(owner.uid)
        if state is not None and metadata.uid in state.known_deletes:
            return  # the event of the deletion follows
        was_expected = self._observe_child(owner.uid, resource, new)
        # The initial list of children needs no enqueue, because the initial list of jobs enqueues their owners.
        if initial or (old is not None and not _is_relevant(old, new)):
            return
        if was_expected and old is None and _is_unmodified(new):
            self._enqueue_if_dirty(owner.uid)
        else:
            self._enqueue_owner(new, after_seconds=self._observe_transition(old, new))

    def _enqueue_waiting_jobs(self, resource: Resource, metadata: ObjectMeta) -> None:
        for key in self._job_states.keys_waiting_for(resource, metadata.namespace, metadata.name):
            self._queue.add(key)

    def _observe_child(self, owner_uid: str, resource: Resource, new: KubeObject) -> bool:
        """Satisfy the expectations about an object. Returns whether its creation was expected."""
        if self._expectations.satisfied(owner_uid):
            return False
        metadata = new.metadata
        created = Child(resource, metadata.namespace, metadata.name)
        was_expected = self._expectations.expects(owner_uid, created)
        self._expectations.observe(owner_uid, created)
        if metadata.deletion_timestamp is not None:
            self._expectations.observe(owner_uid, Child(resource, metadata.namespace, metadata.name, metadata.uid))
        return was_expected

    def _enqueue_if_dirty(self, owner_uid: str) -> None:
        state = self._job_states.get(owner_uid)
        if state is not None and state.dirty and self._expectations.satisfied(owner_uid):
            self._queue.add(state.key)

    def _enqueue_owner(self, child: KubeObject, *, after_seconds: float) -> None:
        owner = child.metadata.controller
        if owner is None:
            return
        state = self._job_states.get(owner.uid)
        if state is not None and not self._expectations.satisfied(owner.uid):
            state.dirty = True  # the event that satisfies the last expectation enqueues the job
            return
        kind = self._kinds.by_owner(api_version=owner.api_version, kind=owner.kind)
        if kind is not None:
            delay = after_seconds if state is None else _debounce_seconds(state, after_seconds)
            self._queue.add_after(JobKey(kind.resource, child.metadata.namespace, owner.name), delay)

    def _enqueue_adopter(self, metadata: ObjectMeta) -> None:
        """Enqueue the job that can adopt an object: its master has created it, with an owner reference to the job."""
        for owner in metadata.owner_references:
            kind = self._kinds.by_owner(api_version=owner.api_version, kind=owner.kind)
            if kind is not None and kind.members is not None and kind.members.name_label in metadata.labels:
                self._queue.add_after(JobKey(kind.resource, metadata.namespace, owner.name), _URGENT_DEBOUNCE_SECONDS)

    def _observe_transition(self, old: KubeObject | None, new: KubeObject) -> float:
        """Count the phase transition of a pod. Returns the debounce delay of the change in seconds."""
        if new.metadata.deletion_timestamp is not None or isinstance(new, PodGroup | Workload):
            return _URGENT_DEBOUNCE_SECONDS
        phase = new.status.phase if isinstance(new, Pod) else ""
        owner = new.metadata.controller
        state = None if owner is None else self._job_states.get(owner.uid)
        phase_changed = not isinstance(old, Pod) or old.status.phase != phase
        is_counted = state is not None and phase_changed and not is_tensorboard(new.metadata)
        if phase == "Failed" or (state is not None and is_counted and state.count_transition(phase)) or _has_new_failure(old, new):
            return _URGENT_DEBOUNCE_SECONDS
        if state is not None and not state.is_settled and _has_become_ready(old, new):
            return _URGENT_DEBOUNCE_SECONDS  # other pods may wait for it
        if phase == "Succeeded":
            is_first = state is None or state.succeeded <= 1
            return _FIRST_SUCCEEDED_DEBOUNCE_SECONDS if is_first else _NEXT_SUCCEEDED_DEBOUNCE_SECONDS
        return _RUNNING_DEBOUNCE_SECONDS if phase == "Running" else _DEBOUNCE_SECONDS

    # --- jobs --------------------------------------------------------------------------------------------------------

    def _consume_echo(self, old: CustomObject, new: CustomObject) -> bool:
        """Whether a change of a job is only the expected watch event of a status write."""
        state = self._job_states.get(new.metadata.uid)
        if state is None or not state.expected_echoes:
            return False
        status = msgspec.json.decode(new.status)
        if _is_same_metadata(old.metadata, new.metadata) and status in state.expected_echoes:
            del state.expected_echoes[: state.expected_echoes.index(status) + 1]
            return True
        state.expected_echoes.clear()
        return False


def _debounce_seconds(state: JobState, after_seconds: float) -> float:
    """The delay of a change. An urgent change is delayed only if another one was handled shortly before."""
    delay = after_seconds + state.pods * _DEBOUNCE_SECONDS_PER_POD
    if after_seconds != _URGENT_DEBOUNCE_SECONDS:
        return delay
    now = asyncio.get_running_loop().time()
    is_first = now - state.last_urgent_change > delay
    state.last_urgent_change = now
    return 0.0 if is_first else delay


def _has_become_ready(old: KubeObject | None, new: KubeObject) -> bool:
    return isinstance(old, Pod) and isinstance(new, Pod) and is_ready(new) and not is_ready(old)


def _has_new_failure(old: KubeObject | None, new: KubeObject) -> bool:
    """Whether a container has failed that the kubelet does not restart. The pod stays Running as long as another container runs."""
    return isinstance(new, Pod) and _failed_containers(new) > (_failed_containers(old) if isinstance(old, Pod) else 0)


def _failed_containers(pod: Pod) -> int:
    if pod.spec.restart_policy != "Never":
        return 0
    terminated = (container.state.terminated for container in pod.status.container_statuses)
    return sum(1 for each in terminated if each is not None and each.exit_code != 0)


def _is_same_metadata(old: ObjectMeta, new: ObjectMeta) -> bool:
    """Whether the metadata is equal except for the resource version."""
    return msgspec.structs.replace(old, resource_version=new.resource_version) == new


def _is_unmodified(child: KubeObject) -> bool:
    """Whether an object is unchanged since its creation."""
    if child.metadata.deletion_timestamp is not None:
        return False
    return not isinstance(child, Pod) or (child.status == _NEW_POD_STATUS and not child.spec.node_name)


def _is_relevant(old: KubeObject, new: KubeObject) -> bool:
    """Whether a change can affect the job. Most changes are in fields that the cache does not keep."""
    before, after = old.metadata, new.metadata
    if before.deletion_timestamp != after.deletion_timestamp or before.owner_references != after.owner_references:
        return True
    if isinstance(old, Pod) and isinstance(new, Pod):
        return old.status != new.status or old.spec.node_name != new.spec.node_name or before.labels != after.labels
    if isinstance(old, PodGroup) and isinstance(new, PodGroup):
        # The scheduler counts pods by phase in the status. The pods themselves show that already.
        return old.status.phase != new.status.phase or old.spec != new.spec
    if isinstance(old, Workload) and isinstance(new, Workload):
        return decision(old) != decision(new)
    # The status of an autoscaler changes every few seconds and is not in the cache.
    return not isinstance(new, PartialObject) or not _is_same_metadata(before, after)
