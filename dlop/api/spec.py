"""What a job asks for, whatever dialect its manifest speaks.

Every kind reads its own spec into a `JobSpec`; from there on, all kinds are the same to the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dlop.kube.types import JsonObject


class RestartPolicy(StrEnum):
    """What to do when a replica's process ends with an error."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"
    """Exit codes 1 to 127 are final, 128 to 255 are worth another try."""


class RestartScope(StrEnum):
    """What is restarted when one replica has to be."""

    REPLICA = "Replica"
    ROLE = "Role"
    JOB = "Job"


class CleanPodPolicy(StrEnum):
    """Which pods of a finished job are deleted."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    """What a scheduler that places all pods of a job together is told about it."""

    min_available: int | None = None
    """How many pods must be placed at once; None: all."""
    min_resources: JsonObject = field(default_factory=dict)
    """What those need together; empty: what their templates ask for."""
    queue: str = ""
    priority_class: str = ""
    schedule_timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """How a job is run, apart from what it runs. A limit of None means that there is none."""

    backoff_limit: int | None = None
    """How many restarts after failures there may be in all."""
    disruption_limit: int | None = None
    """How many replacements after disruptions there may be in all."""
    active_deadline_seconds: int | None = None
    start_deadline_seconds: int | None = None
    """How long a started or resumed job may have pods that do not run."""
    ttl_seconds_after_finished: int | None = None
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    restart_scope: RestartScope = RestartScope.REPLICA
    suspend: bool = False
    managed_by: str | None = None
    """Who reconciles the job; None or dlop's own name mean dlop."""
    node_lost_seconds: int | None = 60
    """How long after its grace period a pod may be on its way out before it is removed by force; None: for ever."""
    scheduling: SchedulingPolicy = SchedulingPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """One role of a job: how many replicas, and what each runs."""

    name: str
    """As the kind's `ReplicaType` spells it."""
    replicas: int
    template: JsonObject = field(default_factory=dict)
    """The pod template, as the user wrote it."""
    restart_policy: RestartPolicy = RestartPolicy.ON_FAILURE
    container: str = ""
    """The container whose end is the end of the replica; empty, or no such container: the first."""
    port: int | None = None
    """Where the manifest gives one; else the port of the kind's container properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What a job asks for. Roles come in the order of the kind's replica types."""

    roles: tuple[RoleSpec, ...]
    run_policy: RunPolicy = RunPolicy()

    def role(self, name: str) -> RoleSpec | None:
        """The role of that name, if the job has it."""
        return next((role for role in self.roles if role.name == name), None)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a spec: the field, and what to write instead."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class SpecError(Exception):
    """The spec cannot be run. Only the user can mend it."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))
