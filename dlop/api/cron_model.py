"""The model of the spec of a Cron, from which its CRD is generated. The operator reads specs with `dlop.api.cron`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dlop.api.schedule import MAX_LENGTH
from dlop.api.spec_models import ApiModel, Count, NonEmptyString, OpenModel


class WorkloadModel(OpenModel):
    """The job, with all fields of its kind."""


class CronTemplateModel(ApiModel):
    """The job that is created."""

    api_version: NonEmptyString
    """The API version of the job."""
    kind: NonEmptyString
    """The kind of the job."""
    workload: WorkloadModel
    """The job: its spec, and labels and annotations in metadata."""


class CronPolicyModel(ApiModel):
    """When jobs are created."""

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


class CronModel(CronPolicyModel):
    """Specification of a Cron."""

    template: CronTemplateModel
    """The job that is created."""
