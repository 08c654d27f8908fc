"""Spot replicas: `spotReplicas` of a role, the annotation for kinds whose roles do not have it, and the rendered pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop import DLJob, SpecError
from dlop.api.constants import SPOT_ANNOTATION
from dlop.api.template_hash import parse_template_hash
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.mpba.mxjob import MXJob
from dlop.kube.types import JsonObject
from tests.frameworks.elastic_manifests import elastic_job
from tests.unit.job.jobs import PairJob, make, pair_spec, template

SPOT = "dlop.dev/spot-replicas"
PATH = "spec.replicaSpecs.Follower.spotReplicas"
OPTIONS: JsonObject = {
    "priorityClassName": "cheap",
    "labels": {"tier": "spot", "dlop.dev/replica-index": "mine"},
    "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"pool": "spot"},
}


def encode(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def pair(spot: Any = None, *, annotation: Any = None, followers: int = 3, status: Any = None) -> PairJob:
    """A job with `spotReplicas` of its followers, and with the annotation."""
    spec = pair_spec(followers=followers)
    follower = spec["replicaSpecs"]["Follower"]
    follower["template"] = {
        "metadata": {"labels": {"tier": "usual", "team": "vision"}, "annotations": {"note": "mine"}},
        "spec": {**follower["template"]["spec"], "tolerations": [{"key": "gpu"}], "nodeSelector": {"pool": "usual", "zone": "a"}},
    }
    follower |= {} if spot is None else {"spotReplicas": spot}
    return make(PairJob, spec, status=status, annotations={} if annotation is None else {SPOT: encode(annotation)})


def pods(job: DLJob, role: str) -> list[JsonObject]:
    return [replica.pod() for replica in job.all_replicas() if replica.role == role]


def spot_indexes(job: DLJob, role: str = "Follower") -> list[int]:
    return [index for index, pod in enumerate(pods(job, role)) if SPOT_ANNOTATION in pod["metadata"].get("annotations", {})]


def problems(job: DLJob) -> list[str]:
    with pytest.raises(SpecError) as caught:
        _ = job.spec
    return [str(problem) for problem in caught.value.problems]


def test_the_last_replicas_get_the_options_which_override_those_of_the_template() -> None:
    usual, *_, spot = pods(pair({"replicas": 2, **OPTIONS}), "Follower")
    assert usual["spec"]["nodeSelector"] == {"pool": "usual", "zone": "a"}
    assert "priorityClassName" not in usual["spec"]
    assert SPOT_ANNOTATION not in usual["metadata"]["annotations"]
    assert spot["spec"]["priorityClassName"] == "cheap"
    assert spot["spec"]["nodeSelector"] == {"pool": "spot", "zone": "a"}
    assert spot["spec"]["tolerations"] == [{"key": "gpu"}, *OPTIONS["tolerations"]]
    labels, annotations = spot["metadata"]["labels"], spot["metadata"]["annotations"]
    assert (labels["tier"], labels["team"], labels["dlop.dev/replica-index"]) == ("spot", "vision", "2")
    assert (annotations["note"], annotations[SPOT_ANNOTATION]) == ("mine", "true")


@pytest.mark.parametrize(("number", "expected"), [(0, []), (1, [2]), (3, [0, 1, 2])])
def test_the_spot_replicas_are_those_with_the_highest_indexes(number: int, expected: list[int]) -> None:
    job = pair({"replicas": number})
    assert (spot_indexes(job), spot_indexes(job, "Leader")) == (expected, [])


def test_a_template_without_metadata_gets_the_options() -> None:
    job = make(PairJob, {"replicaSpecs": {"Leader": {"template": template(), "spotReplicas": {"replicas": 1, **OPTIONS}}}})
    (pod,) = pods(job, "Leader")
    assert (pod["metadata"]["labels"]["tier"], pod["spec"]["tolerations"]) == ("spot", OPTIONS["tolerations"])


def test_the_annotation_has_the_same_meaning() -> None:
    by_field, by_annotation = pair({"replicas": 2, **OPTIONS}), pair(annotation={"follower": {"replicas": 2, **OPTIONS}})
    assert pods(by_annotation, "Follower") == pods(by_field, "Follower")


def test_the_field_takes_precedence_over_the_annotation() -> None:
    job = pair({"replicas": 0}, annotation={"Follower": {"replicas": 2}})
    assert spot_indexes(job) == []
    assert [str(warning) for warning in job.spec_warnings] == [
        f"metadata.annotations[{SPOT}].Follower: has no effect, because {PATH} takes precedence"
    ]


def test_a_change_of_the_options_changes_the_hash_of_spot_pods_alone() -> None:
    def hashes(job: PairJob) -> list[str]:
        return [parse_template_hash(pod["metadata"]["annotations"]["dlop.dev/rendered"])[1] for pod in pods(job, "Follower")]

    before, after = hashes(pair({"replicas": 1})), hashes(pair({"replicas": 1, "priorityClassName": "cheap"}))
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, True, False]


@pytest.mark.parametrize(("disruptions", "expected"), [(0, [1, 2]), (2, [1, 2]), (3, []), (9, [])])
def test_after_the_maximum_of_disruptions_the_replicas_are_created_on_demand(disruptions: int, expected: list[int]) -> None:
    status = {"dlop": {"spotDisruptions": {"Follower": disruptions, "Leader": 9}}}
    job = pair({"replicas": 2, "maxDisruptions": 3, **OPTIONS}, status=status)
    assert spot_indexes(job) == expected
    if not expected:
        assert pods(job, "Follower") == pods(pair(status=status), "Follower")


def test_without_a_maximum_the_replicas_stay_spot_replicas() -> None:
    assert spot_indexes(pair({"replicas": 1}, status={"dlop": {"spotDisruptions": {"Follower": 1000}}})) == [2]


# --- other kinds ---------------------------------------------------------------------------------------------------------


def test_a_kind_of_kubeflow_has_the_field() -> None:
    worker = {"replicas": 2, "template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}, "spotReplicas": {"replicas": 1}}
    job = make(PyTorchJob, {"pytorchReplicaSpecs": {"Worker": worker}})
    assert spot_indexes(job, "Worker") == [1]


def test_a_kind_with_a_list_of_roles_reads_the_annotation() -> None:
    roles = [{"replicaType": role, "replicas": 2, "template": template()} for role in ("SERVER", "WORKER")]
    roles.append({"replicaType": "SCHEDULER", "replicas": 1, "template": template()})
    job = make(MXJob, roles, annotations={SPOT: encode({"worker": {"replicas": 1, **OPTIONS}})})
    assert (spot_indexes(job, "WORKER"), spot_indexes(job, "SERVER")) == ([1], [])
    assert pods(job, "WORKER")[1]["spec"]["nodeSelector"] == {"pool": "spot"}


def test_kubedls_field_is_read_by_its_kinds_and_has_the_lower_precedence() -> None:
    worker = {"replicas": 3, "template": {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}}
    spec = {"spotReplicaNumber": 2, "priorityClassName": "cheap"}
    job = make(TFJob, {"tfReplicaSpecs": {"Worker": {**worker, "spotReplicaSpec": spec}}})
    assert spot_indexes(job, "Worker") == [1, 2]
    both = make(TFJob, {"tfReplicaSpecs": {"Worker": {**worker, "spotReplicaSpec": spec, "spotReplicas": {"replicas": 1}}}})
    assert spot_indexes(both, "Worker") == [2]
    path = "spec.tfReplicaSpecs.Worker"
    assert [str(warning) for warning in both.spec_warnings] == [
        f"{path}.spotReplicaSpec: has no effect, because {path}.spotReplicas takes precedence"
    ]


def test_more_spot_replicas_of_kubedl_than_replicas_are_a_warning() -> None:
    worker = {"replicas": 1, "template": {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}}
    job = make(TFJob, {"tfReplicaSpecs": {"Worker": {**worker, "spotReplicaSpec": {"spotReplicaNumber": 4}}}})
    assert spot_indexes(job, "Worker") == [0]
    assert [str(warning) for warning in job.spec_warnings] == [
        "spec.tfReplicaSpecs.Worker.spotReplicaSpec.spotReplicaNumber: is 4, but Worker has only 1 replicas; all are spot replicas"
    ]


def test_roles_whose_pods_the_master_manages_cannot_have_spot_replicas() -> None:
    body = elastic_job()
    job = make(ElasticJob, body["spec"], annotations={SPOT: encode({"worker": {"replicas": 1}})})
    (problem,) = problems(job)
    assert problem == (
        f"metadata.annotations[{SPOT}].worker: is not supported, because the master of the job manages the pods of worker; remove it"
    )


# --- errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spot", "problem"),
    [
        ([], ": must be an object, got a list"),
        ({"replicas": 4}, ": has 4 replicas, but Follower has only 3; use at most 3"),
        ({"replicas": -1}, ".replicas: must be at least 0, got -1"),
        ({"replicas": "2"}, ".replicas: must be an integer, got '2'"),
        ({"replicas": 1, "maxDisruptions": 0}, ".maxDisruptions: must be from 1 to 2147483647, got 0"),
        ({"replicas": 1, "maxDisruptions": True}, ".maxDisruptions: must be an integer, got True"),
        ({"replicas": 1, "priorityClassName": 5}, ".priorityClassName: must be a string, got 5"),
        ({"replicas": 1, "labels": {"tier": 1}}, ".labels.tier: must be a string, got 1"),
        ({"replicas": 1, "labels": ["tier"]}, ".labels: must be an object, got a list"),
        ({"replicas": 1, "nodeSelector": "pool"}, ".nodeSelector: must be an object, got 'pool'"),
        ({"replicas": 1, "tolerations": {}}, ".tolerations: must be a list, got an object"),
        ({"replicas": 1, "tolerations": ["spot"]}, ".tolerations[0]: must be an object, got 'spot'"),
        ({"replicas": 1, "tolerations": [None]}, ".tolerations[0]: must have a key; only the operator Exists tolerates all taints"),
        ({"replicas": 1, "tolerations": [{"key": 1}]}, ".tolerations[0].key: must be a string, got 1"),
        ({"replicas": 1, "tolerations": [{}]}, ".tolerations[0]: must have a key; only the operator Exists tolerates all taints"),
        (
            {"replicas": 1, "tolerations": [{"key": "a", "operator": "In"}]},
            ".tolerations[0].operator: must be one of Exists, Equal, Lt, Gt, got 'In'",
        ),
        (
            {"replicas": 1, "tolerations": [{"key": "a", "effect": "Never"}]},
            ".tolerations[0].effect: must be one of NoSchedule, PreferNoSchedule, NoExecute, got 'Never'",
        ),
        ({"replicas": 1, "tolerations": [{"key": "a", "value": 1}]}, ".tolerations[0].value: must be a string, got 1"),
        (
            {"replicas": 1, "tolerations": [{"key": "a", "tolerationSeconds": "5"}]},
            ".tolerations[0].tolerationSeconds: must be an integer, got '5'",
        ),
    ],
)
def test_bad_options_are_reported_with_their_field(spot: Any, problem: str) -> None:
    assert problems(pair(spot)) == [f"{PATH}{problem}"]


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("{", ": must be JSON: Input data was truncated"),
        ("[" * 100_000, ": must be JSON with at most 200 levels"),
        # The decoder accepts it. The pod could not be encoded.
        ('{"Follower": {"tolerations": ' + "[" * 300 + "]" * 300 + "}}", ": must be JSON with at most 200 levels"),
        ([], ": must be an object, got a list"),
        ({"Boss": {"replicas": 1}}, ".Boss: is not a role of this kind; must be one of Leader, Follower"),
        ({"Follower": {"replicas": 7}}, ".Follower: has 7 replicas, but Follower has only 3; use at most 3"),
    ],
)
def test_an_annotation_that_cannot_be_used_is_reported(annotation: Any, problem: str) -> None:
    assert problems(pair(annotation=annotation)) == [f"metadata.annotations[{SPOT}]{problem}"]
