"""Every name, label, annotation and reason that the cluster sees."""

from __future__ import annotations

MANAGER = "dlop"
"""The name under which dlop manages jobs, makes events and holds leases."""

ATTEMPT_LABEL = "dlop.dev/attempt"
"""On pods: the attempt of the job, or of the role, that the pod belongs to."""
JOB_UID_LABEL = "dlop.dev/job-uid"
"""On pods and services: the job that they belong to, also when somebody has taken their owner reference away."""
JOB_NAME_LABEL = "dlop.dev/job-name"
REPLICA_TYPE_LABEL = "dlop.dev/replica-type"
REPLICA_INDEX_LABEL = "dlop.dev/replica-index"

RENDERED_ANNOTATION = "dlop.dev/rendered"
"""On pods: the generation of the job that the pod was made from, and a hash of what it is made of."""
SIZE_ANNOTATION = "dlop.dev/size"
"""On pods that are told how many replicas there are: how many of each role these were."""

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""On pods: the PodGroup by which schedulers of the scheduler-plugins family know what belongs together."""
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""On pods: the PodGroup by which volcano knows the same."""
TASK_ANNOTATION = "volcano.sh/task-spec"
"""On pods: their role, for volcano."""

GANG_RIGHTS = "gang"
"""The name of the rights that the operator needs for PodGroups."""


def rbac_hint(name: str) -> str:
    """What to do where the operator lacks rights; `name` is that of those that it is given only when asked for, if it is about these."""
    if not name:
        return "give it the rights that `dlop manifests` prints"
    return f"add `--with {name}` to the `dlop deploy` line that was used, or `kubectl apply -f manifests/kubeflow/rights.yaml`"


class Reason:
    """Reasons of conditions and events."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    INVALID_SPEC = "InvalidSpec"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DISRUPTION_LIMIT_EXCEEDED = "DisruptionLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    DISRUPTED = "Disrupted"
    NODE_LOST = "NodeLost"
    CREATED_PODS = "CreatedPods"
    CREATED_SERVICES = "CreatedServices"
    DELETED_PODS = "DeletedPods"
    REPLACED_PODS = "ReplacedPods"
    RESIZED = "Resized"
    FAILED_CREATE = "FailedCreate"
    FAILED_UPDATE = "FailedUpdate"
    FORBIDDEN = "Forbidden"
    CRD_NOT_INSTALLED = "CRDNotInstalled"
    GANG_NOT_ADMITTED = "GangNotAdmitted"
    SCHEDULER_MISMATCH = "SchedulerMismatch"
    MIN_AVAILABLE_TOO_HIGH = "MinAvailableTooHigh"
    SET_RESTART_POLICY = "SetPodTemplateRestartPolicy"
    DELETED_POD_GROUP = "DeletedPodGroup"
    NAME_CONFLICT = "NameConflict"
    TERMINATING = "Terminating"
    BACK_OFF = "BackOff"
    NO_REPLICAS = "NoReplicas"
