"""Manifests of ElasticJobs and ScalePlans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlop.frameworks.dlrover.names import PLATFORM_ANNOTATION
from dlop.frameworks.dlrover.scale_plan import SCALE_PLAN
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

SCALE_PLANS: Resource = SCALE_PLAN.resource
RESOURCES = {"cpu": "1", "memory": "512Mi"}


def template(image: str = "train", **container: Any) -> JsonObject:
    return {"spec": {"containers": [{"name": "main", "image": image, **container}]}}


def elastic_job(
    name: str = "elastic",
    *,
    platform: str = "k8s",
    strategy: str = "AllreduceStrategy",
    workers: int = 2,
    ps: int | None = None,
    account: str = "default",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> JsonObject:
    """A job whose master uses an existing service account."""
    replica_specs = {
        "worker": {"replicas": workers, "template": template()},
        "dlrover-master": {"template": {"spec": {"serviceAccountName": account, "containers": [{"name": "main", "image": "dlrover"}]}}},
    }
    if ps is not None:
        replica_specs["ps"] = {"replicas": ps, "template": template()}
    replica_specs |= spec.pop("replicaSpecs", {})
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "default", "annotations": {PLATFORM_ANNOTATION: platform, **(annotations or {})}},
        "spec": {"distributionStrategy": strategy, "replicaSpecs": replica_specs, **spec},
    }


def scale_plan(
    job: str = "elastic",
    number: int = 0,
    *,
    replicas: Mapping[str, int] | None = None,
    create: Sequence[JsonObject] = (),
    remove: Sequence[str] = (),
    hosts: Sequence[str] = (),
    kind: str = "auto",
    owner: JsonObject | None = None,
    resources: Mapping[str, str] | None = None,
    **spec: Any,
) -> JsonObject:
    """A plan in the form in which the master of DLRover writes it."""
    wanted = RESOURCES if resources is None else dict(resources)
    metadata: JsonObject = {"name": f"{job}-scaleplan-{number}", "namespace": "default", "labels": {"scale-type": kind}}
    if owner is not None:
        reference = {name: owner["metadata"][name] for name in ("name", "uid")}
        metadata["ownerReferences"] = [{"apiVersion": owner["apiVersion"], "kind": "elasticjob", "blockOwnerDeletion": True, **reference}]
    body: JsonObject = {
        "ownerJob": job,
        "replicaResourceSpecs": {role: {"replicas": count, "resource": wanted} for role, count in (replicas or {}).items()},
        "createPods": list(create),
        "removePods": [{"name": name} for name in remove],
        "psHosts": list(hosts),
        **spec,
    }
    return {"apiVersion": SCALE_PLAN.api_version, "kind": SCALE_PLAN.kind, "metadata": metadata, "spec": body}


def pod_meta(role: str, pod_id: int, rank: int, *, job: str = "elastic", resources: Mapping[str, str] | None = None) -> JsonObject:
    """A pod of a plan."""
    return {
        "name": f"{job}-edljob-{role}-{pod_id}",
        "id": pod_id,
        "type": role,
        "rankIndex": rank,
        "service": f"{job}-edljob-{role}-{rank}.default.svc:{2222 if role == 'ps' else 3333}",
        "resource": RESOURCES if resources is None else dict(resources),
    }
