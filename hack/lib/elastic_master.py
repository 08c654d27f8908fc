"""The pods that the master of DLRover creates itself, on platform pyk8s of ElasticJobs. Pure."""

from __future__ import annotations

from dlop.frameworks.dlrover.names import INDEX_LABEL, MEMBER_APP, NAME_LABEL, RANK_LABEL, RELAUNCH_LABEL, TYPE_LABEL, member_name
from dlop.kube.types import JsonObject


def member_pod(job: JsonObject, role: str, member_id: int, *, rank: int, relaunch_count: int = 0) -> JsonObject:
    """A pod with the labels and the owner reference that the master gives it. The job is not its controller."""
    metadata, template = job["metadata"], job["spec"]["replicaSpecs"][role]["template"]
    labels = {
        **MEMBER_APP,
        NAME_LABEL: metadata["name"],
        TYPE_LABEL: role,
        INDEX_LABEL: str(member_id),
        RANK_LABEL: str(rank),
        RELAUNCH_LABEL: str(relaunch_count),
    }
    owner = {name: job[name] for name in ("apiVersion", "kind")} | {name: metadata[name] for name in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": member_name(metadata["name"], role, member_id),
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        },
        "spec": {**template["spec"], "restartPolicy": "Never"},
    }
