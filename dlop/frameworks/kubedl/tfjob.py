"""TFJob of training.kubedl.io/v1alpha1: TensorFlow with parameter servers, and an optional chief or master."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from dlop import CleanPodPolicy, Progress, Replica, ReplicaState, ReplicaType, RestartPolicy, cached_property
from dlop.frameworks.kubedl.base import COLUMNS, KubeDLContainer, KubeDLJob, KubeDLLeader, KubeDLNaming, kubedl_type
from dlop.frameworks.kubedl.schema import KubeDLModel, KubeDLSchema, ReplicaSpecs

_CHIEFS = ("Chief", "Master", "AIMaster")


class TFJobModel(KubeDLModel):
    """Specification of a TFJob."""

    tf_replica_specs: ReplicaSpecs
    """Replica specs by role: PS, Master, Chief, Worker, Evaluator, AIMaster."""
    success_policy: Literal["", "AllWorkers"] | None = None
    """When the job succeeds: with its chief, or else with worker 0 (empty, the default), or with all workers (AllWorkers)."""


class TFLifecycle(KubeDLLeader["TFJob"]):
    """The chief decides, and with `AllWorkers` the workers, too. Without a chief, worker 0 or all workers decide.

    Without any of them, all replicas must succeed.
    """

    def has_succeeded(self, job: TFJob, progress: Progress) -> bool:
        workers, needs_all = progress.role("Worker"), job.spec_field.get("successPolicy").string() == "AllWorkers"
        all_workers = workers is not None and workers.all(ReplicaState.SUCCEEDED)
        leader = self.leader(job)
        if leader in _CHIEFS:
            waits = needs_all and leader != "AIMaster" and workers is not None
            return super().has_succeeded(job, progress) and (all_workers or not waits)
        if leader is None:
            return super().has_succeeded(job, progress)
        first = progress.replica("Worker", 0)
        return all_workers or (not needs_all and first is not None and first.state is ReplicaState.SUCCEEDED)


class TFJob(KubeDLJob):
    """A TensorFlow job. It succeeds with its chief; without a chief, with worker 0 or all workers (`successPolicy`)."""

    job_type = kubedl_type("TFJob")
    replica_types = (
        ReplicaType("AIMaster", restart_policy=RestartPolicy.NEVER, in_gang=False),
        ReplicaType("PS", restart_policy=RestartPolicy.EXIT_CODE),
        ReplicaType("Master", restart_policy=RestartPolicy.EXIT_CODE, start_after="PS"),
        ReplicaType("Chief", restart_policy=RestartPolicy.EXIT_CODE, start_after="PS"),
        ReplicaType("Worker", restart_policy=RestartPolicy.EXIT_CODE, start_after="PS"),
        ReplicaType("Evaluator", restart_policy=RestartPolicy.EXIT_CODE),
    )
    container_properties = KubeDLContainer(name="tensorflow", port=2222, port_name="tfjob-port", sets_env_in_all_containers=False)
    schema = KubeDLSchema(field="tfReplicaSpecs", model=TFJobModel, columns=COLUMNS, clean_pod_policy=CleanPodPolicy.RUNNING)
    naming = KubeDLNaming(master_roles=("Master", "Chief"), qualifies_hosts=True)
    lifecycle = TFLifecycle(*_CHIEFS, "Worker")

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """`TF_CONFIG`, unless the job has a single replica."""
        if self.total_replicas - self.replicas("AIMaster") == 1:
            return {}
        task = {"type": replica.role.lower(), "index": replica.index}
        return {"TF_CONFIG": msgspec.json.encode({"cluster": self._cluster, "task": task, "environment": "cloud"}).decode()}

    @cached_property
    def _cluster(self) -> msgspec.Raw:
        """The addresses of all replicas except evaluators, encoded once."""
        roles = (role.name for role in self.spec.roles if role.name not in ("Evaluator", "AIMaster"))
        return msgspec.Raw(msgspec.json.encode({role.lower(): self.addresses(role) for role in sorted(roles)}))
