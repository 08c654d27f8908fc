"""Kinds that cover all features of CRD generation, for tests on both API servers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, RootModel

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType
from dlop.api.schema import DEFAULT_COLUMNS, Column, Schema
from dlop.api.spec_models import ApiModel, OpenModel, PodTemplate, Replicas
from dlop.api.structural_schema import rule, with_rules


class Ranked(DLJob, ABC):
    """Common base class."""

    container_properties = ContainerProperties("main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"RANK": str(replica.index)}


class Plain(Ranked):
    """A job with required declarations only."""

    job_type = JobType("crds.dlop.dev", "v1", "RingJob", short_names=("ring",), categories=("training",))
    replica_types = (ReplicaType("Worker"),)


class TwoVersions(Ranked):
    """A job that is served in two versions."""

    job_type = JobType("crds.dlop.dev", "v1", "TwinJob", served_versions=("v1alpha1",))
    replica_types = (ReplicaType("Worker"),)


class WithRules(Ranked):
    """A job whose roles have limits on their replicas."""

    job_type = JobType("crds.dlop.dev", "v1", "ChiefJob")
    replica_types = (
        ReplicaType("Chief", minimum=1, maximum=1, required=True),
        ReplicaType("Worker", minimum=2, default_replicas=2),
        ReplicaType("Evaluator", maximum=3),
    )


class Entry(OpenModel):
    """One role."""

    role: Literal["LEADER", "FOLLOWER"] = "LEADER"
    replicas: Replicas = 1
    template: PodTemplate


class ListInsideSpec(ApiModel):
    """Specification of a job."""

    model_config = ConfigDict(
        json_schema_extra=with_rules(
            rule(
                "self.entries.filter(entry, !has(entry.role) || entry.role == 'LEADER').size() == 1",
                "there must be exactly one LEADER",
                field_path=".entries",
            )
        )
    )

    entries: Annotated[list[Entry], Field(min_length=1, max_length=16)]


class ListInside(Ranked):
    """A job whose roles are a list."""

    job_type = JobType("crds.dlop.dev", "v1alpha1", "EntriesJob")
    replica_types = (ReplicaType("LEADER"), ReplicaType("FOLLOWER"))
    schema = Schema(model=ListInsideSpec, columns=(Column("Phase", ".status.phase", description="Phase of the job"), *DEFAULT_COLUMNS))


class BareList(RootModel[Annotated[list[Entry], Field(min_length=1, max_length=16)]]):
    """Specification of a job: a list of roles."""


class ListAsSpec(Ranked):
    """A job whose spec is a list."""

    job_type = JobType("crds.dlop.dev", "v1", "BareListJob")
    replica_types = (ReplicaType("LEADER"), ReplicaType("FOLLOWER"))
    schema = Schema(model=BareList)


class Anything(Plain):
    """A job with any spec."""

    job_type = JobType("crds.dlop.dev", "v1", "AnyJob")
    schema = Schema(model=RootModel[Any])


class Newer(Plain):
    """A second version of `Plain`."""

    job_type = JobType("crds.dlop.dev", "v2alpha1", "RingJob", short_names=("ring",), categories=("training",))


KINDS: tuple[type[DLJob], ...] = (Plain, WithRules, ListInside, ListAsSpec, Anything, Newer)
