"""TFJob of kubeflow.org/v1: TensorFlow with a chief, parameter servers, workers and an evaluator, each as far as wanted."""

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
from dlop.frameworks.kubeflow.schema import KubeflowSpec, rules_of_spec, with_roles

_ROLES = ("PS", "Chief", "Master", "Worker", "Evaluator")


class TFJobModel(KubeflowSpec):
    """What a TFJob asks for."""

    model_config = rules_of_spec(
        rule(
            "!self.tfReplicaSpecs.exists(a, a.lowerAscii() == 'chief') || !self.tfReplicaSpecs.exists(b, b.lowerAscii() == 'master')",
            "must have at most one of Chief and Master",
            field_path=".tfReplicaSpecs",
            reason="FieldValueForbidden",
        )
    )

    success_policy: Literal["", "AllWorkers"] | None = None
    """When a job without a chief is done: with worker 0, or with all workers."""
    enable_dynamic_worker: bool | None = None
    """Whether workers may come and go: each is told of itself and of the parameter servers only."""


class TFJob(KubeflowJob):
    """A TensorFlow job. It is done when its chief is; without one, when worker 0 or all workers are (`successPolicy`)."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="TFJob")
    replica_types = tuple(ReplicaType(name, restart_policy=RestartPolicy.NEVER) for name in _ROLES)
    container_properties = ContainerProperties(name="tensorflow", port=2222, port_name="tfjob-port", required=True)
    framework_label = "tensorflow"
    replica_specs_field = "tfReplicaSpecs"
    leading_roles = ("Chief", "Master", "Worker")
    informs_all_containers = False
    spec_model = with_roles(TFJobModel, field=replica_specs_field, names=_ROLES, container=container_properties.name, any_case=True)
    scale_paths = None

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """The cluster as TensorFlow reads it, and the place of the replica in it. A single replica is no cluster."""
        if self.total_replicas == 1:
            return {}
        task = {"type": replica.role.lower(), "index": replica.index}
        if self._is_dynamic:
            config: dict[str, Any] = {"cluster": self._sparse_cluster(replica), "task": task}
        else:
            cluster = {role.name.lower(): self.addresses(role.name) for role in self.spec.roles}
            config = {"cluster": dict(sorted(cluster.items())), "task": task, "environment": "cloud"}
        return {"TF_CONFIG": msgspec.json.encode(config).decode()}

    def host(self, role: str, index: int = 0) -> str:
        """The service with its namespace, and with the domain of the cluster where the operator was told it."""
        domain = self.options.cluster_domain
        return f"{super().host(role, index)}.{self.metadata.namespace}.svc{f'.{domain}' if domain else ''}"

    def has_elastic_workers(self) -> bool:
        """Where the manifest says so."""
        return self._is_dynamic

    def is_master(self, role: RoleSpec, index: int) -> bool:
        """The chief, or else worker 0."""
        return role.name == self.leading_role and (role.name != "Worker" or index == 0)

    def is_done(self, progress: Progress) -> bool:
        """Worker 0 speaks for all where no chief does, unless the manifest asks all of them."""
        first = progress.replica("Worker", 0)
        if self.leading_role == "Worker" and self._text("successPolicy") != "AllWorkers" and first is not None:
            return first.state is ReplicaState.SUCCEEDED or super().is_done(progress)
        return super().is_done(progress)

    def is_lost(self, role: RoleProgress) -> bool:
        """Workers that come and go may fail: all of them where somebody else leads, else as long as one is left."""
        if self._is_dynamic and role.spec.name == "Worker":
            return self.leading_role == "Worker" and role.count(ReplicaState.FAILED) > 0 and not role.count(*_GOING_ON)
        return super().is_lost(role)

    def names_namespace(self) -> bool:
        """Always."""
        return True

    def failure_message(self, *, failed: int, role: str) -> str:
        """In the words of this kind."""
        name = f"{self.metadata.namespace}/{self.metadata.name}"
        return f"TFJob {name} has failed because {failed} {role} replica(s) failed."

    @property
    def _is_dynamic(self) -> bool:
        return ManifestField("spec", self.raw_spec).get("enableDynamicWorker").flag()

    def _text(self, field: str) -> str:
        return ManifestField("spec", self.raw_spec).get(field).text()

    def _sparse_cluster(self, replica: Replica) -> dict[str, Any]:
        """What one replica has to know of a cluster that changes."""
        servers = self.addresses("PS")
        if replica.role == "PS":
            return {"worker": {}, "ps": [servers[replica.index]]}
        if replica.role == "Worker":
            own = self.addresses("Worker")[replica.index]
            return {"worker": {str(replica.index): own}, "ps": servers if self.spec.role("PS") is not None else None}
        return {"worker": {}, "ps": []}


_GOING_ON = tuple(state for state in ReplicaState if state not in (ReplicaState.FAILED, ReplicaState.SUCCEEDED))
