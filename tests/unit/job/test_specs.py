"""Every spec is either parsed, or rejected with the path of the field and a hint."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop import CleanPodPolicy, Options, RestartPolicy, RestartScope, SpecError
from tests.thorough import examples
from tests.unit.job.jobs import PairJob, make, pair, pair_spec, template


def problems(spec: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        _ = make(PairJob, spec).spec
    return [str(problem) for problem in caught.value.problems]


def test_the_defaults_are_those_of_the_kind() -> None:
    spec = pair(followers=3).spec
    assert [(role.name, role.replicas, role.restart_policy) for role in spec.roles] == [
        ("Leader", 1, RestartPolicy.ON_FAILURE),
        ("Follower", 3, RestartPolicy.ON_FAILURE),
    ]
    assert (spec.run_policy.clean_pod_policy, spec.run_policy.restart_scope) == (CleanPodPolicy.RUNNING, RestartScope.REPLICA)


def test_the_run_policy_is_parsed() -> None:
    policy = pair(
        run_policy={
            "backoffLimit": 3,
            "disruptionLimit": 4,
            "activeDeadlineSeconds": 5,
            "startDeadlineSeconds": 6,
            "ttlSecondsAfterFinished": 0,
            "cleanPodPolicy": "All",
            "restartScope": "Job",
            "suspend": True,
        }
    ).spec.run_policy
    assert (policy.backoff_limit, policy.disruption_limit, policy.active_deadline_seconds, policy.start_deadline_seconds) == (3, 4, 5, 6)
    assert (policy.ttl_seconds_after_finished, policy.clean_pod_policy, policy.restart_scope) == (0, CleanPodPolicy.ALL, RestartScope.JOB)
    assert policy.suspend


def test_the_scheduling_policy_is_parsed_and_its_problems_are_reported() -> None:
    scheduling_policy = {
        "minAvailable": 2,
        "minResources": {"cpu": 4, "memory": "2Gi"},
        "queue": "q",
        "priorityClass": "p",
        "scheduleTimeoutSeconds": 9,
    }
    policy = pair(run_policy={"schedulingPolicy": scheduling_policy}).spec.run_policy.scheduling
    assert (policy.min_available, policy.min_resources) == (2, {"cpu": 4, "memory": "2Gi"})
    assert (policy.queue, policy.priority_class, policy.schedule_timeout_seconds) == ("q", "p", 9)
    invalid = {"minAvailable": -1, "minResources": {"cpu": "much", "memory": True}, "queue": 7}
    path = "spec.runPolicy.schedulingPolicy"
    assert problems(pair_spec(run_policy={"schedulingPolicy": invalid})) == [
        f"{path}.minResources.cpu: is not a quantity; use a value like 500m or 2Gi",
        f"{path}.minResources.memory: is not a quantity; use a value like 500m or 2Gi",
        f"{path}.minAvailable: must be at least 0, got -1",
        f"{path}.queue: must be a string, got 7",
    ]


def test_a_job_whose_name_is_too_long_for_a_label_has_a_valid_pod_group_name() -> None:
    job = make(PairJob, pair_spec(), name="x" * 200, options=Options(gang_scheduler_name="gangs"))
    assert job.gang is not None
    pod = job.replica(job.spec.roles[0], 0).pod()
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == job.gang.name
    assert len(job.gang.name) == 63


def test_roles_are_in_the_order_of_the_kind_and_case_insensitive() -> None:
    spec = {"replicaSpecs": {"follower": {"template": template()}, "LEADER": {"template": template()}}}
    assert [role.name for role in make(PairJob, spec).spec.roles] == ["Leader", "Follower"]


def test_null_is_treated_as_absent() -> None:
    spec = {"runPolicy": None, "replicaSpecs": {"Leader": {"replicas": None, "restartPolicy": None, "template": template(env=None)}}}
    assert make(PairJob, spec).spec.roles[0].replicas == 1


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (None, "spec.replicaSpecs: must contain at least one role with replicas and a template"),
        ([], "spec: must be an object, got a list"),
        ({"replicaSpecs": "Leader"}, "spec.replicaSpecs: must be an object, got 'Leader'"),
        (pair_spec() | {"runPolicy": []}, "spec.runPolicy: must be an object, got a list"),
        (pair_spec(run_policy={"suspend": "yes"}), "spec.runPolicy.suspend: must be true or false, got 'yes'"),
        (pair_spec(run_policy={"backoffLimit": -1}), "spec.runPolicy.backoffLimit: must be at least 0, got -1"),
        (pair_spec(run_policy={"backoffLimit": True}), "spec.runPolicy.backoffLimit: must be an integer, got True"),
        (pair_spec(run_policy={"cleanPodPolicy": "Some"}), "spec.runPolicy.cleanPodPolicy: must be one of All, Running, None, got 'Some'"),
        (pair_spec(followers=10**9), "spec.replicaSpecs.Follower.replicas: must be from 0 to 10000, got 1000000000"),
        (pair_spec(image=""), "spec.replicaSpecs.Leader.template.spec.containers[0].image: is missing"),
        (pair_spec(env=[{"value": "x"}]), "spec.replicaSpecs.Leader.template.spec.containers[0].env[0]: must have a name"),
        (pair_spec(env={"A": "x"}), "spec.replicaSpecs.Leader.template.spec.containers[0].env: must be a list, got an object"),
        (
            pair_spec(ports=[{"containerPort": 0}]),
            "spec.replicaSpecs.Leader.template.spec.containers[0].ports[0].containerPort: must be from 1 to 65535, got 0",
        ),
        (
            {"replicaSpecs": {"Leader": {"template": template()}, "Wroker": {"template": template()}}},
            "spec.replicaSpecs.Wroker: is not a role of this kind; must be one of Leader, Follower",
        ),
        (
            {"replicaSpecs": {"Leader": {"template": template()}, "leader": {"template": template()}}},
            "spec.replicaSpecs.leader: duplicates the role Leader; remove one of the two",
        ),
        ({"replicaSpecs": {"Follower": {"template": template()}}}, "spec.replicaSpecs: must contain the role Leader"),
        ({"replicaSpecs": {"Leader": {}}}, "spec.replicaSpecs.Leader.template: is missing; add the pod template of this role"),
        (
            {"replicaSpecs": {"Leader": {"replicas": 2, "template": template()}}},
            "spec.replicaSpecs.Leader.replicas: must be from 0 to 1, got 2",
        ),
        (
            {"replicaSpecs": {"Leader": {"template": {"spec": {"containers": []}}}}},
            "spec.replicaSpecs.Leader.template.spec.containers: must have at least one container",
        ),
        (
            {"replicaSpecs": {"Leader": {"template": template() | {"metadata": {"labels": {"a": 1}}}}}},
            "spec.replicaSpecs.Leader.template.metadata.labels.a: must be a string, got 1",
        ),
    ],
)
def test_a_problem_is_reported_with_its_path(spec: Any, problem: str) -> None:
    assert problem in problems(spec)


def test_all_problems_are_reported_together() -> None:
    assert len(problems(pair_spec(followers=-1, run_policy={"backoffLimit": "3", "suspend": 1}))) == 3


def test_an_invalid_job_reports_the_same_problems_every_time() -> None:
    job = make(PairJob, {})
    first, second = problems_of(job), problems_of(job)
    assert first == second != []


def problems_of(job: PairJob) -> list[str]:
    with pytest.raises(SpecError) as caught:
        _ = job.spec
    return [str(problem) for problem in caught.value.problems]


def test_another_manager_is_recognized_even_if_the_spec_is_invalid() -> None:
    assert make(PairJob, {"runPolicy": {"managedBy": "example.org/other"}}).managed_by_other
    assert not make(PairJob, {"runPolicy": {"managedBy": "dlop"}}).managed_by_other
    assert not make(PairJob, []).managed_by_other


NAMES = [
    *("replicaSpecs", "runPolicy", "Leader", "Follower", "replicas", "template", "spec", "metadata", "labels", "annotations", "containers"),
    *("name", "image", "env", "ports", "containerPort", "suspend", "backoffLimit", "restartPolicy", "volumeMounts", "finalizers"),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=5) | st.sampled_from(["Leader", "main", "OnFailure"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=30,
)


@settings(max_examples=examples(100), deadline=None)
@given(json_values)
def test_any_spec_raises_nothing_but_a_spec_error(spec: Any) -> None:
    job = make(PairJob, spec)
    assert isinstance(job.managed_by_other, bool)
    try:
        replicas = list(job.all_replicas())[:3]
    except SpecError:
        return
    for replica in replicas:
        assert replica.pod()["metadata"]["name"]
        assert (replica.service() or {})["metadata"]["name"]


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), json_values, max_size=5), st.dictionaries(st.sampled_from(NAMES), json_values, max_size=5))
def test_any_template_is_rendered_or_rejected(container: dict[str, Any], pod: dict[str, Any]) -> None:
    main = {"name": "main", "image": "x"} | container
    spec = {"replicaSpecs": {"Leader": {"template": {"spec": {**pod, "containers": [main]}}}}}
    job = make(PairJob, spec)
    try:
        replicas = list(job.all_replicas())
    except SpecError:
        return
    for replica in replicas:
        assert replica.pod()["spec"]["containers"][0]["env"]
        assert (replica.service() or {})["spec"]["clusterIP"] == "None"
