"""More than a hundred invalid manifests. Each is an edit of a valid one, with the path and the line that must be reported."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from tests.local.local_jobs import job

Body = dict[str, Any]

INVALID_YAML = "invalid YAML"

_STEP = re.compile(r"\[(\d+)\]|[^.\[\]]+")


def steps(path: str) -> list[str | int]:
    """`a.b[0]` as keys and indexes."""
    return [int(step[1]) if step[1] is not None else step[0] for step in _STEP.finditer(path)]


@dataclass(frozen=True)
class InvalidManifest:
    """A manifest with one error."""

    title: str
    text: str
    path: str
    """The path that must be reported."""
    word: str
    """A word of the line that must be reported."""


def _valid_mxjob() -> Body:
    return job("good", scheduler="true", worker="true", workers=2)


def _valid_tfjob() -> Body:
    entry = {"replicas": 1, "template": {"spec": {"containers": [{"name": "tf", "image": "none", "command": ["true"]}]}}}
    roles = [{"replicaType": role, **copy.deepcopy(entry)} for role in ("ps", "worker")]
    return {"apiVersion": "mpba.fbk.eu/v1", "kind": "TFJob", "metadata": {"name": "good"}, "spec": roles}


def _valid_pod() -> Body:
    containers = [{"name": "main", "image": "none", "command": ["true"]}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}, "spec": {"containers": containers}}


def _valid_config_map() -> Body:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "good"}, "data": {"key": "value"}}


def _valid_secret() -> Body:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "good"}, "data": {"key": "aGVsbG8="}}


def _valid_service() -> Body:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "good"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}


VALID: tuple[Callable[[], Body], ...] = (_valid_mxjob, _valid_tfjob, _valid_pod, _valid_config_map, _valid_secret, _valid_service)
_REMOVED = object()


def edit_manifest(body: Body, path: str, value: Any) -> str:
    """The manifest with one field changed or removed."""
    *parents, last = steps(path)
    target: Any = body
    for step in parents:
        target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
    if value is _REMOVED:
        del target[last]
    elif isinstance(target, list) and last == len(target):
        target.append(value)
    else:
        target[last] = value
    return yaml.safe_dump(body, sort_keys=False)


def _edit(title: str, valid: Callable[[], Body], path: str, value: Any, reported: str = "", word: str = "") -> InvalidManifest:
    """`reported` defaults to the changed path, and `word` to its last key."""
    reported = reported or path
    last = next(step for step in reversed(steps(reported)) if isinstance(step, str))
    return InvalidManifest(title, edit_manifest(valid(), path, value), reported, word or last)


_ROLE = "spec.replicaSpecs[0]"
_SPEC = f"{_ROLE}.template.spec"
_CONTAINER = f"{_SPEC}.containers[0]"
_WORKER = "spec.replicaSpecs[1]"
_TF_CONTAINER = "spec[1].template.spec.containers[0]"
_POD_CONTAINER = "spec.containers[0]"
_LONG = "x" * 64


def _object_errors() -> list[InvalidManifest]:
    mx = _valid_mxjob
    return [
        _edit("no apiVersion", mx, "apiVersion", _REMOVED, "apiVersion", "kind"),
        _edit("no kind", mx, "kind", _REMOVED, "kind", "apiVersion"),
        _edit("an unknown kind", mx, "kind", "MXJobs"),
        _edit("a kind in lower case", mx, "kind", "mxjob", "MXJob", "apiVersion"),
        _edit("an unknown group", mx, "apiVersion", "fioravanza.org/v1alpha1", "fioravanza.org/v1alpha1"),
        _edit("an unknown version", mx, "apiVersion", "fioravanzo.org/v1", "fioravanzo.org/v1 ", "apiVersion"),
        _edit("a number as apiVersion", mx, "apiVersion", 1, "apiVersion"),
        _edit("a deployment", mx, "kind", "Deployment"),
        _edit("no metadata", mx, "metadata", _REMOVED, "metadata.name", "apiVersion"),
        _edit("no name", mx, "metadata.name", _REMOVED, "metadata.name", "metadata"),
        _edit("metadata as a string", mx, "metadata", "good", "metadata"),
        _edit("a name with upper-case letters", mx, "metadata.name", "Good"),
        _edit("a name with an underscore", mx, "metadata.name", "not_good"),
        _edit("a name that ends with a dash", mx, "metadata.name", "good-"),
        _edit("a name that is too long", mx, "metadata.name", "x" * 260),
        _edit("a name that is a number", mx, "metadata.name", 17),
        _edit("a namespace with a space", mx, "metadata.namespace", "my space"),
        _edit("a label with a space", mx, "metadata.labels", {"team": "deep learning"}, "metadata.labels"),
        _edit("a label that is too long", mx, "metadata.labels", {"team": _LONG}, "metadata.labels"),
        _edit("a label key with two slashes", mx, "metadata.labels", {"a/b/c": "d"}, "metadata.labels"),
        _edit("an annotation with an invalid key", mx, "metadata.annotations", {"not good": "x"}, "metadata.annotations"),
        _edit("an unknown field of metadata", mx, "metadata.lables", {"a": "b"}),
        _edit("no spec", mx, "spec", _REMOVED, "spec", "apiVersion"),
        _edit("a spec as a string", mx, "spec", "many workers"),
        _edit("an unknown field next to the spec", mx, "specs", {}),
    ]


def _job_errors() -> list[InvalidManifest]:
    mx, tf = _valid_mxjob, _valid_tfjob
    return [
        _edit("no roles", mx, "spec.replicaSpecs", _REMOVED, "spec.replicaSpecs", "spec"),
        _edit("roles as an object", mx, "spec.replicaSpecs", {"SCHEDULER": {}}),
        _edit("an empty list of roles", mx, "spec.replicaSpecs", []),
        _edit("an unknown role", mx, f"{_WORKER}.mxReplicaType", "WORKERS"),
        _edit("a role in lower case", mx, f"{_WORKER}.mxReplicaType", "worker"),
        _edit("a duplicate role", mx, f"{_WORKER}.mxReplicaType", "SCHEDULER", "spec.replicaSpecs"),
        _edit("two schedulers", mx, f"{_ROLE}.replicas", 2),
        _edit("no scheduler", mx, f"{_ROLE}.mxReplicaType", "SERVER", "spec.replicaSpecs"),
        _edit("an unknown field of a role", mx, f"{_WORKER}.replica", 3, word="replica: 3"),
        _edit("an unknown field of the spec", mx, "spec.runPolcy", {}),
        _edit("the type of a role in an unknown field", mx, f"{_WORKER}.mxReplicaTypes", "WORKER"),
        _edit("negative replicas", mx, f"{_WORKER}.replicas", -1),
        _edit("too many replicas", mx, f"{_WORKER}.replicas", 1_000_000),
        _edit("fractional replicas", mx, f"{_WORKER}.replicas", 1.5),
        _edit("replicas as a string", mx, f"{_WORKER}.replicas", "two"),
        _edit("an invalid port number", mx, f"{_WORKER}.mxPort", 70_000),
        _edit("a port as a string", mx, f"{_WORKER}.mxPort", "9000"),
        _edit("a port of zero", mx, f"{_WORKER}.mxPort", 0),
        _edit("a chief that is not a role of the job", mx, "spec.terminationPolicy", {"chief": {"replicaName": "SERVER"}}, "spec"),
        _edit(
            "a chief that is not a replica", mx, "spec.terminationPolicy", {"chief": {"replicaName": "WORKER", "replicaIndex": 7}}, "spec"
        ),
        _edit("a termination policy without a chief", mx, "spec.terminationPolicy", {}, "spec.terminationPolicy.chief", "termination"),
        _edit("a runtime id with upper-case letters", mx, "spec.RuntimeId", "ABC"),
        _edit("a run policy as a string", mx, "spec.runPolicy", "fast"),
        _edit("an unknown field of the run policy", mx, "spec.runPolicy.backofLimit", 3),
        _edit("a negative backoffLimit", mx, "spec.runPolicy.backoffLimit", -1),
        _edit("a deadline as a string", mx, "spec.runPolicy.activeDeadlineSeconds", "10m"),
        _edit("a negative ttl", mx, "spec.runPolicy.ttlSecondsAfterFinished", -5),
        _edit("an unknown cleanPodPolicy", mx, "spec.runPolicy.cleanPodPolicy", "Some"),
        _edit("an unknown restartScope", mx, "spec.runPolicy.restartScope", "Pod"),
        _edit("suspend as a string", mx, "spec.runPolicy.suspend", "yes"),
        _edit("a managedBy that is too long", mx, "spec.runPolicy.managedBy", _LONG),
        _edit("a spec that is not a list", tf, "spec", {"worker": {}}),
        _edit("a list without workers", tf, "spec[1].replicaType", "ps", "spec"),
        _edit("an unknown type in the list", tf, "spec[0].replicaType", "parameter-server"),
        _edit("an entry without a type", tf, "spec[0].replicaType", _REMOVED, "spec[0].replicaType", "- replicas"),
        _edit("an entry without replicas", tf, "spec[0].replicas", _REMOVED, "spec[0].replicas", "replicaType"),
    ]


def _template_errors() -> list[InvalidManifest]:
    mx, tf = _valid_mxjob, _valid_tfjob
    volume = {"name": "data", "emptyDir": {}}
    return [
        _edit("no template", mx, f"{_ROLE}.template", _REMOVED, f"{_ROLE}.template", "- replicas"),
        _edit("a template without a spec", mx, _SPEC, _REMOVED, _SPEC, "template"),
        _edit("no containers", mx, f"{_SPEC}.containers", []),
        _edit("containers as an object", mx, f"{_SPEC}.containers", {"name": "mxnet"}),
        _edit("no container with the name of the kind", mx, f"{_CONTAINER}.name", "main", "spec.replicaSpecs", "replicaSpecs"),
        _edit("a container without a name", tf, f"{_TF_CONTAINER}.name", _REMOVED, f"{_TF_CONTAINER}.name", "image"),
        _edit("a container with an invalid name", tf, f"{_TF_CONTAINER}.name", "Tensor Flow"),
        _edit("a container without an image", mx, f"{_CONTAINER}.image", _REMOVED, f"{_CONTAINER}.image", "name"),
        _edit("an image that is a number", mx, f"{_CONTAINER}.image", 3),
        _edit("an unknown field of a container", mx, f"{_CONTAINER}.comand", ["true"]),
        _edit("a command as a string", mx, f"{_CONTAINER}.command", "true"),
        _edit("an argument that is a number", mx, f"{_CONTAINER}.args", ["--rate", 0.1], f"{_CONTAINER}.args[1]", "0.1"),
        _edit("a variable without a name", mx, f"{_CONTAINER}.env", [{"value": "x"}], f"{_CONTAINER}.env[0]", "value"),
        _edit(
            "a variable name with an equals sign",
            mx,
            f"{_CONTAINER}.env",
            [{"name": "A=B", "value": "x"}],
            f"{_CONTAINER}.env[0].name",
            "A=B",
        ),
        _edit(
            "a variable with a number as value", mx, f"{_CONTAINER}.env", [{"name": "A", "value": 1}], f"{_CONTAINER}.env[0].value", "value"
        ),
        _edit(
            "a variable with an empty source",
            mx,
            f"{_CONTAINER}.env",
            [{"name": "A", "valueFrom": {}}],
            f"{_CONTAINER}.env[0].valueFrom",
            "valueFrom",
        ),
        _edit("a port that is too high", mx, f"{_CONTAINER}.ports", [{"containerPort": 99999}], f"{_CONTAINER}.ports[0]", "containerPort"),
        _edit(
            "a port name that is too long",
            mx,
            f"{_CONTAINER}.ports",
            [{"name": "a-very-long-port-name", "containerPort": 80}],
            f"{_CONTAINER}.ports[0].name",
            "name",
        ),
        _edit(
            "an unknown protocol",
            mx,
            f"{_CONTAINER}.ports",
            [{"containerPort": 80, "protocol": "HTTP"}],
            f"{_CONTAINER}.ports[0].protocol",
            "protocol",
        ),
        _edit(
            "a negative memory request",
            mx,
            f"{_CONTAINER}.resources",
            {"requests": {"memory": "-1Gi"}},
            f"{_CONTAINER}.resources.requests",
            "memory",
        ),
        _edit(
            "memory with an unknown unit",
            mx,
            f"{_CONTAINER}.resources",
            {"limits": {"memory": "4GB"}},
            f"{_CONTAINER}.resources.limits[memory]",
            "memory",
        ),
        _edit(
            "a request above the limit",
            mx,
            f"{_CONTAINER}.resources",
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            f"{_CONTAINER}.resources.requests",
            "requests",
        ),
        _edit(
            "a fractional gpu",
            mx,
            f"{_CONTAINER}.resources",
            {"limits": {"nvidia.com/gpu": "500m"}},
            f"{_CONTAINER}.resources.limits",
            "gpu",
        ),
        _edit(
            "a mount of an undefined volume",
            mx,
            f"{_CONTAINER}.volumeMounts",
            [{"name": "data", "mountPath": "/data"}],
            f"{_CONTAINER}.volumeMounts[0].name",
            "name: data",
        ),
        _edit(
            "a mount without a path",
            mx,
            f"{_CONTAINER}.volumeMounts",
            [{"name": "data"}],
            f"{_CONTAINER}.volumeMounts[0].mountPath",
            "name: data",
        ),
        _edit("a volume without a name", mx, f"{_SPEC}.volumes", [{"emptyDir": {}}], f"{_SPEC}.volumes[0]", "emptyDir"),
        _edit("a duplicate volume", mx, f"{_SPEC}.volumes", [volume, dict(volume)], f"{_SPEC}.volumes[1].name", "name: data"),
        _edit("a volume with two sources", mx, f"{_SPEC}.volumes", [{**volume, "hostPath": {"path": "/"}}], f"{_SPEC}.volumes[0].hostPath"),
        _edit("an unknown restartPolicy", mx, f"{_SPEC}.restartPolicy", "Sometimes"),
        _edit(
            "a pod label with a space",
            mx,
            f"{_ROLE}.template.metadata",
            {"labels": {"a": "b c"}},
            f"{_ROLE}.template.metadata.labels",
            "labels",
        ),
        _edit(
            "a pod label that is a number",
            mx,
            f"{_ROLE}.template.metadata",
            {"labels": {"a": 1}},
            f"{_ROLE}.template.metadata.labels.a",
            "a: 1",
        ),
        _edit("an unknown imagePullPolicy", mx, f"{_CONTAINER}.imagePullPolicy", "Sometimes"),
        _edit(
            "a probe without a handler",
            mx,
            f"{_CONTAINER}.livenessProbe",
            {"periodSeconds": 5},
            f"{_CONTAINER}.livenessProbe",
            "livenessProbe",
        ),
        _edit(
            "a negative probe period",
            mx,
            f"{_CONTAINER}.livenessProbe",
            {"exec": {"command": ["true"]}, "periodSeconds": -1},
            f"{_CONTAINER}.livenessProbe.periodSeconds",
            "periodSeconds",
        ),
        _edit(
            "a duplicate container",
            mx,
            f"{_SPEC}.containers[1]",
            {"name": "mxnet", "image": "b"},
            f"{_SPEC}.containers[1].name",
            "name: mxnet",
        ),
        _edit("an unknown field of the pod", mx, f"{_SPEC}.nodeSelektor", {"a": "b"}),
        _edit("an unknown dnsPolicy", mx, f"{_SPEC}.dnsPolicy", "Google"),
        _edit("a pod deadline of zero", mx, f"{_SPEC}.activeDeadlineSeconds", 0),
        _edit("a host name with an underscore", tf, "spec[1].template.spec.hostname", "a_b"),
    ]


def _errors_of_other_kinds() -> list[InvalidManifest]:
    pod, config, secret, service = _valid_pod, _valid_config_map, _valid_secret, _valid_service
    return [
        _edit("a pod without containers", pod, "spec.containers", []),
        _edit("a container of a pod without an image", pod, f"{_POD_CONTAINER}.image", _REMOVED, f"{_POD_CONTAINER}.image", "name: main"),
        _edit("a pod with an unknown field", pod, "spec.restartPolcy", "Never"),
        _edit("a pod with an unknown restartPolicy", pod, "spec.restartPolicy", "Perhaps"),
        _edit("a config map with a number", config, "data.key", 1),
        _edit("a config map with an invalid key", config, "data", {"a key": "b"}, "data[a key]", "a key"),
        _edit("a config map with an invalid name", config, "metadata.name", "Words"),
        _edit("a secret that is not base64", secret, "data.key", "not base64!", "data"),
        _edit("a secret with an invalid key", secret, "data", {"a/b": "aGVsbG8="}, "data[a/b]", "a/b"),
        _edit("a service without ports", service, "spec.ports", [], "spec.ports"),
        _edit("a service with a port of zero", service, "spec.ports[0].port", 0),
        _edit("a service with a dot in its name", service, "metadata.name", "a.b"),
        _edit("a service of an unknown type", service, "spec.type", "Public"),
    ]


def _file_errors() -> list[InvalidManifest]:
    valid = yaml.safe_dump(_valid_mxjob(), sort_keys=False)
    return [
        InvalidManifest("a file that is not YAML", valid + "  : : [\n", INVALID_YAML, ":"),
        InvalidManifest("a tab before a field", valid.replace("  name: good", "\tname: good"), INVALID_YAML, "\t"),
        InvalidManifest("a list in place of an object", "- a\n- b\n", "a manifest must be an object", "- a"),
        InvalidManifest("a string in place of an object", "just some words\n", "a manifest must be an object", "words"),
        InvalidManifest("a duplicate field", valid.replace("  name: good", "  name: good\n  name: better"), "metadata.name", "better"),
        InvalidManifest("a duplicate object", f"{valid}---\n{valid}", "metadata.name", "name: good"),
        InvalidManifest("an undefined alias", valid.replace("name: good", "name: *good"), INVALID_YAML, "*good"),
    ]


INVALID_MANIFESTS = [*_object_errors(), *_job_errors(), *_template_errors(), *_errors_of_other_kinds(), *_file_errors()]
