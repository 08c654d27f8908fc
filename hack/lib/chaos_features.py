"""Features of the jobs of a chaos test: start order, spot replicas, host network, code and TensorBoards. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random

from dlop.api.job_annotations import GIT_SYNC_ANNOTATION, NETWORK_MODE_ANNOTATION, SPOT_REPLICAS_ANNOTATION, START_ORDER_ANNOTATION
from dlop.api.tensorboard import TENSORBOARD_ANNOTATION
from dlop.api.types import StartAfter, StartCondition
from dlop.kube.types import JsonObject

REPOSITORY: JsonObject = {"source": "https://git.example.org/train.git", "branch": "main", "image": "example.org/git-sync:1"}
_CONDITIONS = (StartCondition.RUNNING, StartCondition.READY, StartCondition.SUCCEEDED)
_PROBABILITY = 0.3


@dataclass(frozen=True, slots=True)
class SpotDraft:
    """The last replicas of a role are spot replicas."""

    replicas: int
    max_disruptions: int | None

    def to_json(self) -> JsonObject:
        toleration = {"key": "example.org/spot", "operator": "Exists"}
        maximum = {} if self.max_disruptions is None else {"maxDisruptions": self.max_disruptions}
        return {"replicas": self.replicas, "labels": {"tier": "spot"}, "tolerations": [toleration], **maximum}


@dataclass(frozen=True, slots=True)
class TensorBoardDraft:
    """A TensorBoard of a job."""

    ttl_seconds: int
    has_ingress: bool
    is_deleted: bool
    """Whether a user deletes its first pod."""

    def to_json(self, ingress_field: str) -> JsonObject:
        ingress = {ingress_field: {"host": "boards.example.org", "pathPrefix": "/tb"}} if self.has_ingress else {}
        return {"logDir": "/logs", "image": "example.org/tensorboard:1", "ttlSecondsAfterJobFinished": self.ttl_seconds, **ingress}


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a job, independent of the format of its kind."""

    start_order: Mapping[str, tuple[StartAfter, ...]] = field(default_factory=dict)
    """What the pods of each role wait for. Empty means the order of the kind."""
    spot: Mapping[str, SpotDraft] = field(default_factory=dict)
    """By role."""
    host_network: bool = False
    code_sync: bool = False
    tensorboard: TensorBoardDraft | None = None
    has_role_fields: bool = True
    """Whether roles have fields for start order and spot replicas. Otherwise, these are annotations of the job."""

    @property
    def names(self) -> tuple[str, ...]:
        named = {
            "start order": self.start_order,
            "spot replicas": self.spot,
            "host network": self.host_network,
            "code sync": self.code_sync,
            "TensorBoard": self.tensorboard,
        }
        return tuple(name for name, value in named.items() if value)

    def run_policy(self) -> JsonObject:
        if not self.has_role_fields:
            return {}
        return {
            **({"hostNetwork": True} if self.host_network else {}),
            **({"codeSync": [REPOSITORY]} if self.code_sync else {}),
            **({"tensorBoard": self.tensorboard.to_json("ingress")} if self.tensorboard else {}),
        }

    def role_fields(self, role: str) -> JsonObject:
        if not self.has_role_fields:
            return {}
        order = {"dependsOn": _dependencies(self.start_order[role])} if role in self.start_order else {}
        return order | ({"spotReplicas": self.spot[role].to_json()} if role in self.spot else {})

    def annotations(self) -> dict[str, str]:
        """The same features as annotations, if they are not fields."""
        if self.has_role_fields:
            return {}
        order = {role: _dependencies(upstream) for role, upstream in self.start_order.items()}
        return {
            **({START_ORDER_ANNOTATION: json.dumps(order)} if order else {}),
            **({SPOT_REPLICAS_ANNOTATION: json.dumps({role: spot.to_json() for role, spot in self.spot.items()})} if self.spot else {}),
            **({NETWORK_MODE_ANNOTATION: "host"} if self.host_network else {}),
            **({GIT_SYNC_ANNOTATION: json.dumps(REPOSITORY)} if self.code_sync else {}),
            **({TENSORBOARD_ANNOTATION: json.dumps(self.tensorboard.to_json("ingressSpec"))} if self.tensorboard else {}),
        }


def _dependencies(upstream: tuple[StartAfter, ...]) -> list[JsonObject]:
    return [{"role": after.role, "condition": after.condition.value} for after in upstream]


def draw_start_order(roles: Collection[str], *, completing: Collection[str], rng: Random) -> dict[str, tuple[StartAfter, ...]]:
    """What each role waits for: without cycles, because a role only waits for earlier ones of a random sequence.

    The order of the kind is replaced for all roles, so that both together have no cycle. `completing` are the roles that succeed before
    the job does.
    """
    if len(roles) < 2 or rng.random() >= _PROBABILITY:
        return {}
    sequence = rng.sample(sorted(roles), len(roles))
    order: dict[str, tuple[StartAfter, ...]] = {sequence[0]: ()}
    for number, role in enumerate(sequence[1:], start=1):
        upstream = rng.sample(sequence[:number], rng.randint(0 if number > 1 else 1, min(2, number)))
        order[role] = tuple(StartAfter(name, _draw_condition(completes=name in completing, rng=rng)) for name in upstream)
    return order


def _draw_condition(*, completes: bool, rng: Random) -> StartCondition:
    return rng.choice(_CONDITIONS if completes else _CONDITIONS[:2])


def draw_spot_replicas(most: Mapping[str, int], *, rng: Random) -> dict[str, SpotDraft]:
    """`most` is the largest number of spot replicas by role."""
    possible = {role: count for role, count in most.items() if count > 0}
    if not possible or rng.random() >= _PROBABILITY:
        return {}
    chosen = rng.sample(sorted(possible), rng.randint(1, len(possible)))
    return {role: SpotDraft(rng.randint(1, possible[role]), rng.choice((None, 1, 2))) for role in chosen}


def draw_tensorboard(rng: Random) -> TensorBoardDraft | None:
    return TensorBoardDraft(rng.choice((0, 2)), has_ingress=draw_flag(rng), is_deleted=draw_flag(rng)) if draw_flag(rng) else None


def draw_flag(rng: Random) -> bool:
    """Whether a job has a feature."""
    return rng.random() < _PROBABILITY
