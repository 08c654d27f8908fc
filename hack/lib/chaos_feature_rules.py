"""Rules of a chaos test for start order, spot replicas, host network and code. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from chaos_history import FINAL_POD_PHASES, Entry, JobChange, PodChange
from chaos_scripts import JobScript

from dlop.api.code_sync import CodeSource
from dlop.api.record import Record
from dlop.api.spec import RestartScope
from dlop.api.types import StartAfter, StartCondition

STALE_SECONDS = 15.0
"""A pod may be created by what was true this long ago: the operator's watches do not continue before the API server is ready again."""

IN_FLIGHT_SECONDS = 5.0
"""The create of a pod may have been in flight when the status was written."""

Violations = Iterator[tuple[str, str]]
"""Rules and descriptions."""


@dataclass(slots=True)
class _Pod:
    last: PodChange
    reached: set[StartCondition] = field(default_factory=set)
    left_at: float | None = None
    """When the pod no longer satisfied these conditions; None if it does. A pod that has succeeded always does, in its attempt."""

    @property
    def is_live(self) -> bool:
        return not self.last.deleted and self.last.phase not in FINAL_POD_PHASES

    def update(self, change: PodChange) -> None:
        self.last = change
        if change.phase == "Succeeded":
            self.reached |= set(StartCondition)
            self.left_at = None
        elif change.deleted or change.phase == "Failed" or change.deletion_requested_at is not None:
            self.leave(change.seconds)
        elif change.phase == "Running":
            self.reached |= {StartCondition.RUNNING, StartCondition.READY} if change.ready else {StartCondition.RUNNING}

    def leave(self, seconds: float) -> None:
        if self.left_at is None and StartCondition.SUCCEEDED not in self.reached:
            self.left_at = seconds

    def satisfied(self, condition: StartCondition, *, since: float) -> bool:
        """Whether it has satisfied the condition at some time since then."""
        return condition in self.reached and (self.left_at is None or self.left_at >= since)


class FeatureRules:
    """Follows the history of a job in the order of revisions."""

    def __init__(self, script: JobScript) -> None:
        self._script = script
        self._features = script.draft.features
        self._shared_ports = {role.name for role in script.kind.replica_types if role.shares_port}
        self._pods: dict[str, _Pod] = {}
        self._record = Record()
        self._sizes: dict[str, set[int]] = {}
        self._fallbacks: dict[str, float] = {}
        """When the roles had too many disruptions of spot replicas."""

    def add(self, entry: Entry) -> Violations:
        match entry:
            case PodChange():
                if entry.created and self._features.names:
                    yield from self._check_new_pod(entry)
                self._pods.setdefault(entry.uid, _Pod(entry)).update(entry)
            case JobChange(deleted=False):
                self._add_job(entry)

    def _add_job(self, change: JobChange) -> None:
        self._record = change.record
        for role, size in change.replicas.items():
            self._sizes.setdefault(role, set()).add(size)
        for role, spot in self._features.spot.items():
            if spot.max_disruptions is not None and change.record.spot_disruptions.get(role, 0) >= spot.max_disruptions:
                self._fallbacks.setdefault(role, change.seconds)

    def _check_new_pod(self, new: PodChange) -> Violations:
        name = f"pod {new.name} ({new.uid[:8]}) of {new.replica[0]} {new.replica[1]}, attempt {new.attempt}"
        for after in self._features.start_order.get(new.replica[0], ()):
            yield from self._check_order(new, after, name)
        yield from self._check_spot(new, name)
        if self._features.host_network and self._script.kind.container_properties.port is not None:
            yield from self._check_ports(new, name)
        container = CodeSource(number=0, path="", source="", destination="").container_name
        if self._features.code_sync and container not in new.init_containers:
            yield "no code", f"{name} was created without the init container {container}"

    # --- start order -------------------------------------------------------------------------------------------------

    def _check_order(self, new: PodChange, after: StartAfter, name: str) -> Violations:
        """All replicas of the other role must have reached the condition. Those that a scaled role does not always have are not checked."""
        for index in range(min(self._sizes.get(after.role, {0}))):
            upstream = [pod for pod in self._pods.values() if pod.last.replica == (after.role, index)]
            if not any(
                self._is_current(pod.last, new) and pod.satisfied(after.condition, since=new.seconds - STALE_SECONDS) for pod in upstream
            ):
                yield "started too early", f"{name} was created, but {after.role} {index} was not {after.condition} in this attempt"

    def _is_current(self, upstream: PodChange, new: PodChange) -> bool:
        """Whether both pods belong to the same attempt of the job. In scope Role, roles have attempts of their own."""
        return self._script.scope is RestartScope.ROLE or upstream.attempt == new.attempt

    # --- spot replicas -----------------------------------------------------------------------------------------------

    def _check_spot(self, new: PodChange, name: str) -> Violations:
        role, index = new.replica
        spot, sizes = self._features.spot.get(role), self._sizes.get(role, {0})
        fallback_at = self._fallbacks.get(role)
        if new.spot and fallback_at is not None and new.seconds > fallback_at + IN_FLIGHT_SECONDS:
            yield "spot after the fallback", f"{name} was created as a spot pod {new.seconds - fallback_at:.1f} s after the fallback"
        is_spot_index = spot is not None and index >= min(sizes) - spot.replicas
        if new.spot and not is_spot_index:
            yield "wrong spot pod", f"{name} is a spot pod, but not of a spot replica"
        if not new.spot and is_spot_index and fallback_at is None and len(sizes) == 1:
            yield "wrong spot pod", f"{name} is on demand, but of a spot replica"

    # --- host network ------------------------------------------------------------------------------------------------

    def _check_ports(self, new: PodChange, name: str) -> Violations:
        if not new.host_ports:
            yield "no host port", f"{name} was created without a port of the host network"
        for pod in self._pods.values():
            other, common = pod.last, sorted(pod.last.host_ports & new.host_ports)
            is_shared = other.replica[0] == new.replica[0] and new.replica[0] in self._shared_ports
            if common and pod.is_live and other.replica != new.replica and not is_shared:
                yield "same host port", f"{name} was created with {common}, which live pod {other.name} ({other.uid[:8]}) has"
            has_run = StartCondition.RUNNING in pod.reached
            if self._is_same_run(other, new) and has_run and other.host_ports != new.host_ports:
                ports = f"{sorted(new.host_ports)} instead of {sorted(other.host_ports)}"
                yield "port changed", f"{name} was created with {ports}, and the job was not restarted"

    def _is_same_run(self, other: PodChange, new: PodChange) -> bool:
        """Whether a replica must keep its port. Scaling moves ports; only a job with running pods is then restarted."""
        is_scaled = any(len(sizes) > 1 for sizes in self._sizes.values())
        return other.replica == new.replica and other.attempt == new.attempt and not is_scaled


@dataclass(frozen=True, slots=True)
class PortConflict:
    job: str
    """The name of the job whose pod was created last."""
    other: str
    description: str


def find_port_conflicts(histories: Mapping[str, Collection[Entry]]) -> Iterator[PortConflict]:
    """New pods with a port of the host network that a live pod of another unfinished job has. The histories are by the name of the job.

    A job that has finished or was deleted has given its ports back, although its pods may still run.
    """
    changes = [(entry, job) for job, entries in histories.items() for entry in entries if isinstance(entry, PodChange | JobChange)]
    pods: dict[str, tuple[PodChange, str]] = {}
    """Live pods with their jobs, by uid."""
    ended: set[str] = set()
    for change, job in sorted(changes, key=lambda item: item[0].revision):
        if isinstance(change, JobChange):
            if change.deleted or change.is_finished:
                ended.add(job)
        elif change.deleted or change.phase in FINAL_POD_PHASES:
            pods.pop(change.uid, None)
        elif change.host_ports:
            if change.created and job not in ended:
                yield from _conflicts(change, job, ((pod, owner) for pod, owner in pods.values() if owner not in ended | {job}))
            pods[change.uid] = (change, job)


def _conflicts(new: PodChange, job: str, others: Iterable[tuple[PodChange, str]]) -> Iterator[PortConflict]:
    for pod, owner in others:
        common = sorted(pod.host_ports & new.host_ports)
        if common:
            text = f"pod {new.name} ({new.uid[:8]}) was created with {common}, which live pod {pod.name} of {owner} has"
            yield PortConflict(job, owner, text)
