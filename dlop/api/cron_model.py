"""The model of the spec of a Cron, from which its CRD is generated. The operator reads specs with `dlop.api.cron`."""

from __future__ import annotations

from dlop.api.spec_models import ApiModel, CronPolicyModel, NonEmptyString, OpenModel


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


class CronModel(CronPolicyModel):
    """Specification of a Cron."""

    template: CronTemplateModel
    """The job that is created."""
