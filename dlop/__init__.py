"""dlop runs distributed deep-learning jobs on Kubernetes. A new framework is one class: extend `DLJob`."""

from dlop.declaration import Accelerator, ContainerProperties, DeclarationError, JobType, Options, ReplicaType, Rights
from dlop.engine.outcome import Outcome, Phase, Verdict
from dlop.engine.plan import Creation
from dlop.engine.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.engine.record import LastFailure
from dlop.engine.spec import CleanPodPolicy, JobSpec, Problem, RestartPolicy, RestartScope, RoleSpec, RunPolicy, SpecError
from dlop.job import DLJob
from dlop.reading import Field
from dlop.replica import Replica

__all__ = [
    "Accelerator",
    "CleanPodPolicy",
    "ContainerProperties",
    "Creation",
    "DLJob",
    "DeclarationError",
    "Field",
    "JobSpec",
    "JobType",
    "LastFailure",
    "Options",
    "Outcome",
    "Phase",
    "Problem",
    "Progress",
    "Replica",
    "ReplicaProgress",
    "ReplicaState",
    "ReplicaType",
    "RestartPolicy",
    "RestartScope",
    "Rights",
    "RoleProgress",
    "RoleSpec",
    "RunPolicy",
    "SpecError",
    "Verdict",
]
