"""TFJob of kubeflow.org/v1: TensorFlow with optional chief, parameter servers, workers and evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from dlop import JobType, Progress, Replica, ReplicaState, ReplicaType, RestartPolicy, RoleProgress, RoleSpec, cached_property, rule
from dlop.frameworks.kubeflow.base import KubeflowContainer, KubeflowJob, KubeflowLifecycle, KubeflowNaming, KubeflowStatus
from dlop.frameworks.kubeflow.schema import KubeflowSchema, KubeflowSpec, spec_config

_UNFINISHED = tuple(state for state in ReplicaState if state not in (ReplicaState.FAILED, ReplicaState.SUCCEEDED))


class TFJobModel(KubeflowSpec):
    """Specification of a TFJob."""

    model_config = spec_config(
        rule(
            "!self.tfReplicaSpecs.exists(a, a.lowerAscii() == 'chief') || !self.tfReplicaSpecs.exists(b, b.lowerAscii() == 'master')",
            "must have at most one of Chief and Master",
            field_path=".tfReplicaSpecs",
            reason="FieldValueForbidden",
        )
    )

    success_policy: Literal["", "AllWorkers"] | None = None
    """Success of a job without a chief: worker 0 has succeeded (empty, the default) or all workers have (AllWorkers)."""
    enable_dynamic_worker: bool | None = None
    """Allows scaling of workers while the job runs. The TF_CONFIG of a worker then has only its own address and the parameter servers."""


@dataclass(frozen=True, kw_only=True)
class TFNaming(KubeflowNaming):
    """Host names contain the namespace, and the cluster domain if one is configured."""

    def host(self, job: KubeflowJob, role: RoleSpec, index: int) -> str:
        domain = job.options.cluster_domain
        return f"{super().host(job, role, index)}.{job.metadata.namespace}.svc{f'.{domain}' if domain else ''}"

    def is_master(self, job: KubeflowJob, role: RoleSpec, index: int) -> bool:
        """The chief, or worker 0 if the job has no chief."""
        return role.name == job.leader and (role.name != "Worker" or index == 0)


class TFLifecycle(KubeflowLifecycle["TFJob"]):
    """The chief decides; without a chief, worker 0 or all workers (`successPolicy`)."""

    def has_elastic_workers(self, job: TFJob) -> bool:
        return job.has_dynamic_workers

    def has_succeeded(self, job: TFJob, progress: Progress) -> bool:
        first = progress.replica("Worker", 0)
        if job.leader == "Worker" and job.spec_field.get("successPolicy").string() != "AllWorkers" and first is not None:
            return first.state is ReplicaState.SUCCEEDED or super().has_succeeded(job, progress)
        return super().has_succeeded(job, progress)

    def has_failed(self, job: TFJob, role: RoleProgress) -> bool:
        """Failed dynamic workers are tolerated if the job has a chief, and otherwise as long as one worker is active."""
        if job.has_dynamic_workers and role.spec.name == "Worker":
            return job.leader == "Worker" and role.count(ReplicaState.FAILED) > 0 and not role.count(*_UNFINISHED)
        return super().has_failed(job, role)


class TFJob(KubeflowJob):
    """A TensorFlow job. It succeeds with its chief; without a chief, with worker 0 or all workers (`successPolicy`)."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="TFJob")
    replica_types = (
        ReplicaType("PS", restart_policy=RestartPolicy.NEVER),
        ReplicaType("Chief", restart_policy=RestartPolicy.NEVER),
        ReplicaType("Master", restart_policy=RestartPolicy.NEVER),
        ReplicaType("Worker", restart_policy=RestartPolicy.NEVER),
        ReplicaType("Evaluator", restart_policy=RestartPolicy.NEVER),
    )
    container_properties = KubeflowContainer(name="tensorflow", port=2222, port_name="tfjob-port", sets_env_in_all_containers=False)
    schema = KubeflowSchema(field="tfReplicaSpecs", model=TFJobModel, any_case=True)
    naming = TFNaming()
    lifecycle = TFLifecycle("Chief", "Master", "Worker")
    status = KubeflowStatus(
        metric_label="tensorflow",
        uses_qualified_name=True,
        failure_message="{kind} {namespace}/{name} has failed because {count} {role} replica(s) failed.",
    )

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """`TF_CONFIG`, unless the job has a single replica."""
        if self.total_replicas == 1:
            return {}
        task = {"type": replica.role.lower(), "index": replica.index}
        if self.has_dynamic_workers:
            config: dict[str, Any] = {"cluster": self._sparse_cluster(replica), "task": task}
        else:
            config = {"cluster": self._cluster, "task": task, "environment": "cloud"}
        return {"TF_CONFIG": msgspec.json.encode(config).decode()}

    @cached_property
    def _cluster(self) -> msgspec.Raw:
        """The addresses of all replicas, encoded once."""
        cluster = {role.name.lower(): self.addresses(role.name) for role in self.spec.roles}
        return msgspec.Raw(msgspec.json.encode(dict(sorted(cluster.items()))))

    @cached_property
    def has_dynamic_workers(self) -> bool:
        """Whether workers can be scaled while the job runs."""
        return self.spec_field.get("enableDynamicWorker").boolean()

    def _sparse_cluster(self, replica: Replica) -> dict[str, Any]:
        """The cluster of `TF_CONFIG` for dynamic workers: the addresses that one replica needs."""
        servers = self.addresses("PS")
        if replica.role == "PS":
            return {"worker": {}, "ps": [servers[replica.index]]}
        if replica.role == "Worker":
            address = self.addresses("Worker")[replica.index]
            return {"worker": {str(replica.index): address}, "ps": servers if self.spec.role("PS") is not None else None}
        return {"worker": {}, "ps": []}
