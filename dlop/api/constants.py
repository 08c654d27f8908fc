"""Names, labels, annotations and reasons that are visible in the cluster."""

from __future__ import annotations

MANAGER = "dlop"
"""The value of `managedBy`, and the component name in events and leases."""

ATTEMPT_LABEL = "dlop.dev/attempt"
"""On pods: the attempt of the job or of the role that created the pod."""
JOB_UID_LABEL = "dlop.dev/job-uid"
"""On pods and services: the UID of their job. It identifies the job even if the owner reference was removed."""
JOB_NAME_LABEL = "dlop.dev/job-name"
REPLICA_TYPE_LABEL = "dlop.dev/replica-type"
REPLICA_INDEX_LABEL = "dlop.dev/replica-index"

TEMPLATE_HASH_ANNOTATION = "dlop.dev/rendered"
"""On pods and other children: the generation of the job that the object was rendered from, and a hash of its contents."""
REPLACEMENT_ANNOTATION = "dlop.dev/replacement"
"""On pods: how many pods of the same replica were lost in this attempt before. Absent means none."""
SIZE_ANNOTATION = "dlop.dev/size"
"""On pods whose environment contains the world size: the number of replicas of each role at the time."""
SPOT_ANNOTATION = "dlop.dev/spot"
"""On pods of spot replicas: `true`."""
REQUESTS_ANNOTATION = "dlop.dev/requests"
"""On pods for scale plans: their resource requests, such as `cpu=1,memory=2Gi`."""

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""On pods: their PodGroup, for scheduler-plugins and compatible schedulers."""
COSCHEDULER_LABEL = "pod-group.scheduling.sigs.k8s.io"
"""On pods: their PodGroup, for early versions of scheduler-plugins."""
COSCHEDULER_NAME_LABEL = f"{COSCHEDULER_LABEL}/name"
"""On pods: the name of their group, for versions of scheduler-plugins that know groups by labels only."""
COSCHEDULER_SIZE_LABEL = f"{COSCHEDULER_LABEL}/min-available"
"""On pods: the number of pods that are scheduled together, for the same versions."""
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""On pods: their PodGroup, for Volcano and kube-batch."""
TASK_ANNOTATION = "volcano.sh/task-spec"
"""On pods: their role, for Volcano."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On jobs, or on pods: their queue, for Kueue. The operator does not set it."""

LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
"""On objects written by `kubectl apply`: the complete object as it was applied."""

GANG_PERMISSIONS = "gang"
"""Name of the permission set that the operator needs for PodGroups."""

NODE_PERMISSIONS = "nodes"
"""Name of the permission set that the operator needs to read nodes, for the autoscaler and for force deletion."""


KUEUE_PERMISSIONS = "kueue"
"""Name of the permission set that the operator needs for Workloads."""


CRON_PERMISSIONS = "cron"
"""Name of the permission set with which the operator may create jobs, for Crons."""


SEPARATE_PERMISSIONS = (NODE_PERMISSIONS, CRON_PERMISSIONS, KUEUE_PERMISSIONS)
"""Permission sets that `manifests/kubeflow` does not contain, because they do more than Kubeflow's operator did."""


def rbac_hint(name: str, *, namespace: str) -> str:
    """How to grant the operator missing permissions in a namespace. `name` is a permission set; empty means the default permissions."""
    if not name:
        return "grant it the permissions that `dlop manifests` prints"
    text = f"add `--with {name}:{namespace}`, or `--with {name}` for all namespaces, to the `dlop deploy` line that was used"
    return text if name in SEPARATE_PERMISSIONS else f"{text}, or `kubectl apply -f manifests/kubeflow/permissions.yaml`"


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
    SPOT_FALLBACK = "SpotFallback"
    CREATED_PODS = "CreatedPods"
    CREATED_SERVICES = "CreatedServices"
    DELETED_PODS = "DeletedPods"
    FORCE_DELETED_PODS = "ForceDeletedPods"
    REPLACED_PODS = "ReplacedPods"
    RESIZED = "Resized"
    SCALED = "Scaled"
    FAILED_CREATE = "FailedCreate"
    FAILED_UPDATE = "FailedUpdate"
    FORBIDDEN = "Forbidden"
    CRD_NOT_INSTALLED = "CRDNotInstalled"
    GANG_NOT_ADMITTED = "GangNotAdmitted"
    SCHEDULER_MISMATCH = "SchedulerMismatch"
    MIN_AVAILABLE_TOO_HIGH = "MinAvailableTooHigh"
    QUEUE_IGNORED = "QueueIgnored"
    QUEUED = "Queued"
    EVICTED = "Evicted"
    AUTOSCALER_OFF = "AutoscalerOff"
    SET_RESTART_POLICY = "SetPodTemplateRestartPolicy"
    SPEC_WARNING = "SpecWarning"
    DELETED_POD_GROUP = "DeletedPodGroup"
    DELETED_TENSORBOARD = "DeletedTensorBoard"
    NO_HOST_PORTS = "NoHostPorts"
    NO_GIT_SYNC_IMAGE = "NoGitSyncImage"
    CODE_SYNC_FAILED = "CodeSyncFailed"
    SCALE_PLAN_FAILED = "ScalePlanFailed"
    RESOURCE_LIMIT_EXCEEDED = "ResourceLimitExceeded"
    NAME_CONFLICT = "NameConflict"
    TERMINATING = "Terminating"
    BACK_OFF = "BackOff"
    NO_REPLICAS = "NoReplicas"
