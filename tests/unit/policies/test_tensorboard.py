"""The objects of a TensorBoard, value by value."""

from __future__ import annotations

import copy
from typing import Any

from dlop.api.constants import TEMPLATE_HASH_ANNOTATION
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.kube.resources import SERVICES
from dlop.kube.types import JsonObject
from dlop.policies import INGRESSES
from dlop.policies.tensorboard import tensorboard_pod
from tests.unit.job.jobs import UID, PairJob, make, pair_spec

NAME = "train-tensorboard-0"
LABELS = {
    "dlop.dev/companion": "tensorboard",
    "dlop.dev/job-uid": UID,
    "replica-type": "tensorboard",
    "replica-index": "0",
    "replica-name": NAME,
}
SELECTOR = {"replica-type": "tensorboard", "replica-index": "0", "replica-name": NAME}
OWNER = {"apiVersion": "example.org/v1", "kind": "PairJob", "name": "train", "uid": UID, "controller": True, "blockOwnerDeletion": True}
MAIN: JsonObject = {
    "name": "main",
    "image": "train:1",
    "imagePullPolicy": "Always",
    "command": ["python", "train.py"],
    "args": ["--epochs", "3"],
    "env": [{"name": "BUCKET", "value": "b"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
    "envFrom": [{"secretRef": {"name": "keys"}}],
    "ports": [{"name": "main", "containerPort": 7000}],
    "resources": {"limits": {"nvidia.com/gpu": 8}},
    "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
    "securityContext": {"runAsUser": 1000},
    "livenessProbe": {"exec": {"command": ["true"]}},
    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
    "workingDir": "/work",
}
PLACEMENT: JsonObject = {
    "serviceAccountName": "trainer",
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"operator": "Exists"}],
    "volumes": [{"name": "logs", "persistentVolumeClaim": {"claimName": "logs"}}],
    "imagePullSecrets": [{"name": "registry"}],
    "securityContext": {"fsGroup": 1000},
}
PROGRAM: JsonObject = {
    "initContainers": [{"name": "fetch", "image": "fetch:1"}],
    "hostNetwork": True,
    "hostname": "leader",
    "activeDeadlineSeconds": 60,
    "restartPolicy": "Never",
    "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
    "terminationGracePeriodSeconds": 3600,
}


def job_with(tensorboard: JsonObject, *, pod: JsonObject | None = None) -> PairJob:
    template = {
        "metadata": {"labels": {"team": "blue"}, "annotations": {"note": "mine"}},
        "spec": {"containers": [{"name": "sidecar", "image": "sidecar:1"}, MAIN], **(pod or {})},
    }
    return make(PairJob, {"replicaSpecs": {"Leader": {"template": template}}, "runPolicy": {"tensorBoard": tensorboard}})


def pod_of(job: Any) -> JsonObject:
    create = tensorboard_pod(job)
    assert create is not None
    pod = copy.deepcopy(create.body)
    assert pod["metadata"].pop("annotations").keys() == {TEMPLATE_HASH_ANNOTATION}
    return pod


def test_the_pod_has_the_volumes_and_the_placement_of_the_leading_role_and_not_its_program() -> None:
    pod = pod_of(job_with({"logDir": "/logs"}, pod={**PLACEMENT, **PROGRAM}))
    assert pod["metadata"] == {
        "name": NAME,
        "namespace": "lab",
        "labels": {**LABELS, "job-name": "train"},
        "ownerReferences": [OWNER],
    }
    container = {
        "name": "tensorboard",
        "image": "train:1",
        "imagePullPolicy": "Always",
        "command": ["python", "-m", "tensorboard.main"],
        "args": ["--logdir=/logs", "--host=0.0.0.0", "--port=6006", "--path_prefix=/lab/train"],
        "env": [{"name": "BUCKET", "value": "b"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": ""}],
        "envFrom": [{"secretRef": {"name": "keys"}}],
        "ports": [{"name": "tensorboard", "containerPort": 6006}],
        "readinessProbe": {"tcpSocket": {"port": 6006}, "periodSeconds": 2},
        "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
        "securityContext": {"runAsUser": 1000},
        "workingDir": "/work",
    }
    assert pod["spec"] == {**PLACEMENT, "containers": [container], "restartPolicy": "Always"}


def test_values_of_the_manifest_are_single_arguments() -> None:
    job = job_with({"logDir": "/logs; rm -rf $(HOME)", "ingress": {"host": "h", "pathPrefix": "/tb"}, "image": "tb:2"})
    (container,) = pod_of(job)["spec"]["containers"]
    assert container["args"][0] == "--logdir=/logs; rm -rf $(HOME)"
    assert container["args"][-1] == "--path_prefix=/tb/lab/train"
    assert container["image"] == "tb:2"


def test_the_template_is_that_of_the_chief_the_master_or_the_worker() -> None:
    for roles, image in ((("PS", "Worker", "Chief"), "chief"), (("PS", "Worker", "Master"), "master"), (("PS", "Worker"), "worker")):
        specs = {
            role: {"template": {"spec": {"containers": [{"name": "tensorflow", "image": role.lower()}]}}, "replicas": 1} for role in roles
        }
        job = make(TFJob, {"tfReplicaSpecs": specs, "runPolicy": {"tensorBoard": {"logDir": "/logs"}}})
        assert pod_of(job)["spec"]["containers"][0]["image"] == image


def test_a_job_without_a_log_directory_has_no_objects() -> None:
    job = make(PairJob, pair_spec())
    assert tensorboard_pod(job) is None
    assert job.child_objects() == ()


def test_the_service_selects_the_pod_by_the_labels_of_kubedl() -> None:
    (service,) = job_with({"logDir": "/logs"}).child_objects()
    assert service.resource == SERVICES
    assert service.body == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": "lab", "labels": LABELS, "ownerReferences": [OWNER]},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": SELECTOR,
            "ports": [{"name": "tensorboard", "port": 6006}],
        },
    }


def test_the_ingress_routes_the_path_of_the_job_to_the_service() -> None:
    ingress = {"host": "boards.example.org", "pathPrefix": "/tb", "className": "nginx", "annotations": {"team": "blue"}}
    _, create = job_with({"logDir": "/logs", "ingress": ingress}).child_objects()
    assert create.resource == INGRESSES
    body = copy.deepcopy(create.body)
    assert body["metadata"]["annotations"].pop(TEMPLATE_HASH_ANNOTATION)
    backend = {"service": {"name": NAME, "port": {"number": 6006}}}
    assert body == {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": NAME, "namespace": "lab", "labels": LABELS, "ownerReferences": [OWNER], "annotations": {"team": "blue"}},
        "spec": {
            "ingressClassName": "nginx",
            "rules": [
                {
                    "host": "boards.example.org",
                    "http": {"paths": [{"path": "/tb/lab/train", "pathType": "Prefix", "backend": backend}]},
                }
            ],
        },
    }


def test_dlop_render_prints_the_service_first_and_the_pod_last() -> None:
    job = {
        "apiVersion": "example.org/v1",
        "kind": "PairJob",
        "metadata": {"name": "train"},
        "spec": pair_spec(followers=0, run_policy={"tensorBoard": {"logDir": "/logs"}}),
    }
    names = [(body["kind"], body["metadata"]["name"]) for body in render(job, Registry([PairJob]))]
    assert names == [("Service", NAME), ("Service", "train-leader-0"), ("Pod", "train-leader-0"), ("Pod", NAME)]
