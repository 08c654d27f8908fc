"""The parts that the specs of most kinds have in common, as pydantic models.

`dlop.api.crd` makes the schemas of CRDs of them, so that the API server refuses what the operator would have to refuse.
The operator reads the common parts without them (`dlop.api.parsing`), as fast as it can: a definition may be older than the
operator, or somebody else's. Fields are optional where a kind has a default: nothing is written into the user's spec.

Pod templates are described in part only. The rest is kept as the user wrote it, so a CRD stays small and a field that is
newer than dlop reaches the pods.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from dlop.api.schema import rule, with_rules
from dlop.api.spec import Problem, RestartScope

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""How many of something, or how many seconds."""
LongCount = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
"""The same where there was always room for more."""
Replicas = Annotated[int, Field(ge=0, le=10_000)]
"""How many pods a role has. A slip of the finger must not fill the cluster."""
Port = Annotated[int, Field(ge=1, le=65_535)]
Text = Annotated[str, Field(min_length=1)]
RestartWord = Literal["", "Always", "OnFailure", "Never", "ExitCode"]
CleaningWord = Literal["", "All", "Running", "None"]
"""Programs write an empty word where they mean none."""


class ApiModel(BaseModel):
    """A part of a custom resource: camelCase outside, docstrings that `kubectl explain` shows.

    Fields that the model does not name are refused or dropped by the API server, as with built-in kinds.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
        # Building a validator takes milliseconds, and most commands need few of them.
        defer_build=True,
    )


class OpenModel(ApiModel):
    """A part that is described in part only: fields that the model does not name are kept as they are."""

    model_config = ConfigDict(extra="allow")


class SchedulingPolicyModel(ApiModel):
    """What a gang scheduler is told about the job."""

    min_available: Count | None = None
    """How many pods must be placed together. All of them, when left out."""
    queue: (
        Annotated[str, Field(json_schema_extra=with_rules(rule("self == oldSelf", "spec.runPolicy.schedulingPolicy.queue is immutable")))]
        | None
    ) = None
    """The queue of the scheduler. It cannot be changed."""
    min_resources: dict[str, int | str] | None = None
    """What those pods need together. Counted up from the templates when left out."""
    priority_class: str | None = None
    """The priority class of the whole."""
    schedule_timeout_seconds: Count | None = None
    """How long the scheduler may try to place all of it."""


class RunPolicyModel(ApiModel):
    """How a job is run, apart from what it runs."""

    backoff_limit: Count | None = None
    """How many restarts after failures there may be in all, over all roles. No limit when left out."""
    disruption_limit: Count | None = None
    """How many replacements after disruptions (evictions, lost nodes) there may be in all. No limit when left out."""
    active_deadline_seconds: LongCount | None = None
    """How long the job may run, from its start or its last resumption."""
    start_deadline_seconds: Count | None = None
    """How long the job may have pods that do not run yet."""
    ttl_seconds_after_finished: Count | None = None
    """How long a finished job is kept. For ever when left out."""
    clean_pod_policy: CleaningWord | None = None
    """Which pods of a finished job are deleted."""
    restart_scope: RestartScope | None = None
    """What is restarted when one replica has to be: only that replica, its role, or the whole job."""
    suspend: bool = False
    """Whether the job is to have no pods for now."""
    managed_by: Annotated[str, Field(max_length=63)] | None = None
    """Who runs the job. dlop, when left out."""
    scheduling_policy: SchedulingPolicyModel | None = None
    """What a gang scheduler is told about the job."""


class ContainerModel(OpenModel):
    """A container of a pod; whatever Kubernetes knows may stand here."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    image: Text


class PodSpecModel(OpenModel):
    """What a pod runs; whatever Kubernetes knows may stand here."""

    containers: Annotated[list[ContainerModel], Field(min_length=1)]


class TemplateMetadataModel(OpenModel):
    """Labels and annotations for the pods."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(OpenModel):
    """The pod that each replica of a role is made of."""

    metadata: TemplateMetadataModel | None = None
    spec: PodSpecModel


class RestartedPodSpecModel(PodSpecModel):
    """What a pod runs. Its restart policy is that of the role."""

    restart_policy: RestartWord | None = None
    """What to do when a pod of the role fails. ExitCode: codes 1 to 127 are final, 128 to 255 are worth another try."""


class RestartedPodTemplate(PodTemplate):
    """The pod that each replica of a role is made of, for kinds whose roles have no restart policy besides the template's."""

    spec: RestartedPodSpecModel


class ReplicaModel(ApiModel):
    """One role of a job: how many replicas, and what each runs."""

    replicas: Replicas | None = None
    """How many pods the role has. The kind has a default."""
    restart_policy: RestartWord | None = None
    """What to do when a pod of the role fails. ExitCode: codes 1 to 127 are final, 128 to 255 are worth another try."""
    template: PodTemplate
    """The pod that each replica is made of."""


def problems_of(error: ValidationError, *, under: str = "spec") -> tuple[Problem, ...]:
    """What a model found wrong, field by field, as a path from the object's top."""
    return tuple(Problem(_path(under, found["loc"]), _sentence(found)) for found in error.errors(include_url=False))


def _path(under: str, location: tuple[int | str, ...]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return under + "".join(steps)


def _sentence(found: ErrorDetails) -> str:
    message, given = found["msg"], found["input"]
    if found["type"] == "string_type" and isinstance(given, bool | int | float):
        return f"must be a text: write it in quotes, '{json.dumps(given)}'"
    return "is missing" if message == "Field required" else message[:1].lower() + message[1:]
