"""What can be run, and may not do what its author had in mind. It is told once for each edit of the spec; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlop.api.constants import Reason
from dlop.api.gang import Gang, other_schedulers
from dlop.api.spec import RoleSpec

if TYPE_CHECKING:
    from dlop.job import DLJob

_MIN_AVAILABLE = "spec.runPolicy.schedulingPolicy.minAvailable"


@dataclass(frozen=True, slots=True)
class SpecWarning:
    """One remark on one field."""

    reason: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def remarks_on(job: DLJob) -> Iterator[SpecWarning]:
    """All that there is to say about the spec of a job.

    Raises:
        SpecError: the spec cannot be run at all.
    """
    for role in job.spec.roles:
        yield from _on_restart_policy(job, role)
    if job.gang is not None:
        yield from _on_other_schedulers(job, job.gang)
        yield from _on_min_available(job)


def _on_restart_policy(job: DLJob, role: RoleSpec) -> Iterator[SpecWarning]:
    given, made = (role.template.get("spec") or {}).get("restartPolicy"), str(job.pod_restart_policy(role, 0))
    if given and given not in (made, role.restart_policy):
        message = f"{given} has no effect: the restartPolicy of the role is what counts, by which pods get {made}"
        yield SpecWarning(Reason.SET_RESTART_POLICY, f"{_template(job, role.name)}.spec.restartPolicy", message)


def _on_other_schedulers(job: DLJob, gang: Gang) -> Iterator[SpecWarning]:
    for role, named in other_schedulers(gang, job.spec):
        message = f"{named} stays, and {gang.scheduler} does not place these pods: leave it out if it is to"
        yield SpecWarning(Reason.SCHEDULER_MISMATCH, f"{_template(job, role)}.spec.schedulerName", message)


def _on_min_available(job: DLJob) -> Iterator[SpecWarning]:
    asked, pods = job.spec.run_policy.scheduling.min_available, sum(role.replicas for role in job.spec.roles)
    if asked is not None and asked > pods > 0:
        message = f"is {asked}, and the job has {pods} pods: so many can never be placed together; write at most {pods}, or leave it out"
        yield SpecWarning(Reason.MIN_AVAILABLE_TOO_HIGH, _MIN_AVAILABLE, message)


def _template(job: DLJob, role: str) -> str:
    """Where the pod template of a role stands: beside the number of its replicas."""
    place = (job.replicas_path(role) or ())[:-1]
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place) + ".template"
