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
    CREATE_REFUSED = "CreateRefused"
    NAME_TAKEN = "NameTaken"
    BACK_OFF = "BackOff"
    NO_REPLICAS = "NoReplicas"
