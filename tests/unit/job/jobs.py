"""A small framework, and helpers that build jobs of any kind from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from dlop import ContainerProperties, DLJob, FieldRef, JobType, Options, Replica, ReplicaType
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.types import JsonObject

UID = "5f7a2f0e-8a51-4a30-9d8e-1f2d3c4b5a69"
Kind = TypeVar("Kind", bound=DLJob)


class PairJob(DLJob):
    """A leader and its followers."""

    job_type = JobType(group="example.org", version="v1", kind="PairJob")
    replica_types = (ReplicaType("Leader", maximum=1, required=True), ReplicaType("Follower", required_for_success=False))
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        return {"LEADER": self.addresses("Leader")[0], "ME": f"{replica.role}-{replica.index}"}


def template(**more: Any) -> JsonObject:
    return {"spec": {"containers": [{"name": "main", "image": "example.org/train:1", **more}]}}


def pair_spec(*, followers: int = 2, run_policy: JsonObject | None = None, **container: Any) -> JsonObject:
    roles = {"Leader": {"template": template(**container)}, "Follower": {"replicas": followers, "template": template(**container)}}
    return {"replicaSpecs": roles, "runPolicy": run_policy or {}}


def make(kind: type[Kind], spec: Any, *, name: str = "train", status: Any = None, options: Options | None = None, **metadata: Any) -> Kind:
    object_meta = ObjectMeta(**{"name": name, "namespace": "lab", "uid": UID, "generation": 1, **metadata})
    encode = msgspec.json.encode
    return kind(
        CustomObject(metadata=object_meta, spec=msgspec.Raw(encode(spec)), status=msgspec.Raw(encode(status or {}))), options=options
    )


def pair(*, name: str = "train", status: Any = None, **spec: Any) -> PairJob:
    return make(PairJob, pair_spec(**spec), name=name, status=status)


def environment(container: JsonObject) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in container.get("env", [])}
