"""What PaddleJob and TrainingJob have in common: names, lifecycle, status, and the environment of the pods."""

from __future__ import annotations

import math
from abc import ABC
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from dlop import (
    ContainerProperties,
    DLJob,
    FieldRef,
    JsonObject,
    Outcome,
    Phase,
    Progress,
    Replica,
    ReplicaProgress,
    ReplicaState,
    RoleProgress,
    RoleSpec,
    cached_property,
)
from dlop.frameworks.paddlepaddle.fields import DEFAULT_PORT, read_passes, read_port
from dlop.policies import GPU, Lifecycle, Naming, Status, label_value, pod_requests

Job = TypeVar("Job", bound="ParameterServerJob")
_ROLE_LABELS = {"master": "paddle-job-master", "pserver": "paddle-job-pserver", "trainer": "paddle-job"}
_STARTED = frozenset({ReplicaState.RUNNING, ReplicaState.SUCCEEDED, ReplicaState.FAILED})
_NOT_STARTED = (ReplicaState.MISSING, ReplicaState.PENDING)
_STATES = {ReplicaState.RUNNING: "running", ReplicaState.SUCCEEDED: "succeeded", ReplicaState.FAILED: "failed"}


class ParameterServerNaming(Naming["ParameterServerJob"]):
    """Pods also have the labels of the old operators, and the one that their documentation names."""

    def pod_labels(self, job: ParameterServerJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        name = label_value(job.metadata.name)
        return {"paddle-job-name": name, _ROLE_LABELS[role.name]: name}


class ParameterServerLifecycle(Lifecycle[Job]):
    """The job runs when all pods that it needs run. It fails with its first failed trainer, and succeeds when all have succeeded.

    Elastic trainers above the minimum that have not started do not keep the job from running or finishing.
    """

    def fixed_roles(self, job: Job) -> tuple[str, ...]:
        return tuple(role.name for role in job.spec.roles if role.elastic is None)

    def is_running(self, job: Job, progress: Progress) -> bool:
        needed = [replica for role in progress.roles for replica in role.replicas if not role.spec.is_optional(replica.index)]
        return any(replica.state is ReplicaState.RUNNING for replica in needed) and all(map(_has_started, needed))

    def has_succeeded(self, job: Job, progress: Progress) -> bool:
        trainers = progress.role("trainer")
        if trainers is None:
            return False
        succeeded = all(replica.state is ReplicaState.SUCCEEDED for replica in decisive_trainers(trainers))
        return succeeded and (trainers.count(ReplicaState.SUCCEEDED) > 0 or not trainers.replicas)


def decisive_trainers(trainers: RoleProgress) -> list[ReplicaProgress]:
    """The trainers that decide about the result: all except elastic ones above the minimum that have not started."""
    return [replica for replica in trainers.replicas if not is_waiting_optional(trainers, replica)]


def is_waiting_optional(trainers: RoleProgress, replica: ReplicaProgress) -> bool:
    """Whether an elastic trainer above the minimum has not started."""
    return trainers.spec.is_optional(replica.index) and replica.state in _NOT_STARTED


def _has_started(replica: ReplicaProgress) -> bool:
    """Servers must also be ready, because trainers connect to them."""
    if replica.role == "trainer" or replica.state is not ReplicaState.RUNNING:
        return replica.state in _STARTED
    return replica.pod is not None and all(container.ready for container in replica.pod.status.container_statuses)


@dataclass(frozen=True, kw_only=True)
class ParameterServerStatus(Status[Job]):
    """Phase, reason and replica statuses in the words of the old operators, and the common conditions."""

    phases: Mapping[Phase, str]
    final_phases: Mapping[str, Phase]
    """Phases of finished jobs. The old operators wrote no conditions."""
    reasons: Mapping[Phase, str]

    def phase(self, job: Job, outcome: Outcome) -> str:
        return self.phases[outcome.phase]

    def reason(self, job: Job, outcome: Outcome) -> str:
        """What blocks the job, the words of the old operator, or the message of the outcome, such as an exceeded limit."""
        by_phase = self.reasons.get(outcome.phase, "") if outcome.reason in ("", outcome.phase) else ""
        return outcome.blocked or by_phase or outcome.message

    def resource_type(self, role: str) -> str:
        """The name of a role in the replica statuses."""
        return role

    def read_phase(self, stored: JsonObject) -> Phase | None:
        own = (phase for word, phase in self.final_phases.items() if word == stored.get("phase"))
        return super().read_phase(stored) or next(own, None)

    def write(self, job: Job, outcome: Outcome) -> JsonObject:
        common = super().write(job, outcome)
        own = {
            "phase": self.phase(job, outcome),
            "reason": self.reason(job, outcome),
            "replica_statuses": [self._replica_status(role) for role in outcome.progress.roles],
        }
        return {**{name: value for name, value in common.items() if name != "replicaStatuses"}, **own}

    def _replica_status(self, role: RoleProgress) -> JsonObject:
        counts = Counter(sorted(_STATES.get(replica.state, "starting") for replica in role.replicas))
        worst = next((state for state in ("failed", "starting", "running", "succeeded") if state in counts), "starting")
        return {"training_resource_type": self.resource_type(role.spec.name), "state": worst, "resource_states": dict(counts)}


class ParameterServerJob(DLJob, ABC):
    """A PaddlePaddle job of paddlepaddle.org. It succeeds when all trainers succeed; parameter servers never finish."""

    container_properties = ContainerProperties(name="", port=DEFAULT_PORT, adds_port=False, sets_env_in_all_containers=True)
    naming = ParameterServerNaming()

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        return {**self._program_variables, **self._discovery_variables(replica)}

    def customize_service(self, replica: Replica, service: JsonObject) -> JsonObject:
        """All ports of the pod."""
        declared = (port for container in replica.spec.template["spec"]["containers"] for port in container.get("ports", ()))
        ports = [{"name": port["name"], "port": port["containerPort"]} for port in declared]
        others = {name: value for name, value in service["spec"].items() if name != "ports"}
        return {**service, "spec": {**others, "ports": ports} if ports else others}

    @cached_property
    def _program_variables(self) -> dict[str, str | FieldRef]:
        """Variables of the program `paddle_k8s` in the images, the same in all pods."""
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
            "PADDLE_INIT_PORTS_NUM": str(spec.get("ports_num").integer(0) or 1),
            "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": str(spec.get("ports_num_for_sparse").integer(0) or 1),
            "PADDLE_INIT_NUM_GRADIENT_SERVERS": trainers,
            "PADDLE_INIT_NUM_PASSES": str(read_passes(spec)),
            "PADDLE_INIT_USE_GPU": "1" if gpus else "0",
            "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
            "NAMESPACE": FieldRef("metadata.namespace"),
            "POD_IP": FieldRef("status.podIP"),
        }

    def _discovery_variables(self, replica: Replica) -> dict[str, str]:
        """Variables that `paddle_k8s` sets after listing pods. Names of services stand for addresses."""
        return {
            "PADDLE_INIT_PSERVERS": self._servers,
            "PADDLE_INIT_TRAINER_ID": str(replica.index),
            "PADDLE_TRAINING_ROLE": replica.role.upper(),
            "PADDLE_PSERVERS": str(self.replicas("pserver")),
            "PADDLE_TRAINERS": str(self.minimum_replicas("trainer")),
            "PADDLE_CURRENT_IP": self.host(replica.role, replica.index),
            "PADDLE_PSERVER_PORT": str(self.port("trainer" if self.spec.role("pserver") is None else "pserver")),
            "PADDLE_PSERVER_IPS": self._servers,
            "PADDLE_TRAINER_ID": str(replica.index),
        }

    def host_list(self, role: str, indexes: Iterable[int]) -> str:
        return ",".join(self.host(role, index) for index in indexes)

    @cached_property
    def _servers(self) -> str:
        return self.host_list("pserver", range(self.replicas("pserver")))

    def _trainer_devices(self) -> tuple[int, int]:
        """GPUs, and CPUs rounded up, of a trainer."""
        role = self.spec.role("trainer")
        requests = {} if role is None else pod_requests(role.template["spec"])
        gpus, cpus = (math.ceil(requests[name].value) if name in requests else 0 for name in (GPU, "cpu"))
        return gpus, cpus
