"""Spec model of an MPIJob, and its legacy field `cleanPodPolicy`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import pydantic

from dlop import CleanPodPolicy, JobSpec, ManifestField
from dlop.api.schema import rule
from dlop.api.spec_models import CleanPodPolicyValue, Count
from dlop.frameworks.kubeflow.schema import KubeflowSpec, spec_config, with_replica_specs

REPLICA_SPECS = "mpiReplicaSpecs"
_LAUNCHER = f"self.{REPLICA_SPECS}['Launcher']"
# The value becomes part of a script, so only container names are accepted.
_ContainerName = Annotated[str, pydantic.Field(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)]


class MPIJobModel(KubeflowSpec):
    """Specification of an MPIJob."""

    model_config = spec_config(
        rule(
            f"'Launcher' in self.{REPLICA_SPECS}", "must be present", field_path=f".{REPLICA_SPECS}.Launcher", reason="FieldValueRequired"
        ),
        rule(
            f"!('Launcher' in self.{REPLICA_SPECS}) || !has({_LAUNCHER}.replicas) || {_LAUNCHER}.replicas == 1",
            "must be 1",
            field_path=f".{REPLICA_SPECS}.Launcher.replicas",
            reason="FieldValueForbidden",
        ),
    )

    slots_per_worker: Count | None = None
    """Number of slots per worker in the host file. Defaults to 1."""
    clean_pod_policy: CleanPodPolicyValue | None = None
    """Deprecated: use runPolicy.cleanPodPolicy instead, which takes precedence."""
    main_container: _ContainerName | None = None
    """Container of a worker in which the launcher runs commands. Defaults to the first container."""


def with_legacy_clean_pod_policy(job_spec: JobSpec, spec: ManifestField) -> JobSpec:
    """Applies `spec.cleanPodPolicy` if the run policy has none."""
    legacy = spec.get("cleanPodPolicy").choice(CleanPodPolicy, job_spec.run_policy.clean_pod_policy)
    if not spec.get("runPolicy").get("cleanPodPolicy").is_absent:
        return job_spec
    return replace(job_spec, run_policy=replace(job_spec.run_policy, clean_pod_policy=legacy))


SPEC_MODEL = with_replica_specs(MPIJobModel, field=REPLICA_SPECS, names=("Launcher", "Worker"), container="")
