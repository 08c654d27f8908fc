"""A framework whose spec has no CRD schema."""

from __future__ import annotations

from dlop import JobType, ReplicaType, Schema
from dlop.api.spec_models import ApiModel
from tests.kinds_for_crds import Ranked


class EitherSpec(ApiModel):
    """A spec with a union type."""

    value: list[int] | dict[str, int]


class EitherJob(Ranked):
    """A job with the spec."""

    job_type = JobType("crds.dlop.dev", "v1", "EitherJob")
    replica_types = (ReplicaType("Worker"),)
    schema = Schema(model=EitherSpec)
