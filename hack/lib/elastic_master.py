"""The objects that the master of DLRover creates for an ElasticJob: scale plans, or pods on platform pyk8s. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlop.api.scale_plan import Member
from dlop.frameworks.dlrover.names import (
    INDEX_LABEL,
    MEMBER_APP,
    NAME_LABEL,
    RANK_LABEL,
    RELAUNCH_LABEL,
    SCALE_TYPE_LABEL,
    TYPE_LABEL,
    member_name,
)
from dlop.frameworks.dlrover.scale_plan import AUTOMATIC, SCALE_PLAN
from dlop.kube.types import JsonObject

_RESOURCE = {"cpu": "1", "memory": "512Mi"}


def member_pod(job: JsonObject, member: Member) -> JsonObject:
    """A pod with the labels and the owner reference that the master gives it. The job is not its controller."""
    metadata, template = job["metadata"], job["spec"]["replicaSpecs"][member.role]["template"]
    labels = {
        **MEMBER_APP,
        NAME_LABEL: metadata["name"],
        TYPE_LABEL: member.role,
        INDEX_LABEL: str(member.id),
        RANK_LABEL: str(member.rank),
        RELAUNCH_LABEL: str(member.relaunch_count),
    }
    name = member_name(metadata["name"], member.role, member.id)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [_owner_reference(job, kind=job["kind"])],
        },
        "spec": {**template["spec"], "restartPolicy": "Never"},
    }


def scale_plan(
    job: JsonObject, number: int, *, sizes: Mapping[str, int], creates: Iterable[Member] = (), removes: Iterable[str] = ()
) -> JsonObject:
    """A plan with the fields that the master writes. `sizes` is the number of pods by role; `removes` are names of pods."""
    metadata = job["metadata"]
    return {
        "apiVersion": SCALE_PLAN.api_version,
        "kind": SCALE_PLAN.kind,
        "metadata": {
            "name": f"{metadata['name']}-scaleplan-{number}",
            "namespace": metadata["namespace"],
            "labels": {SCALE_TYPE_LABEL: AUTOMATIC},
            "ownerReferences": [_owner_reference(job, kind="elasticjob")],
        },
        "spec": {
            "ownerJob": metadata["name"],
            "replicaResourceSpecs": {role: {"replicas": size, "resource": _RESOURCE} for role, size in sizes.items()},
            "createPods": [_pod_meta(metadata["name"], member) for member in creates],
            "removePods": [{"name": name} for name in removes],
            "psHosts": [],
        },
    }


def _owner_reference(job: JsonObject, *, kind: str) -> JsonObject:
    metadata = job["metadata"]
    return {
        "apiVersion": job["apiVersion"],
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "blockOwnerDeletion": True,
    }


def _pod_meta(job: str, member: Member) -> JsonObject:
    return {
        "name": member_name(job, member.role, member.id),
        "id": member.id,
        "type": member.role,
        "rankIndex": member.rank,
        "service": f"{member_name(job, member.role, member.rank)}:3333",
        "resource": _RESOURCE,
    }
