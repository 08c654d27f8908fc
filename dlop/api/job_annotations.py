"""Annotations of a job that have the meaning of fields of its spec, for kinds whose spec does not have these fields.

Some of them are those of KubeDL. A field of the spec takes precedence over the annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from dlop.api.code_sync import with_annotated_code
from dlop.api.depends_on import with_start_order
from dlop.api.fields import ManifestField
from dlop.api.spec import JobSpec
from dlop.api.spot_replicas import with_spot_annotation
from dlop.api.tensorboard import TENSORBOARD_ANNOTATION, read_tensorboard_config
from dlop.api.types import ReplicaType
from dlop.kube.objects import MAX_JSON_LEVELS, count_json_levels

NETWORK_MODE_ANNOTATION = "kubedl.io/network-mode"
GIT_SYNC_ANNOTATION = "kubedl.io/git-sync-config"
START_ORDER_ANNOTATION = "dlop.dev/start-order"
ELASTIC_TRAINING_ANNOTATION = "kubedl.io/enable-elastic-training"
ERROR_MONITORING_ANNOTATION = "pai.ai/enable-error-monitoring"
SPOT_REPLICAS_ANNOTATION = "dlop.dev/spot-replicas"


def annotation_path(name: str) -> str:
    """The path of an annotation, for messages."""
    return f"metadata.annotations[{name}]"


def spec_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations that are part of the specification of a job; empty for most jobs."""
    return {name: value for name, value in annotations.items() if name in _READERS}


def with_annotations(spec: JobSpec, annotations: Mapping[str, str], manifest: ManifestField, *, types: tuple[ReplicaType, ...]) -> JobSpec:
    """The spec with what these annotations add. Problems are added to those of the manifest. `types` are the roles of the kind."""
    for name, value in annotations.items():
        spec = _READERS[name](spec, ManifestField(annotation_path(name), value, manifest.problems, manifest.warnings), types)
    return spec


def decode_annotation(field: ManifestField) -> ManifestField:
    """The JSON value of an annotation; absent if it is not JSON or has too many levels, which is reported."""
    data = field.string().encode()
    try:
        value = msgspec.json.decode(data)
        # Deeper values may be decoded here, and fail to be encoded as a part of a pod.
        is_too_deep = count_json_levels(data) > MAX_JSON_LEVELS
    except RecursionError:
        value, is_too_deep = None, True
    except msgspec.DecodeError as error:
        field.error(f"must be JSON: {error}")
        return replace(field, value=None)
    if is_too_deep:
        field.error(f"must be JSON with at most {MAX_JSON_LEVELS} levels")
    return replace(field, value=None if is_too_deep else value)


def _network_mode(spec: JobSpec, field: ManifestField, _: tuple[ReplicaType, ...]) -> JobSpec:
    if field.value != "host":
        field.error(f"must be 'host', got {field.value!r:.60}; remove the annotation to use the network of the pods")
        return spec
    return replace(spec, run_policy=replace(spec.run_policy, host_network=True))


def _git_sync(spec: JobSpec, field: ManifestField, _: tuple[ReplicaType, ...]) -> JobSpec:
    return with_annotated_code(spec, decode_annotation(field))


def _start_order(spec: JobSpec, field: ManifestField, types: tuple[ReplicaType, ...]) -> JobSpec:
    return with_start_order(spec, decode_annotation(field), types)


def _elastic_training(spec: JobSpec, field: ManifestField, _: tuple[ReplicaType, ...]) -> JobSpec:
    if field.value == "true":
        field.warning("has no effect: a job that is scaled restarts; use a PyTorchJob of kubeflow.org with elasticPolicy, or an ElasticJob")
    return spec


def _error_monitoring(spec: JobSpec, field: ManifestField, _: tuple[ReplicaType, ...]) -> JobSpec:
    if field.value == "true":
        field.warning("has no effect: dlop itself restarts failed replicas; use restartPolicy, runPolicy.restartScope and backoffLimit")
    return spec


def _spot_replicas(spec: JobSpec, field: ManifestField, types: tuple[ReplicaType, ...]) -> JobSpec:
    return with_spot_annotation(spec, decode_annotation(field), types)


def _tensorboard(spec: JobSpec, field: ManifestField, _: tuple[ReplicaType, ...]) -> JobSpec:
    if spec.run_policy.tensorboard is not None:
        field.warning("has no effect, because the run policy has tensorBoard")
        return spec
    known_problems = len(field.problems)
    config = decode_annotation(field)
    if len(field.problems) > known_problems:
        return spec
    return replace(spec, run_policy=replace(spec.run_policy, tensorboard=read_tensorboard_config(config)))


_READERS: dict[str, Callable[[JobSpec, ManifestField, tuple[ReplicaType, ...]], JobSpec]] = {
    NETWORK_MODE_ANNOTATION: _network_mode,
    GIT_SYNC_ANNOTATION: _git_sync,
    START_ORDER_ANNOTATION: _start_order,
    ELASTIC_TRAINING_ANNOTATION: _elastic_training,
    ERROR_MONITORING_ANNOTATION: _error_monitoring,
    SPOT_REPLICAS_ANNOTATION: _spot_replicas,
    TENSORBOARD_ANNOTATION: _tensorboard,
}
