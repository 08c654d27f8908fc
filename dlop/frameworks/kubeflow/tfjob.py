"""TFJob of kubeflow.org/v1: TensorFlow with optional chief, parameter servers, workers and evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dlop import (
    ContainerProperties,
    JobType,
    ManifestField,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    RoleProgress,
    RoleSpec,
)
from dlop.api.schema import rule
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.schema import KubeflowSpec, spec_config, with_replica_specs

_ROLES = ("PS", "Chief", "Master", "Worker", "Evaluator")


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


class TFJob(KubeflowJob):
    """A TensorFlow job. It succeeds with its chief; without a chief, with worker 0 or all workers (`successPolicy`)."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="TFJob")
    replica_types = tuple(ReplicaType(name, restart_policy=RestartPolicy.NEVER) for name in _ROLES)
    container_properties = ContainerProperties(name="tensorflow", port=2222, port_name="tfjob-port", required=True)
    framework_label = "tensorflow"
    replica_specs_field = "tfReplicaSpecs"
    leading_roles = ("Chief", "Master", "Worker")
    sets_env_in_all_containers = False
    spec_model = with_replica_specs(TFJobModel, field=replica_specs_field, names=_ROLES, container=container_properties.name, any_case=True)
    scale_paths = None

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """`TF_CONFIG`, unless the job has a single replica."""
        if self.total_replicas == 1:
            return {}
        task = {"type": replica.role.lower(), "index": replica.index}
        if self._has_dynamic_workers:
            config: dict[str, Any] = {"cluster": self._sparse_cluster(replica), "task": task}
        else:
            cluster = {role.name.lower(): self.addresses(role.name) for role in self.spec.roles}
            config = {"cluster": dict(sorted(cluster.items())), "task": task, "environment": "cloud"}
        return {"TF_CONFIG": msgspec.json.encode(config).decode()}

    def host(self, role: str, index: int = 0) -> str:
        """The name of the replica's service with its namespace, and with the cluster domain if one is configured."""
        domain = self.options.cluster_domain
        return f"{super().host(role, index)}.{self.metadata.namespace}.svc{f'.{domain}' if domain else ''}"

    def has_elastic_workers(self) -> bool:
        return self._has_dynamic_workers

    def is_master(self, role: RoleSpec, index: int) -> bool:
        """The chief, or worker 0 if the job has no chief."""
        return role.name == self.leading_role and (role.name != "Worker" or index == 0)

    def has_succeeded(self, progress: Progress) -> bool:
        """Without a chief, worker 0 decides unless `successPolicy` is AllWorkers."""
        first = progress.replica("Worker", 0)
        if self.leading_role == "Worker" and self._string("successPolicy") != "AllWorkers" and first is not None:
            return first.state is ReplicaState.SUCCEEDED or super().has_succeeded(progress)
        return super().has_succeeded(progress)

    def has_failed(self, role: RoleProgress) -> bool:
        """Failed dynamic workers are tolerated if the job has a chief, and otherwise as long as one worker is active."""
        if self._has_dynamic_workers and role.spec.name == "Worker":
            return self.leading_role == "Worker" and role.count(ReplicaState.FAILED) > 0 and not role.count(*_UNFINISHED)
        return super().has_failed(role)

    def uses_qualified_name(self) -> bool:
        return True

    def failure_message(self, *, failed: int, role: str) -> str:
        name = f"{self.metadata.namespace}/{self.metadata.name}"
        return f"TFJob {name} has failed because {failed} {role} replica(s) failed."

    @property
    def _has_dynamic_workers(self) -> bool:
        return ManifestField("spec", self.raw_spec).get("enableDynamicWorker").boolean()

    def _string(self, field: str) -> str:
        return ManifestField("spec", self.raw_spec).get(field).string()

    def _sparse_cluster(self, replica: Replica) -> dict[str, Any]:
        """The cluster of `TF_CONFIG` for dynamic workers: the addresses that one replica needs."""
        servers = self.addresses("PS")
        if replica.role == "PS":
            return {"worker": {}, "ps": [servers[replica.index]]}
        if replica.role == "Worker":
            address = self.addresses("Worker")[replica.index]
            return {"worker": {str(replica.index): address}, "ps": servers if self.spec.role("PS") is not None else None}
        return {"worker": {}, "ps": []}


_UNFINISHED = tuple(state for state in ReplicaState if state not in (ReplicaState.FAILED, ReplicaState.SUCCEEDED))
