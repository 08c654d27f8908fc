"""Spec model of an MPIJob, and its legacy field `cleanPodPolicy`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlop import CleanPodPolicy, CleanPodPolicyValue, Count, DLJob, JobSpec, ManifestField
from dlop.frameworks.kubeflow.schema import KubeflowSchema, KubeflowSpec
from dlop.policies.mpi import MainContainer


class MPIJobModel(KubeflowSpec):
    """Specification of an MPIJob."""

    slots_per_worker: Count | None = None
    """Number of slots per worker in the host file. Defaults to 1."""
    clean_pod_policy: CleanPodPolicyValue | None = None
    """Deprecated: use runPolicy.cleanPodPolicy instead, which takes precedence."""
    main_container: MainContainer | None = None
    """Container of a worker in which the launcher runs commands. Defaults to the first container."""


@dataclass(frozen=True, kw_only=True)
class MPIJobSchema(KubeflowSchema):
    """Also reads the legacy field `spec.cleanPodPolicy`, which applies if the run policy has none."""

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        job_spec = super().read(spec, kind)
        legacy = spec.get("cleanPodPolicy").choice(CleanPodPolicy, job_spec.run_policy.clean_pod_policy)
        if not spec.get("runPolicy").get("cleanPodPolicy").is_absent:
            return job_spec
        return replace(job_spec, run_policy=replace(job_spec.run_policy, clean_pod_policy=legacy))
