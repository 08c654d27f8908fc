"""PaddleJob of paddlepaddle.org/v1: PaddlePaddle with parameter servers and trainers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlop import (
    AGE,
    Column,
    ContainerProperties,
    DLJob,
    FieldRef,
    JobType,
    JsonObject,
    Outcome,
    Phase,
    Progress,
    Reason,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    RoleProgress,
    RoleSpec,
    cached_property,
)
from dlop.frameworks.paddlepaddle.schema import DEFAULT_PORT, PaddleJobModel, PaddleSchema, read_passes, read_port
from dlop.policies import GPU, Lifecycle, Naming, Status, label_value, pod_requests

_ROLE_LABELS = {"pserver": "paddle-job-pserver", "trainer": "paddle-job"}
_PHASES = {
    Phase.CREATED: "creating",
    Phase.RUNNING: "running",
    Phase.RESTARTING: "running",
    Phase.SUSPENDED: "suspended",
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
    Phase.INVALID: "failed",
}
_FINISHED = {"succeeded": Phase.SUCCEEDED, "failed": Phase.FAILED}
_STATES = {ReplicaState.RUNNING: "Running", ReplicaState.SUCCEEDED: "Succeeded", ReplicaState.FAILED: "Failed"}


class PaddleNaming(Naming["PaddleJob"]):
    """Pods also have the labels of the early operator, and the one that its documentation names."""

    def pod_labels(self, job: PaddleJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        name = label_value(job.metadata.name)
        return {"paddle-job-name": name, _ROLE_LABELS[role.name]: name}


class PaddleLifecycle(Lifecycle["PaddleJob"]):
    """The job runs when all its pods run. It fails with its first failed trainer, and succeeds when all trainers have succeeded."""

    def fixed_roles(self, job: PaddleJob) -> tuple[str, ...]:
        return tuple(role.name for role in job.spec.roles)

    def is_running(self, job: PaddleJob, progress: Progress) -> bool:
        states = {replica.state for role in progress.roles for replica in role.replicas}
        return ReplicaState.RUNNING in states and states <= {ReplicaState.RUNNING, ReplicaState.SUCCEEDED}


class PaddleStatus(Status["PaddleJob"]):
    """Phase, reason and replica statuses in the words of the early operator, and the common conditions."""

    def read_phase(self, stored: JsonObject) -> Phase | None:
        """The early operator wrote no conditions."""
        return super().read_phase(stored) or _FINISHED.get(stored.get("phase", ""))

    def write(self, job: PaddleJob, outcome: Outcome) -> JsonObject:
        common = super().write(job, outcome)
        own = {
            "phase": _PHASES[outcome.phase],
            "reason": _reason(outcome),
            "replica_statuses": [_replica_status(role) for role in outcome.progress.roles],
        }
        return {**{name: value for name, value in common.items() if name != "replicaStatuses"}, **own}


class PaddleJob(DLJob):
    """A PaddlePaddle job with parameter servers and trainers. It succeeds when all trainers succeed; parameter servers never finish."""

    job_type = JobType(group="paddlepaddle.org", version="v1", kind="PaddleJob")
    replica_types = (
        ReplicaType("pserver", restart_policy=RestartPolicy.ALWAYS, required_for_success=False),
        ReplicaType("trainer", restart_policy=RestartPolicy.NEVER, required=True),
    )
    container_properties = ContainerProperties(name="", port=DEFAULT_PORT, adds_port=False)
    schema = PaddleSchema(model=PaddleJobModel, columns=(Column("Phase", ".status.phase"), Column("Reason", ".status.reason"), AGE))
    naming = PaddleNaming()
    lifecycle = PaddleLifecycle()
    status = PaddleStatus()

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        return {**self._common_variables, **self._discovery_variables(replica)}

    def customize_service(self, replica: Replica, service: JsonObject) -> JsonObject:
        """All ports of the pod."""
        (container,) = replica.spec.template["spec"]["containers"]
        ports = [{"name": port["name"], "port": port["containerPort"]} for port in container["ports"]]
        return {**service, "spec": {**service["spec"], "ports": ports}}

    @cached_property
    def _common_variables(self) -> dict[str, str | FieldRef]:
        """Variables of `paddle_k8s`, the same in all pods."""
        spec, trainer = self.spec_field, self.spec_field.get("trainer")
        gpus, cpus = self._trainer_devices()
        trainers, entrypoint = str(self.minimum_replicas("trainer")), trainer.get("entrypoint").string()
        return {
            "PADDLE_JOB_NAME": self.metadata.name,
            "TRAINERS": trainers,
            "PSERVERS": str(self.replicas("pserver")),
            "ENTRY": entrypoint,
            "TOPOLOGY": entrypoint,
            "TRAINER_PACKAGE": trainer.get("workspace").string(),
            "PADDLE_INIT_PORT": str(read_port(spec)),
            "PADDLE_INIT_TRAINER_COUNT": str(gpus or cpus),
            "PADDLE_INIT_PORTS_NUM": str(spec.get("ports_num").integer(1)),
            "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": str(spec.get("ports_num_for_sparse").integer(1)),
            "PADDLE_INIT_NUM_GRADIENT_SERVERS": trainers,
            "PADDLE_INIT_NUM_PASSES": str(read_passes(spec)),
            "PADDLE_INIT_USE_GPU": "1" if gpus else "0",
            "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
            "NAMESPACE": FieldRef("metadata.namespace"),
            "POD_IP": FieldRef("status.podIP"),
        }

    def _discovery_variables(self, replica: Replica) -> dict[str, str]:
        """Variables that `paddle_k8s` would otherwise find by listing pods. Names of services stand for addresses."""
        return {
            "PADDLE_INIT_PSERVERS": self._servers,
            "PADDLE_INIT_TRAINER_ID": str(replica.index),
            "PADDLE_TRAINING_ROLE": replica.role.upper(),
            "PADDLE_PSERVERS": str(self.replicas("pserver")),
            "PADDLE_TRAINERS": str(self.minimum_replicas("trainer")),
            "PADDLE_CURRENT_IP": self.host(replica.role, replica.index),
            "PADDLE_PSERVER_PORT": str(read_port(self.spec_field)),
            "PADDLE_PSERVER_IPS": self._servers,
            "PADDLE_TRAINER_ID": str(replica.index),
        }

    @cached_property
    def _servers(self) -> str:
        return ",".join(self.host("pserver", index) for index in range(self.replicas("pserver")))

    def _trainer_devices(self) -> tuple[int, int]:
        """GPUs, and CPUs rounded up, of a trainer."""
        role = self.spec.role("trainer")
        requests = {} if role is None else pod_requests(role.template["spec"])
        gpus, cpus = (math.ceil(requests[name].value) if name in requests else 0 for name in (GPU, "cpu"))
        return gpus, cpus


def _reason(outcome: Outcome) -> str:
    if outcome.phase is Phase.SUCCEEDED:
        return "all trainer have succeeded!"
    if outcome.phase is Phase.FAILED and outcome.reason == Reason.FAILED:
        return "at least one trainer failed!"
    return outcome.blocked or outcome.message


def _replica_status(role: RoleProgress) -> JsonObject:
    states = [_STATES.get(replica.state, "Starting") for replica in role.replicas]
    counts = {state: states.count(state) for state in sorted(set(states))}
    worst = next((state for state in ("Failed", "Starting", "Running", "Succeeded") if state in counts), "Starting")
    return {"training_resource_type": role.spec.name.upper(), "state": worst, "resource_states": counts}
