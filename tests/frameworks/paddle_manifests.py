"""Manifests of the kinds of paddlepaddle.org and batch.paddlepaddle.org."""

from __future__ import annotations

from typing import Any

import yaml

_SAMPLE = """
apiVersion: paddlepaddle.org/v1
kind: PaddleJob
metadata:
  name: paddlejob
spec:
  image: "example.org/fluid_job_train_test:1.0"
  port: 7164
  ports_num: 1
  ports_num_for_sparse: 1
  mountPath: "/home/work/namespace/"
  pserver:
    min-instance: 2
    max-instance: 2
    resources:
      limits: {cpu: "800m", memory: "1Gi"}
      requests: {cpu: "500m", memory: "600Mi"}
  trainer:
    entrypoint: "python /home/job-1/train.py"
    workspace: "/home/job-1/"
    passes: 10
    min-instance: 2
    max-instance: 6
    resources:
      limits: {cpu: "200m", memory: "200Mi"}
      requests: {cpu: "200m", memory: "200Mi"}
"""

_TRAINING_EXAMPLE = """
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata:
  name: examplejob
spec:
  image: "example.org/paddlejob-mock:1"
  port: 7164
  ports_num: 1
  ports_num_for_sparse: 1
  fault_tolerant: true
  trainer:
    entrypoint: "python /workspace/vgg16.py"
    workspace: "/workspace"
    passes: 50
    min-instance: 2
    max-instance: 6
    resources:
      limits: {cpu: "200m", memory: "200Mi"}
      requests: {cpu: "200m", memory: "200Mi"}
  pserver:
    min-instance: 2
    max-instance: 2
    resources:
      limits: {cpu: "800m", memory: "1Gi"}
      requests: {cpu: "500m", memory: "600Mi"}
"""
_TRAINING_EXAMPLE_WITH_POD_GROUP = """
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata:
  name: example-job-with-kube-batch
spec:
  image: "example.org/paddlejob-mock:1"
  port: 7164
  ports_num: 1
  ports_num_for_sparse: 1
  fault_tolerant: true
  schedulerName: kube-batchd
  podGroupName: podgroup-1
  mountPath: "/home/work/namespace/"
  master:
    resources:
      limits: {cpu: "100m", memory: "100Mi"}
      requests: {cpu: "100m", memory: "100Mi"}
  pserver:
    min-instance: 2
    max-instance: 2
    resources:
      limits: {cpu: "100m", memory: "100Mi"}
      requests: {cpu: "100m", memory: "100Mi"}
  trainer:
    entrypoint: "sleep 100"
    workspace: "/home/job-1/"
    passes: 10
    min-instance: 2
    max-instance: 2
    resources:
      limits: {cpu: "100m", memory: "100Mi"}
      requests: {cpu: "100m", memory: "100Mi"}
"""


def sample(name: str = "paddlejob") -> dict[str, Any]:
    """The job in the documentation of the early operator."""
    manifest: dict[str, Any] = yaml.safe_load(_SAMPLE)
    return manifest | {"metadata": {"name": name}}


def training_example() -> dict[str, Any]:
    """The fault-tolerant job with elastic trainers in the documentation of the old operator."""
    manifest: dict[str, Any] = yaml.safe_load(_TRAINING_EXAMPLE)
    return manifest


def training_example_with_pod_group() -> dict[str, Any]:
    """The example of the old operator for gang scheduling, without its PodGroup."""
    manifest: dict[str, Any] = yaml.safe_load(_TRAINING_EXAMPLE_WITH_POD_GROUP)
    return manifest


def training_job(name: str = "train", **fields: Any) -> dict[str, Any]:
    """A TrainingJob with two parameter servers and two trainers."""
    spec = {"image": "example.org/paddle:1", "pserver": {"min-instance": 2}, "trainer": {"min-instance": 2}, **fields}
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def stored_training_job(name: str) -> dict[str, Any]:
    """A job without parameter servers as the old operator stored it: with all fields of its types, most of them empty."""
    names_by_value: tuple[tuple[Any, str], ...] = (
        (False, "host_network local_job fault_tolerant matrix"),
        (0, "trainer_port trainer_ports_num port ports_num ports_num_for_sparse passes"),
        ("", "mountpath nfsmount"),
        (None, "volumes VolumeMounts frame_work"),
    )
    empty = {value_name: value for value, names in names_by_value for value_name in names.split()}
    lists = "envs grace_period_seconds pre_stop_cmd tolerations node_selector liveness_probe readiness_probe replicaSpec"
    role: dict[str, Any] = {"resources": {}, **dict.fromkeys(lists.split())}
    sized = {**role, "min-instance": 0, "max-instance": 0, "entrypoint": "", "imagePullSecrets": None}
    return training_job(
        name,
        **empty,
        is_nccl=True,
        annotations={"usergroupid": "", "userid": "", "priority": "", "scheduler": "", "walltime": 0},
        master={"etcd-endpoint": "", **role},
        pserver=sized,
        trainer={**sized, "etcd-endpoint": "", "workspace": "", "min-instance": 2, "index_succeed": False},
    )


def batch_role(replicas: int = 2, **pod: Any) -> dict[str, Any]:
    return {"replicas": replicas, "template": {"spec": {"containers": [{"name": "paddle", "image": "example.org/paddle:1"}], **pod}}}


def batch_job(name: str = "wide", **fields: Any) -> dict[str, Any]:
    """A job of batch.paddlepaddle.org with two parameter servers and two workers."""
    spec = {"ps": batch_role(), "worker": batch_role(), **fields}
    return {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": {"name": name}, "spec": spec}
