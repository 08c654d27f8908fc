"""`elasticPolicy` of a PyTorchJob: its model, and the rendezvous settings of `torchrun`."""

from __future__ import annotations

from typing import Any

from dlop import ApiModel, Count, JsonObject, ManifestField, Port, rule

ELASTIC_POLICY_RULES: tuple[JsonObject, ...] = (
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
"""CEL rules for a spec with an elastic policy."""
_BOUNDS = ("minReplicas", "maxReplicas")


class RendezvousSetting(ApiModel):
    """Setting of the rendezvous backend."""

    key: str | None = None
    """Name of the setting."""
    value: str | None = None
    """Value of the setting."""


class ElasticPolicyModel(ApiModel):
    """Elastic training with `torchrun`."""

    min_replicas: Count | None = None
    """Minimum number of workers. Defaults to maxReplicas."""
    max_replicas: Count | None = None
    """Maximum number of workers. Defaults to minReplicas."""
    rdzv_backend: str | None = None
    """Rendezvous backend. Defaults to c10d."""
    rdzv_port: Port | None = None
    """Port of the rendezvous endpoint. Defaults to the port of the workers."""
    rdzv_host: str | None = None
    """Host of the rendezvous endpoint. Defaults to worker 0."""
    rdzv_id: str | None = None
    """Rendezvous ID."""
    rdzv_conf: list[RendezvousSetting] | None = None
    """Further settings of the rendezvous backend."""
    standalone: bool | None = None
    """Runs each pod as a standalone job with its own rendezvous."""
    n_proc_per_node: Count | None = None
    """Deprecated: use spec.nprocPerNode instead."""
    max_restarts: Count | None = None
    """Maximum number of restarts of the worker group by `torchrun`."""
    metrics: list[Any] | None = None
    """Metrics for a HorizontalPodAutoscaler of the workers. Without metrics, none is created."""


def rendezvous_env(policy: ManifestField, *, host: str, port: int | None, workers: int) -> dict[str, str]:
    """Rendezvous variables of `torchrun`. `host`, `port` and `workers` are the defaults for fields that the policy does not set."""
    minimum, maximum = elastic_bounds(policy, workers)
    return {
        "PET_RDZV_ENDPOINT": f"{policy.get('rdzvHost').string() or host}:{policy.get('rdzvPort').optional_integer() or port}",
        "PET_RDZV_BACKEND": policy.get("rdzvBackend").string("c10d"),
        "PET_NNODES": f"{minimum}:{maximum}",
        **_optional_variables(policy),
    }


def has_bounds(policy: ManifestField) -> bool:
    """Whether the number of nodes in the environment comes from the policy and not from the replicas."""
    return any(not policy.get(name).is_absent for name in _BOUNDS)


def elastic_bounds(policy: ManifestField, workers: int) -> tuple[int, int]:
    """Minimum and maximum. Each defaults to the other one, and both default to the number of workers."""
    minimum, maximum = (policy.get(name).optional_integer() for name in _BOUNDS)
    lower = minimum if minimum is not None else maximum if maximum is not None else workers
    return lower, maximum if maximum is not None else lower


def _optional_variables(policy: ManifestField) -> dict[str, str]:
    """Variables for fields that the manifest sets."""
    fields = {"PET_MAX_RESTARTS": "maxRestarts", "PET_NPROC_PER_NODE": "nProcPerNode", "PET_RDZV_ID": "rdzvId"}
    variables = {name: str(policy.get(field).value) for name, field in fields.items() if not policy.get(field).is_absent}
    if pairs := [f"{setting.get('key').string()}={setting.get('value').string()}" for setting in policy.get("rdzvConf").items()]:
        variables["PET_RDZV_CONF"] = ",".join(pairs)
    return variables | ({"PET_STANDALONE": ""} if policy.get("standalone").boolean() else {})
