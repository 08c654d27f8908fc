"""A hundred kinds of mistakes in manifests: an edit of a good one each, the path that must be named, and a word of the line."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from tests.local.local_jobs import job

Body = dict[str, Any]

_STEP = re.compile(r"\[(\d+)\]|[^.\[\]]+")


def steps(path: str) -> list[str | int]:
    """`a.b[0]` as keys and indexes."""
    return [int(step[1]) if step[1] is not None else step[0] for step in _STEP.finditer(path)]


@dataclass(frozen=True)
class Mistake:
    """One kind of mistake."""

    title: str
    text: str
    path: str
    """What must be named."""
    word: str
    """What stands in the line that must be named."""


def _good_mxjob() -> Body:
    return job("good", scheduler="true", worker="true", workers=2)


def _good_tfjob() -> Body:
    entry = {"replicas": 1, "template": {"spec": {"containers": [{"name": "tf", "image": "none", "command": ["true"]}]}}}
    roles = [{"replicaType": role, **copy.deepcopy(entry)} for role in ("ps", "worker")]
    return {"apiVersion": "mpba.fbk.eu/v1", "kind": "TFJob", "metadata": {"name": "good"}, "spec": roles}


def _good_pod() -> Body:
    containers = [{"name": "main", "image": "none", "command": ["true"]}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}, "spec": {"containers": containers}}


def _good_config() -> Body:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "good"}, "data": {"key": "value"}}


def _good_secret() -> Body:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "good"}, "data": {"key": "aGVsbG8="}}


def _good_service() -> Body:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "good"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}


GOOD: tuple[Callable[[], Body], ...] = (_good_mxjob, _good_tfjob, _good_pod, _good_config, _good_secret, _good_service)
_GONE = object()


def edited(body: Body, path: str, value: Any) -> str:
    """The manifest with one field changed, or taken out."""
    *way, last = steps(path)
    target: Any = body
    for step in way:
        target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
    if value is _GONE:
        del target[last]
    elif isinstance(target, list) and last == len(target):
        target.append(value)
    else:
        target[last] = value
    return yaml.safe_dump(body, sort_keys=False)


def _change(title: str, good: Callable[[], Body], path: str, value: Any, named: str = "", word: str = "") -> Mistake:
    """`named` is the path that must be told, by default the changed one; the line has its last key unless `word` says otherwise."""
    told = named or path
    last = next(step for step in reversed(steps(told)) if isinstance(step, str))
    return Mistake(title, edited(good(), path, value), told, word or last)


_ROLE = "spec.replicaSpecs[0]"
_SPEC = f"{_ROLE}.template.spec"
_BOX = f"{_SPEC}.containers[0]"
_WORKER = "spec.replicaSpecs[1]"
_TF_BOX = "spec[1].template.spec.containers[0]"
_POD_BOX = "spec.containers[0]"
_LONG = "x" * 64


def _of_the_object() -> list[Mistake]:
    mx = _good_mxjob
    return [
        _change("no apiVersion", mx, "apiVersion", _GONE, "apiVersion", "kind"),
        _change("no kind", mx, "kind", _GONE, "kind", "apiVersion"),
        _change("a kind that there is not", mx, "kind", "MXJobs"),
        _change("a kind in other letters", mx, "kind", "mxjob", "MXJob", "apiVersion"),
        _change("a group that there is not", mx, "apiVersion", "fioravanza.org/v1alpha1", "fioravanza.org/v1alpha1"),
        _change("a version that there is not", mx, "apiVersion", "fioravanzo.org/v1", "fioravanzo.org/v1 ", "apiVersion"),
        _change("a number for a version", mx, "apiVersion", 1, "apiVersion"),
        _change("a deployment", mx, "kind", "Deployment"),
        _change("no metadata", mx, "metadata", _GONE, "metadata.name", "apiVersion"),
        _change("no name", mx, "metadata.name", _GONE, "metadata.name", "metadata"),
        _change("metadata that is a text", mx, "metadata", "good", "metadata"),
        _change("a name with capital letters", mx, "metadata.name", "Good"),
        _change("a name with an underscore", mx, "metadata.name", "not_good"),
        _change("a name that ends with a dash", mx, "metadata.name", "good-"),
        _change("a name that is far too long", mx, "metadata.name", "x" * 260),
        _change("a name that is a number", mx, "metadata.name", 17),
        _change("a namespace with a space", mx, "metadata.namespace", "my space"),
        _change("a label with a space", mx, "metadata.labels", {"team": "deep learning"}, "metadata.labels"),
        _change("a label that is too long", mx, "metadata.labels", {"team": _LONG}, "metadata.labels"),
        _change("a label's name with two slashes", mx, "metadata.labels", {"a/b/c": "d"}, "metadata.labels"),
        _change("an annotation with a wrong name", mx, "metadata.annotations", {"not good": "x"}, "metadata.annotations"),
        _change("a misspelt field of metadata", mx, "metadata.lables", {"a": "b"}),
        _change("no spec", mx, "spec", _GONE, "spec", "apiVersion"),
        _change("a spec that is a text", mx, "spec", "many workers"),
        _change("a field beside the spec", mx, "specs", {}),
    ]


def _of_the_job() -> list[Mistake]:
    mx, tf = _good_mxjob, _good_tfjob
    return [
        _change("no roles", mx, "spec.replicaSpecs", _GONE, "spec.replicaSpecs", "spec"),
        _change("roles as an object", mx, "spec.replicaSpecs", {"SCHEDULER": {}}),
        _change("an empty list of roles", mx, "spec.replicaSpecs", []),
        _change("a role that there is not", mx, f"{_WORKER}.mxReplicaType", "WORKERS"),
        _change("a role in small letters", mx, f"{_WORKER}.mxReplicaType", "worker"),
        _change("a role twice", mx, f"{_WORKER}.mxReplicaType", "SCHEDULER", "spec.replicaSpecs"),
        _change("two schedulers", mx, f"{_ROLE}.replicas", 2),
        _change("no scheduler", mx, f"{_ROLE}.mxReplicaType", "SERVER", "spec.replicaSpecs"),
        _change("a misspelt field of a role", mx, f"{_WORKER}.replica", 3, word="replica: 3"),
        _change("a misspelt field of the spec", mx, "spec.runPolcy", {}),
        _change("a role's type in a misspelt field", mx, f"{_WORKER}.mxReplicaTypes", "WORKER"),
        _change("fewer than no replicas", mx, f"{_WORKER}.replicas", -1),
        _change("far too many replicas", mx, f"{_WORKER}.replicas", 1_000_000),
        _change("half a replica", mx, f"{_WORKER}.replicas", 1.5),
        _change("replicas as a text", mx, f"{_WORKER}.replicas", "two"),
        _change("a port that there is not", mx, f"{_WORKER}.mxPort", 70_000),
        _change("a port as a text", mx, f"{_WORKER}.mxPort", "9000"),
        _change("a port of zero", mx, f"{_WORKER}.mxPort", 0),
        _change("a chief that is no role of the job", mx, "spec.terminationPolicy", {"chief": {"replicaName": "SERVER"}}, "spec"),
        _change(
            "a chief that is no replica", mx, "spec.terminationPolicy", {"chief": {"replicaName": "WORKER", "replicaIndex": 7}}, "spec"
        ),
        _change("a termination policy without a chief", mx, "spec.terminationPolicy", {}, "spec.terminationPolicy.chief", "termination"),
        _change("a runtime id with capital letters", mx, "spec.RuntimeId", "ABC"),
        _change("a run policy that is a text", mx, "spec.runPolicy", "fast"),
        _change("a misspelt field of the run policy", mx, "spec.runPolicy.backofLimit", 3),
        _change("a backoff limit below zero", mx, "spec.runPolicy.backoffLimit", -1),
        _change("a deadline as a text", mx, "spec.runPolicy.activeDeadlineSeconds", "10m"),
        _change("a ttl below zero", mx, "spec.runPolicy.ttlSecondsAfterFinished", -5),
        _change("a clean pod policy that there is not", mx, "spec.runPolicy.cleanPodPolicy", "Some"),
        _change("a restart scope that there is not", mx, "spec.runPolicy.restartScope", "Pod"),
        _change("suspend as a text", mx, "spec.runPolicy.suspend", "yes"),
        _change("managed by somebody with a long name", mx, "spec.runPolicy.managedBy", _LONG),
        _change("a spec that is no list", tf, "spec", {"worker": {}}),
        _change("a list without workers", tf, "spec[1].replicaType", "ps", "spec"),
        _change("a type of the list that there is not", tf, "spec[0].replicaType", "parameter-server"),
        _change("an entry without a type", tf, "spec[0].replicaType", _GONE, "spec[0].replicaType", "- replicas"),
        _change("an entry without replicas", tf, "spec[0].replicas", _GONE, "spec[0].replicas", "replicaType"),
    ]


def _of_the_template() -> list[Mistake]:
    mx, tf = _good_mxjob, _good_tfjob
    volume = {"name": "data", "emptyDir": {}}
    return [
        _change("no template", mx, f"{_ROLE}.template", _GONE, f"{_ROLE}.template", "- replicas"),
        _change("a template without a spec", mx, _SPEC, _GONE, _SPEC, "template"),
        _change("no containers", mx, f"{_SPEC}.containers", []),
        _change("containers as an object", mx, f"{_SPEC}.containers", {"name": "mxnet"}),
        _change("no container of the kind's name", mx, f"{_BOX}.name", "main", "spec.replicaSpecs", "replicaSpecs"),
        _change("a container without a name", tf, f"{_TF_BOX}.name", _GONE, f"{_TF_BOX}.name", "image"),
        _change("a container with a wrong name", tf, f"{_TF_BOX}.name", "Tensor Flow"),
        _change("a container without an image", mx, f"{_BOX}.image", _GONE, f"{_BOX}.image", "name"),
        _change("an image that is a number", mx, f"{_BOX}.image", 3),
        _change("a misspelt command", mx, f"{_BOX}.comand", ["true"]),
        _change("a command that is a text", mx, f"{_BOX}.command", "true"),
        _change("an argument that is a number", mx, f"{_BOX}.args", ["--rate", 0.1], f"{_BOX}.args[1]", "0.1"),
        _change("a variable without a name", mx, f"{_BOX}.env", [{"value": "x"}], f"{_BOX}.env[0]", "value"),
        _change("a variable's name with an equals sign", mx, f"{_BOX}.env", [{"name": "A=B", "value": "x"}], f"{_BOX}.env[0].name", "A=B"),
        _change("a variable with a number for a value", mx, f"{_BOX}.env", [{"name": "A", "value": 1}], f"{_BOX}.env[0].value", "value"),
        _change("a variable from nowhere", mx, f"{_BOX}.env", [{"name": "A", "valueFrom": {}}], f"{_BOX}.env[0].valueFrom", "valueFrom"),
        _change("a port that is too high", mx, f"{_BOX}.ports", [{"containerPort": 99999}], f"{_BOX}.ports[0]", "containerPort"),
        _change(
            "a port with a name that is too long",
            mx,
            f"{_BOX}.ports",
            [{"name": "a-very-long-port-name", "containerPort": 80}],
            f"{_BOX}.ports[0].name",
            "name",
        ),
        _change(
            "a protocol that there is not",
            mx,
            f"{_BOX}.ports",
            [{"containerPort": 80, "protocol": "HTTP"}],
            f"{_BOX}.ports[0].protocol",
            "protocol",
        ),
        _change(
            "less memory asked for than none",
            mx,
            f"{_BOX}.resources",
            {"requests": {"memory": "-1Gi"}},
            f"{_BOX}.resources.requests",
            "memory",
        ),
        _change(
            "memory in a unit that there is not",
            mx,
            f"{_BOX}.resources",
            {"limits": {"memory": "4GB"}},
            f"{_BOX}.resources.limits[memory]",
            "memory",
        ),
        _change(
            "more asked for than allowed",
            mx,
            f"{_BOX}.resources",
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            f"{_BOX}.resources.requests",
            "requests",
        ),
        _change("half a gpu", mx, f"{_BOX}.resources", {"limits": {"nvidia.com/gpu": "500m"}}, f"{_BOX}.resources.limits", "gpu"),
        _change(
            "a mount of no volume",
            mx,
            f"{_BOX}.volumeMounts",
            [{"name": "data", "mountPath": "/data"}],
            f"{_BOX}.volumeMounts[0].name",
            "name: data",
        ),
        _change(
            "a mount without a path", mx, f"{_BOX}.volumeMounts", [{"name": "data"}], f"{_BOX}.volumeMounts[0].mountPath", "name: data"
        ),
        _change("a volume without a name", mx, f"{_SPEC}.volumes", [{"emptyDir": {}}], f"{_SPEC}.volumes[0]", "emptyDir"),
        _change("a volume twice", mx, f"{_SPEC}.volumes", [volume, dict(volume)], f"{_SPEC}.volumes[1].name", "name: data"),
        _change("a volume of two kinds", mx, f"{_SPEC}.volumes", [{**volume, "hostPath": {"path": "/"}}], f"{_SPEC}.volumes[0].hostPath"),
        _change("a restart policy that there is not", mx, f"{_SPEC}.restartPolicy", "Sometimes"),
        _change(
            "a label of pods with a space",
            mx,
            f"{_ROLE}.template.metadata",
            {"labels": {"a": "b c"}},
            f"{_ROLE}.template.metadata.labels",
            "labels",
        ),
        _change(
            "a label of pods that is a number",
            mx,
            f"{_ROLE}.template.metadata",
            {"labels": {"a": 1}},
            f"{_ROLE}.template.metadata.labels.a",
            "a: 1",
        ),
        _change("an image pull policy that there is not", mx, f"{_BOX}.imagePullPolicy", "Sometimes"),
        _change(
            "a probe without a way to probe", mx, f"{_BOX}.livenessProbe", {"periodSeconds": 5}, f"{_BOX}.livenessProbe", "livenessProbe"
        ),
        _change(
            "a probe below zero",
            mx,
            f"{_BOX}.livenessProbe",
            {"exec": {"command": ["true"]}, "periodSeconds": -1},
            f"{_BOX}.livenessProbe.periodSeconds",
            "periodSeconds",
        ),
        _change(
            "a second container of the same name",
            mx,
            f"{_SPEC}.containers[1]",
            {"name": "mxnet", "image": "b"},
            f"{_SPEC}.containers[1].name",
            "name: mxnet",
        ),
        _change("a misspelt field of the pod", mx, f"{_SPEC}.nodeSelektor", {"a": "b"}),
        _change("a dns policy that there is not", mx, f"{_SPEC}.dnsPolicy", "Google"),
        _change("a deadline of a pod at once", mx, f"{_SPEC}.activeDeadlineSeconds", 0),
        _change("a host name with an underscore", tf, "spec[1].template.spec.hostname", "a_b"),
    ]


def _of_other_objects() -> list[Mistake]:
    pod, config, secret, service = _good_pod, _good_config, _good_secret, _good_service
    return [
        _change("a pod without containers", pod, "spec.containers", []),
        _change("a pod's container without an image", pod, f"{_POD_BOX}.image", _GONE, f"{_POD_BOX}.image", "name: main"),
        _change("a pod with a misspelt field", pod, "spec.restartPolcy", "Never"),
        _change("a pod with a wrong restart policy", pod, "spec.restartPolicy", "Perhaps"),
        _change("a config map with a number", config, "data.key", 1),
        _change("a config map with a wrong key", config, "data", {"a key": "b"}, "data[a key]", "a key"),
        _change("a config map with a wrong name", config, "metadata.name", "Words"),
        _change("a secret that is not in base64", secret, "data.key", "not base64!", "data"),
        _change("a secret with a wrong key", secret, "data", {"a/b": "aGVsbG8="}, "data[a/b]", "a/b"),
        _change("a service without ports", service, "spec.ports", [], "spec.ports"),
        _change("a service with a port of zero", service, "spec.ports[0].port", 0),
        _change("a service with a dot in its name", service, "metadata.name", "a.b"),
        _change("a service of a type that there is not", service, "spec.type", "Public"),
    ]


def _of_the_file() -> list[Mistake]:
    good = yaml.safe_dump(_good_mxjob(), sort_keys=False)
    return [
        Mistake("a file that is no YAML", good + "  : : [\n", "no YAML", ":"),
        Mistake("a tab before a field", good.replace("  name: good", "\tname: good"), "no YAML", "\t"),
        Mistake("a list where an object should be", "- a\n- b\n", "a manifest must be an object", "- a"),
        Mistake("a text where an object should be", "just some words\n", "a manifest must be an object", "words"),
        Mistake("a field twice", good.replace("  name: good", "  name: good\n  name: better"), "metadata.name", "better"),
        Mistake("an object twice", f"{good}---\n{good}", "metadata.name", "name: good"),
        Mistake("an alias of nothing", good.replace("name: good", "name: *good"), "no YAML", "*good"),
    ]


MISTAKES = [*_of_the_object(), *_of_the_job(), *_of_the_template(), *_of_other_objects(), *_of_the_file()]
