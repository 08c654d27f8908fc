"""Pydantic models of the parts that most specs have in common.

`dlop.api.crd` generates the CRD schemas from them, so that the API server rejects most invalid specs. The operator itself
parses the common parts with `dlop.api.parsing`, which is faster and also handles objects that an older or foreign CRD
admitted. Fields with a default of the kind are optional, and defaults are not written into the user's spec.

Pod templates are described only partially and unknown fields are preserved. This keeps the CRDs small, and fields of newer
Kubernetes versions reach the pods.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from dlop.api.code_sync import MAX_REPOSITORIES
from dlop.api.schedule import MAX_LENGTH
from dlop.api.spec import Problem, RestartScope
from dlop.api.structural_schema import rule, with_rules
from dlop.api.tensorboard import MAX_HOST_LENGTH, PATH_PREFIX_PATTERN

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A number of objects or seconds, int32."""
Int64Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Replicas = Annotated[int, Field(ge=0, le=10_000)]
"""The number of pods of a role. The limit protects the cluster if a user mistypes the number."""
Port = Annotated[int, Field(ge=1, le=65_535)]
NonEmptyString = Annotated[str, Field(min_length=1)]
RestartPolicyValue = Literal["", "Always", "OnFailure", "Never", "ExitCode"]
StartConditionValue = Literal["Running", "Ready", "Succeeded"]
CleanPodPolicyValue = Literal["", "All", "Running", "None"]
"""Generated clients write an empty string for an unset value."""


class ApiModel(BaseModel):
    """A part of a custom resource. Fields are camelCase in JSON, and `kubectl explain` shows the docstrings.

    The API server rejects or drops unknown fields, as for built-in kinds.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
        # Building a validator takes milliseconds, and most commands need only a few.
        defer_build=True,
    )


class OpenModel(ApiModel):
    """A part of a custom resource that is described only partially. Unknown fields are preserved."""

    model_config = ConfigDict(extra="allow")


class SchedulingPolicyModel(ApiModel):
    """Options of gang scheduling and queues."""

    min_available: Count | None = None
    """Number of pods that must be scheduled together. Defaults to all pods."""
    queue: (
        Annotated[str, Field(json_schema_extra=with_rules(rule("self == oldSelf", "spec.runPolicy.schedulingPolicy.queue is immutable")))]
        | None
    ) = None
    """The queue of the scheduler or of Kueue. Immutable."""
    min_resources: dict[str, int | str] | None = None
    """Resources that these pods need in total. Defaults to the sum of their requests."""
    priority_class: str | None = None
    """The priority class of the PodGroup, or in a queue of Kueue."""
    schedule_timeout_seconds: Count | None = None
    """Seconds that the scheduler may take to place the whole group."""


class EnvironmentVariableModel(OpenModel):
    """An environment variable, with all fields of a Kubernetes environment variable."""

    name: NonEmptyString


class CodeSourceModel(ApiModel):
    """A git repository that is cloned into the pods of a job before their programs start."""

    source: NonEmptyString
    """The address of the repository: a URL, or host:path for SSH."""
    branch: str | None = None
    """The branch. Defaults to that of the image: the default branch of the repository, or master with git-sync before version 4."""
    revision: str | None = None
    """The tag or commit that is checked out. Defaults to the end of the branch."""
    depth: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """The number of commits that are cloned. Unset or 0 clones the whole history."""
    dest_path: str | None = None
    """The directory of the code, relative to the working directory of each container. Defaults to the name of the repository."""
    root_path: str | None = None
    """The directory in which the init container works. Defaults to /code."""
    image: str | None = None
    """The image of git-sync. Defaults to the flag --git-sync-image of the operator."""
    secret_name: Annotated[str, Field(max_length=253)] | None = None
    """A Secret with username and password, or for SSH with ssh, the private key, and known_hosts."""
    envs: list[EnvironmentVariableModel] | None = None
    """Further environment variables of the init container."""
    max_failures: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of failures after which the init container gives up. Defaults to 3."""


class CronPolicyModel(ApiModel):
    """A schedule on which jobs are created."""

    schedule: Annotated[str, Field(min_length=1, max_length=MAX_LENGTH)]
    """A cron line with five fields, a shorthand such as @daily, or @every and a duration."""
    time_zone: NonEmptyString | None = None
    """The time zone of the schedule, such as Europe/Paris. Defaults to UTC."""
    concurrency_policy: Literal["", "Allow", "Forbid", "Replace"] | None = None
    """What to do when a job is due while an earlier one has not finished. Defaults to Allow."""
    suspend: bool | None = None
    """Whether no jobs are created. Jobs that exist are not affected."""
    deadline: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """The time from which on no job is created."""
    starting_deadline_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Seconds after its scheduled time within which a job must be created. Unset means no limit."""
    history_limit: Count | None = None
    """Number of jobs in the history of the status. Jobs are not deleted. Defaults to 100, which is also the maximum."""


class TensorBoardIngressModel(ApiModel):
    """The Ingress of a TensorBoard."""

    host: Annotated[str, Field(min_length=1, max_length=MAX_HOST_LENGTH)]
    """The host name, in lower case."""
    path_prefix: Annotated[str, Field(pattern=PATH_PREFIX_PATTERN)] | None = None
    """The first part of the path; namespace and name of the job follow. Defaults to /."""
    class_name: str | None = None
    """The ingress class. Unset leaves it to the cluster."""
    annotations: dict[str, str] | None = None


class TensorBoardModel(ApiModel):
    """A TensorBoard for the log directory of a job."""

    log_dir: NonEmptyString
    """The directory or URL in which the job writes its event files, as the pods of the job see it."""
    image: str | None = None
    """An image with Python and the package tensorboard. Defaults to the image of the job."""
    ttl_seconds_after_job_finished: Count | None = None
    """Seconds that the TensorBoard is kept after the end of the job. Defaults to 3600."""
    ingress: TensorBoardIngressModel | None = None
    """An Ingress for browsers outside the cluster. Unset means none."""


class RunPolicyModel(ApiModel):
    """How a job is run."""

    backoff_limit: Count | None = None
    """Number of restarts after failures, over all roles, before the job fails. Unset means no limit."""
    disruption_limit: Count | None = None
    """Number of replacements after disruptions (evictions, lost nodes) before the job fails. Unset means no limit."""
    active_deadline_seconds: Int64Count | None = None
    """Seconds that the job may run, counted from its start or its last resumption."""
    start_deadline_seconds: Count | None = None
    """Seconds within which each pod of the job must start. A replacement pod gets the full time again."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds that a finished job is kept. Unset keeps it."""
    clean_pod_policy: CleanPodPolicyValue | None = None
    """Which pods of a finished job are deleted."""
    restart_scope: RestartScope | None = None
    """What is restarted when one replica has to be restarted: the replica, its role, or the whole job."""
    suspend: bool = False
    """Whether the job is suspended. A suspended job has no pods."""
    managed_by: Annotated[str, Field(max_length=63)] | None = None
    """The controller that reconciles the job. Defaults to dlop."""
    scheduling_policy: SchedulingPolicyModel | None = None
    """Options of gang scheduling and queues."""
    autoscale: bool = False
    """Whether the operator scales the elastic role between its minimum and maximum, with the idle capacity of the cluster."""
    host_network: bool = False
    """Whether the pods use the network of their nodes, with ports that the operator assigns."""
    code_sync: Annotated[list[CodeSourceModel], Field(max_length=MAX_REPOSITORIES)] | None = None
    """Git repositories that are cloned into the pods before their programs start."""
    cron_policy: CronPolicyModel | None = None
    """The schedule on which the job is created again, by a Cron with the name of the job."""
    tensor_board: TensorBoardModel | None = None
    """A TensorBoard for the log directory of the job."""


class ContainerModel(OpenModel):
    """A container, with all fields of a Kubernetes container."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    image: NonEmptyString


class PodSpecModel(OpenModel):
    """A pod spec, with all fields of a Kubernetes pod spec."""

    containers: Annotated[list[ContainerModel], Field(min_length=1)]


class TemplateMetadataModel(OpenModel):
    """Labels and annotations of the pods."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(OpenModel):
    """The pod template of a role."""

    metadata: TemplateMetadataModel | None = None
    spec: PodSpecModel


class RestartedPodSpecModel(PodSpecModel):
    """A pod spec whose restart policy is the restart policy of the role."""

    restart_policy: RestartPolicyValue | None = None
    """What to do when a pod of the role fails. With ExitCode, codes 1 to 127 are permanent failures, and 128 to 255 are retried."""


class RestartedPodTemplate(PodTemplate):
    """The pod template of a role, for kinds whose roles take their restart policy from the template."""

    spec: RestartedPodSpecModel


class DependencyModel(ApiModel):
    """A role that must reach a condition before the pods of another role are created."""

    role: NonEmptyString
    """The name of the other role. Names of roles are case-insensitive."""
    condition: StartConditionValue | None = None
    """The condition that all its replicas must reach. Defaults to Running."""


class TolerationModel(OpenModel):
    """A toleration of a taint, as in a pod spec."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class SpotReplicasModel(ApiModel):
    """The last replicas of a role, which run on cheaper nodes that may be taken back at any time."""

    replicas: Replicas
    """The number of spot replicas. They are the replicas with the highest indexes."""
    priority_class_name: str | None = None
    """The priority class of their pods. Defaults to that of the template."""
    labels: dict[str, str] | None = None
    """Labels of their pods, in addition to those of the template."""
    tolerations: Annotated[list[TolerationModel], Field(max_length=64)] | None = None
    """Tolerations of their pods, in addition to those of the template."""
    node_selector: dict[str, str] | None = None
    """Labels of the nodes for their pods, in addition to those of the template."""
    max_disruptions: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Number of their disruptions after which they are created on demand, without these options. Unset means never."""


class ReplicaModel(ApiModel):
    """One role of a job."""

    replicas: Replicas | None = None
    """The number of pods of the role. The default depends on the kind."""
    restart_policy: RestartPolicyValue | None = None
    """What to do when a pod of the role fails. With ExitCode, codes 1 to 127 are permanent failures, and 128 to 255 are retried."""
    depends_on: Annotated[list[DependencyModel], Field(max_length=16)] | None = None
    """The roles that must run before the pods of the role are created. Replaces the default of the kind; an empty list means none."""
    spot_replicas: SpotReplicasModel | None = None
    """The last replicas of the role, which run on cheaper nodes."""
    template: PodTemplate
    """The pod template of the role."""


def problems_from(error: ValidationError, *, under: str = "spec") -> tuple[Problem, ...]:
    """The errors of a validation with paths from the root of the object. `under` is the path of the validated value."""
    return tuple(Problem(_path(under, details["loc"]), _message(details)) for details in error.errors(include_url=False))


def _path(under: str, location: tuple[int | str, ...]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return under + "".join(steps)


def _message(details: ErrorDetails) -> str:
    message, value = details["msg"], details["input"]
    if details["type"] == "string_type" and isinstance(value, bool | int | float):
        return f"must be a string; write '{json.dumps(value)}'"
    return "is missing" if message == "Field required" else message[:1].lower() + message[1:]
