"""`elasticPolicy` of a PyTorchJob: workers that come and go, and what `torchrun` has to know to bring them together."""

from __future__ import annotations

from typing import Any

from dlop import Create, ManifestField
from dlop.api.schema import rule
from dlop.api.spec_models import ApiModel, Count, Port
from dlop.kube.resources import HORIZONTAL_POD_AUTOSCALERS
from dlop.kube.types import JsonObject

AUTOSCALER_RULES: tuple[JsonObject, ...] = (
    {
        "apiGroups": [HORIZONTAL_POD_AUTOSCALERS.group],
        "resources": [HORIZONTAL_POD_AUTOSCALERS.plural],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
)
"""What the operator itself needs."""
ELASTIC_RULES: tuple[JsonObject, ...] = (
    rule(
        "!has(self.elasticPolicy) || 'Worker' in self.pytorchReplicaSpecs",
        "must be configured if elastic policy is used",
        field_path=".pytorchReplicaSpecs.Worker",
        reason="FieldValueRequired",
    ),
    rule(
        "!has(self.elasticPolicy) || !has(self.elasticPolicy.nProcPerNode) || !has(self.nprocPerNode)",
        "must not be used together with spec.nprocPerNode",
        field_path=".elasticPolicy.nProcPerNode",
        reason="FieldValueForbidden",
    ),
)
"""What a spec with such a policy has to keep to."""
_BOUNDS = ("minReplicas", "maxReplicas")


class RendezvousSetting(ApiModel):
    """A setting of the rendezvous."""

    key: str | None = None
    value: str | None = None


class ElasticPolicyModel(ApiModel):
    """How workers that come and go find each other."""

    min_replicas: Count | None = None
    """How few workers the job can run with."""
    max_replicas: Count | None = None
    """How many workers the job can use."""
    rdzv_backend: str | None = None
    """How workers meet; c10d when left out."""
    rdzv_port: Port | None = None
    """Where they meet; the port of the workers when left out."""
    rdzv_host: str | None = None
    """Where they meet; at worker 0 when left out."""
    rdzv_id: str | None = None
    """The name of the meeting."""
    rdzv_conf: list[RendezvousSetting] | None = None
    """Further settings of the meeting."""
    standalone: bool | None = None
    """Whether each pod is a job of its own."""
    n_proc_per_node: Count | None = None
    """Deprecated: write `spec.nprocPerNode`."""
    max_restarts: Count | None = None
    """How often `torchrun` restarts its workers."""
    metrics: list[Any] | None = None
    """What an autoscaler goes by."""


def rendezvous(policy: ManifestField, *, host: str, port: int, workers: int) -> dict[str, str]:
    """Where the workers meet, and how many. `host`, `port` and `workers` are what holds where the policy says nothing."""
    least, most = _bounds(policy, workers)
    return {
        "PET_RDZV_ENDPOINT": f"{policy.get('rdzvHost').text() or host}:{policy.get('rdzvPort').optional_integer() or port}",
        "PET_RDZV_BACKEND": policy.get("rdzvBackend").text("c10d"),
        "PET_NNODES": f"{least}:{most}",
        **_settings(policy),
    }


def has_bounds(policy: ManifestField) -> bool:
    """Whether workers are told a range, and not how many there are."""
    return any(not policy.get(name).is_absent for name in _BOUNDS)


def autoscalers(policy: ManifestField, *, job: JsonObject, metadata: JsonObject, workers: int) -> tuple[Create, ...]:
    """What scales the workers of a job by the metrics of the policy; nothing where there are none."""
    metrics = policy.get("metrics")
    if metrics.is_absent:
        return ()
    least, most = _bounds(policy, workers)
    target = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": job["name"]}
    body = {
        "apiVersion": HORIZONTAL_POD_AUTOSCALERS.api_version,
        "kind": HORIZONTAL_POD_AUTOSCALERS.kind,
        "metadata": metadata,
        "spec": {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most, "metrics": metrics.value},
    }
    return (Create(HORIZONTAL_POD_AUTOSCALERS, body),)


def _bounds(policy: ManifestField, workers: int) -> tuple[int, int]:
    """A bound that is left out is the other one; without any, there are as many workers as there are."""
    least, most = (policy.get(name).optional_integer() for name in _BOUNDS)
    at_least = least if least is not None else most if most is not None else workers
    return at_least, most if most is not None else at_least


def _settings(policy: ManifestField) -> dict[str, str]:
    """What is told only where the manifest says it."""
    plain = {"PET_MAX_RESTARTS": "maxRestarts", "PET_NPROC_PER_NODE": "nProcPerNode", "PET_RDZV_ID": "rdzvId"}
    found = {name: str(policy.get(field).value) for name, field in plain.items() if not policy.get(field).is_absent}
    if pairs := [f"{each.get('key').text()}={each.get('value').text()}" for each in policy.get("rdzvConf").items()]:
        found["PET_RDZV_CONF"] = ",".join(pairs)
    return found | ({"PET_STANDALONE": ""} if policy.get("standalone").flag() else {})
