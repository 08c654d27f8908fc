"""Manifests of the PaddleJobs of paddlepaddle.org and batch.paddlepaddle.org."""

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


def sample(name: str = "paddlejob") -> dict[str, Any]:
    """The job in the documentation of the early operator."""
    manifest: dict[str, Any] = yaml.safe_load(_SAMPLE)
    return manifest | {"metadata": {"name": name}}


def batch_role(replicas: int = 2, **pod: Any) -> dict[str, Any]:
    return {"replicas": replicas, "template": {"spec": {"containers": [{"name": "paddle", "image": "example.org/paddle:1"}], **pod}}}


def batch_job(name: str = "wide", **fields: Any) -> dict[str, Any]:
    """A job of batch.paddlepaddle.org with two parameter servers and two workers."""
    spec = {"ps": batch_role(), "worker": batch_role(), **fields}
    return {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": {"name": name}, "spec": spec}
