"""The parsed spec of a job.

Every kind reads its own spec format into a `JobSpec`. The planner handles all kinds alike from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from dlop.api.code_sync import CodeSource
    from dlop.api.tensorboard import TensorBoard
    from dlop.api.types import StartAfter

_MAX_DESCRIBED = 50
_MAX_PROBLEM_LENGTH = 1000


class RestartPolicy(StrEnum):
    """What to do when a replica's program fails."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"
    """Exit codes 1 to 127 are permanent failures; 128 to 255 are retried."""


class RestartScope(StrEnum):
    """What is restarted when one replica has to be restarted."""

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
    """Options of gang scheduling and queues."""

    min_available: int | None = None
    """Number of pods that must be scheduled together; None means all pods."""
    min_resources: JsonObject = field(default_factory=dict)
    """Resources that these pods need in total; empty means the sum of their requests."""
    queue: str = ""
    priority_class: str = ""
    priority: int | None = None
    """Priority in a queue of Kueue; None means that of a priority class."""
    schedule_timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """How a job is run. A limit or deadline of None is disabled."""

    backoff_limit: int | None = None
    """Restarts after failures before the job fails, over all roles."""
    disruption_limit: int | None = None
    """Replacements after disruptions before the job fails, over all roles."""
    active_deadline_seconds: int | None = None
    start_deadline_seconds: int | None = None
    """Time for the pods of a started or resumed job to run."""
    ttl_seconds_after_finished: int | None = None
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    restart_scope: RestartScope = RestartScope.REPLICA
    suspend: bool = False
    managed_by: str | None = None
    """The controller that reconciles the job; None means dlop."""
    node_lost_seconds: int | None = 60
    """Time after the grace period until the deletion of a pod is overdue; None disables force deletion."""
    scheduling: SchedulingPolicy = SchedulingPolicy()
    autoscale: bool = False
    """Whether the autoscaler of the operator scales the roles that have a range, in kinds in which this is not the default."""
    host_network: bool = False
    """Whether the pods use the network of their nodes, with ports that the operator assigns."""
    code_sync: tuple[CodeSource, ...] = ()
    """Git repositories that are cloned into the pods before their programs start."""
    cron_policy: JsonObject | None = None
    """The schedule on which the job is created again: the spec of a Cron without its template. None means never."""
    tensorboard: TensorBoard | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticRange:
    """The range in which the autoscaler of the operator chooses the number of replicas of a role."""

    minimum: int
    maximum: int
    path: str
    """The field that sets the maximum, for messages."""

    def clamp(self, replicas: int) -> int:
        """The number of replicas in this range that is closest to `replicas`."""
        return max(self.minimum, min(replicas, self.maximum))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotReplicas:
    """The last replicas of a role, which run on cheaper nodes. See `dlop/api/spot_replicas.py`."""

    count: int
    priority_class: str = ""
    """The priority class of their pods; empty keeps that of the template."""
    labels: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[JsonObject, ...] = ()
    node_selector: dict[str, str] = field(default_factory=dict)
    max_disruptions: int | None = None
    """Disruptions in the role after which the replicas are created on demand; None means never."""
    path: str
    """The field that sets them, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """One role of a job."""

    name: str
    """In the spelling of the kind's `ReplicaType`."""
    replicas: int
    """For an elastic role the current number, and the initial number until the autoscaler has changed it."""
    elastic: ElasticRange | None = None
    """None if the number of replicas changes only with the spec."""
    template: JsonObject = field(default_factory=dict)
    """The pod template from the manifest, unchanged."""
    restart_policy: RestartPolicy = RestartPolicy.ON_FAILURE
    start_after: tuple[StartAfter, ...] = ()
    """What the pods of this role wait for before they are created."""
    order_path: str = ""
    """The field that sets `start_after`, for messages; empty if it is the default of the kind."""
    spot: SpotReplicas | None = None
    """None if the role has no spot replicas."""
    container: str = ""
    """The container whose exit ends the replica; the first container if this is empty or does not exist."""
    port: int | None = None
    """The port from the manifest; None means the port of the kind's container properties."""

    @property
    def minimum(self) -> int:
        """The number of replicas that the job needs: all, or the minimum of an elastic role."""
        return self.replicas if self.elastic is None else min(self.replicas, self.elastic.minimum)

    def is_optional(self, index: int) -> bool:
        """Whether the job can run without this replica."""
        return index >= self.minimum


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The parsed spec of a job. Roles are in the order of the kind's replica types."""

    roles: tuple[RoleSpec, ...]
    run_policy: RunPolicy = RunPolicy()
    host_ports: int = 0
    """Number of consecutive ports of the host network that the operator assigns to the job; 0 for none."""

    def role(self, name: str) -> RoleSpec | None:
        """The role of this name; None if the job does not have it."""
        return next((role for role in self.roles if role.name == name), None)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with one field of a spec."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class SpecError(Exception):
    """The spec is invalid. Retrying does not help until the user changes it."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__(describe_problems(problems))


def describe_problems(problems: Sequence[Problem]) -> str:
    """The first problems in one line. With all of them, a status could be too large to be stored."""
    more = len(problems) - _MAX_DESCRIBED
    texts = (str(problem)[:_MAX_PROBLEM_LENGTH] for problem in problems[:_MAX_DESCRIBED])
    return "; ".join([*texts, *([f"and {more} more problems"] if more > 0 else [])])
