"""Jobs in queues of Kueue. A job that names a queue has a Workload, for which Kueue reserves quota.

The label of Kueue on the job or on its pod templates takes precedence: Kueue then manages the job, or its pods, without the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dlop.api.child_objects import Create
from dlop.api.constants import KUEUE_PERMISSIONS, QUEUE_LABEL, TEMPLATE_HASH_ANNOTATION
from dlop.api.gang import DEFAULT_PRIORITY_CLASS
from dlop.api.kueue import pod_set_name
from dlop.api.names import object_name, short_hash
from dlop.api.pod_resources import pod_requests
from dlop.api.pod_template import pod_spec
from dlop.api.spec import RoleSpec
from dlop.api.template_hash import contents_hash, with_annotation
from dlop.api.types import PermissionSet
from dlop.kube.resources import PRIORITY_CLASSES, RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES, WORKLOADS, Resource
from dlop.kube.types import JsonObject
from dlop.policies.children import ChildObjects

if TYPE_CHECKING:
    from dlop.job import DLJob

PRIORITY_CLASS_LABEL = "kueue.x-k8s.io/priority-class"
"""On jobs: their WorkloadPriorityClass."""
_JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
_READ = ["get", "list", "watch"]


def _rule(group: str, resources: list[str], verbs: list[str]) -> JsonObject:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


class KueueWorkloads(ChildObjects["DLJob"]):
    """The Workload. The planner creates it while the job is suspended, and only in clusters with Kueue."""

    resources = (WORKLOADS,)
    reads = (RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES, PRIORITY_CLASSES)
    on_demand = True
    permission_set = PermissionSet(
        KUEUE_PERMISSIONS,
        (
            _rule(WORKLOADS.group, [WORKLOADS.plural], [*_READ, "create", "patch", "delete"]),
            _rule(WORKLOADS.group, [f"{WORKLOADS.plural}/status"], ["patch"]),
        ),
        cluster_rules=(
            _rule(WORKLOADS.group, [RESOURCE_FLAVORS.plural, WORKLOAD_PRIORITY_CLASSES.plural], _READ),
            _rule(PRIORITY_CLASSES.group, [PRIORITY_CLASSES.plural], _READ),
        ),
    )

    def build(self, job: DLJob) -> tuple[Create, ...]:
        return ()


KUEUE_RESOURCES: tuple[Resource, ...] = KueueWorkloads.resources + KueueWorkloads.reads
"""What the operator must be able to read to run jobs in queues of Kueue."""


def may_use_kueue(job: DLJob) -> bool:
    """Whether the queue of a job is one of Kueue if the cluster has it. The members of an ElasticJob are not known before they run."""
    if job.members is not None or has_queue_label(job):
        return False
    return job.gang is None or not job.gang.has_queues


def has_queue_label(job: DLJob) -> bool:
    """Whether Kueue manages the job, or pods of it, without the operator."""
    return QUEUE_LABEL in job.metadata.labels or any(QUEUE_LABEL in _labels(role) for role in job.spec.roles)


def workload_ref(job: DLJob) -> tuple[Resource, str]:
    """Resource and name of the Workload. The hash distinguishes kinds of the same name."""
    base, suffix = f"{job.job_type.kind.lower()}-{job.metadata.name}", short_hash(job.job_type.group, length=5)
    return WORKLOADS, object_name(base, f"-{suffix}")


def quota_hash(job: DLJob) -> str:
    """A hash of what the queue and the quota depend on. If it changes, the job must wait for quota again.

    Another hash for the same spec would stop all jobs in queues once, when the operator is updated.
    """
    pod_sets = [
        (
            pod_set_name(role.name),
            _count(job, role),
            {name: str(quantity) for name, quantity in pod_requests(pod_spec(role.template)).items()},
            pod_spec(role.template).get("nodeSelector"),
            pod_spec(role.template).get("tolerations"),
        )
        for role in job.spec.roles
        if _count(job, role)
    ]
    return contents_hash((job.spec.run_policy.scheduling.queue, pod_sets))


def workload_create(job: DLJob, *, priorities: Mapping[str, int], workload_priorities: Mapping[str, int]) -> Create:
    """The create of the Workload. The priorities are the values of PriorityClasses and WorkloadPriorityClasses by name."""
    resource, name = workload_ref(job)
    spec = {
        "queueName": job.spec.run_policy.scheduling.queue,
        "podSets": [_pod_set(role, _count(job, role)) for role in job.spec.roles if _count(job, role)],
        **workload_priority(job, priorities=priorities, workload_priorities=workload_priorities),
    }
    metadata = {**job.child_metadata(name), "labels": {_JOB_UID_LABEL: job.metadata.uid}}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
    return Create(resource, with_annotation(body, TEMPLATE_HASH_ANNOTATION, f"{job.metadata.generation}-{quota_hash(job)}"))


def _count(job: DLJob, role: RoleSpec) -> int:
    """The autoscaler changes the number of replicas within the quota."""
    return role.elastic.maximum if role.elastic is not None and job.options.autoscaler else role.replicas


def _pod_set(role: RoleSpec, count: int) -> JsonObject:
    return {"name": pod_set_name(role.name), "count": count, "template": {"spec": pod_spec(role.template)}}


def workload_priority(job: DLJob, *, priorities: Mapping[str, int], workload_priorities: Mapping[str, int]) -> JsonObject:
    """The fields of the Workload with its priority. A class that does not exist counts like the default."""
    policy = job.spec.run_policy.scheduling
    if policy.priority is not None:
        return {"priority": policy.priority}
    name = job.metadata.labels.get(PRIORITY_CLASS_LABEL, "")
    if name and name in workload_priorities:
        return {"priority": workload_priorities[name], "priorityClassRef": _class_ref(WORKLOAD_PRIORITY_CLASSES, name)}
    names = (policy.priority_class, *(str(pod_spec(role.template).get("priorityClassName") or "") for role in job.spec.roles))
    name = next((name for name in names if name and name in priorities), "")
    if name:
        return {"priority": priorities[name], "priorityClassRef": _class_ref(PRIORITY_CLASSES, name)}
    return {"priority": priorities.get(DEFAULT_PRIORITY_CLASS, 0)}


def _class_ref(resource: Resource, name: str) -> JsonObject:
    return {"group": resource.group, "kind": resource.kind, "name": name}


def _labels(role: RoleSpec) -> JsonObject:
    labels = (role.template.get("metadata") or {}).get("labels")
    return labels if isinstance(labels, dict) else {}
