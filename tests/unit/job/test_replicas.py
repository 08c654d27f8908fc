from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest

from dlop import ContainerProperties, JobType, Options, Replica, ReplicaState, RestartPolicy, RoleSpec, SpecError
from dlop.api.constants import RENDERED_ANNOTATION
from dlop.kube.types import JsonObject
from tests.unit.job.jobs import UID, PairJob, environment, make, pair, pair_spec, template

RICH_TEMPLATE: JsonObject = {
    "metadata": {"labels": {"team": "blue"}, "annotations": {"note": "mine"}, "finalizers": ["example.org/keep"]},
    "spec": {
        "initContainers": [{"name": "fetch", "image": "example.org/fetch:1"}],
        "containers": [
            {"name": "sidecar", "image": "example.org/log:1", "env": [{"name": "LEADER", "value": "not yours"}]},
            {
                "name": "main",
                "image": "example.org/train:1",
                "env": [{"name": "BASE", "value": "/data"}, {"name": "OUT", "value": "$(BASE)/out"}, {"name": "ME", "value": "mine"}],
                "ports": [{"name": "metrics", "containerPort": 9100}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"operator": "Exists"}],
        "serviceAccountName": "trainer",
        "schedulerName": "special",
        "hostNetwork": False,
    },
}


def rich_pod() -> JsonObject:
    job = make(PairJob, {"replicaSpecs": {"Leader": {"template": copy.deepcopy(RICH_TEMPLATE)}}})
    return next(job.all_replicas()).pod()


def replica_of(job: PairJob, role: str, index: int, *, attempt: int = 0) -> Replica:
    found = job.spec.role(role)
    assert found is not None
    return Replica(job, found, index, attempt=attempt)


def test_the_template_of_the_user_is_kept_whole() -> None:
    pod, given = rich_pod(), RICH_TEMPLATE["spec"]
    assert {name: pod["spec"][name] for name in given if name != "containers"} == {
        name: given[name] for name in given if name != "containers"
    }
    assert pod["spec"]["containers"][0] == given["containers"][0]
    assert pod["spec"]["containers"][1]["volumeMounts"] == given["containers"][1]["volumeMounts"]
    assert pod["metadata"]["labels"]["team"] == "blue"
    assert pod["metadata"]["annotations"].keys() == {"note", RENDERED_ANNOTATION}
    assert pod["metadata"]["annotations"]["note"] == "mine"
    assert pod["metadata"]["finalizers"] == ["example.org/keep"]


def stamp_of(job: PairJob, *, attempt: int = 0) -> str:
    annotations = replica_of(job, "Follower", 1, attempt=attempt).pod()["metadata"]["annotations"]
    stamp: str = annotations[RENDERED_ANNOTATION]
    return stamp


def test_a_pod_tells_the_generation_that_it_was_made_from() -> None:
    assert stamp_of(make(PairJob, pair_spec(), generation=7)).startswith("7-")


def test_pods_of_the_same_spec_have_the_same_stamp_whatever_their_job_and_attempt() -> None:
    assert stamp_of(pair()) == stamp_of(pair(), attempt=3) == stamp_of(make(PairJob, pair_spec(), uid="another"))


@pytest.mark.parametrize("field", [{"image": "example.org/train:2"}, {"env": [{"name": "A", "value": "1"}]}, {"args": ["-v"]}])
def test_pods_of_another_spec_have_another_stamp(field: JsonObject) -> None:
    assert stamp_of(pair(**field)) != stamp_of(pair())


def test_the_environment_of_the_user_comes_first_in_its_order_and_wins() -> None:
    variables = rich_pod()["spec"]["containers"][1]["env"]
    assert [(variable["name"], variable["value"]) for variable in variables] == [
        ("BASE", "/data"),
        ("OUT", "$(BASE)/out"),
        ("ME", "mine"),
        ("LEADER", "train-leader-0:7000"),
    ]


class Loud(PairJob):
    """A kind that tells every container, whatever the user has set, and what only the pod can tell."""

    job_type = JobType(group="example.org", version="v1", kind="LoudJob")
    informs_all_containers = True
    environment_wins = True

    def get_pod_fields(self, replica: Replica) -> Mapping[str, str]:
        return {"POD_IP": "status.podIP"}


def test_a_kind_may_tell_all_containers_and_win_over_the_user() -> None:
    containers = [{"name": "main", "image": "x", "env": [{"name": "ME", "value": "mine"}]}, {"name": "side", "image": "y"}]
    job = make(Loud, {"replicaSpecs": {"Leader": {"template": {"spec": {"containers": containers}}}}})
    main, side = job.make_pod(job.spec.roles[0], 0, attempt=0)["spec"]["containers"]
    own = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    told = [own, {"name": "LEADER", "value": "train-leader-0:7000"}, {"name": "ME", "value": "Leader-0"}]
    assert main["env"] == [{"name": "ME", "value": "mine"}, *told]
    assert side == {"name": "side", "image": "y", "env": told}


def test_what_the_user_says_in_the_same_words_is_not_said_again() -> None:
    job = make(Loud, pair_spec(env=[{"name": "ME", "value": "mine"}, {"name": "ME", "value": "Leader-0"}, {"name": "OTHER", "value": "1"}]))
    env = job.make_pod(job.spec.roles[0], 0, attempt=0)["spec"]["containers"][0]["env"]
    assert [variable["name"] for variable in env] == ["ME", "ME", "OTHER", "POD_IP", "LEADER"]
    job = make(Loud, pair_spec(env=[{"name": "ME", "value": "Leader-0"}, {"name": "ME", "value": "mine"}]))
    env = job.make_pod(job.spec.roles[0], 0, attempt=0)["spec"]["containers"][0]["env"]
    assert [variable["value"] for variable in env if variable["name"] == "ME"] == ["Leader-0", "mine", "Leader-0"]


def test_rendering_changes_nothing_in_the_spec() -> None:
    job = make(PairJob, {"replicaSpecs": {"Leader": {"template": RICH_TEMPLATE}}})
    before = copy.deepcopy(job.spec.roles[0].template)
    next(job.all_replicas()).pod()
    next(job.all_replicas()).service()
    assert job.spec.roles[0].template == before


def test_values_from_a_manifest_stay_plain_data() -> None:
    nasty = "$(touch /tmp/x); {0} %s `id` ${HOME} '\""
    job = pair(env=[{"name": "NASTY", "value": nasty}], command=["sh", "-c", nasty])
    container = replica_of(job, "Leader", 0).pod()["spec"]["containers"][0]
    assert (environment(container)["NASTY"], container["command"]) == (nasty, ["sh", "-c", nasty])


def test_a_pod_belongs_to_its_job_and_says_which_replica_and_attempt_it_is() -> None:
    pod = replica_of(pair(), "Follower", 1, attempt=3).pod()
    owner = {"apiVersion": "example.org/v1", "kind": "PairJob", "name": "train", "uid": UID, "controller": True, "blockOwnerDeletion": True}
    assert pod["metadata"]["ownerReferences"] == [owner]
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("train-follower-1", "lab")
    assert pod["metadata"]["labels"] == {
        "dlop.dev/job-name": "train",
        "dlop.dev/job-uid": UID,
        "dlop.dev/replica-type": "follower",
        "dlop.dev/replica-index": "1",
        "dlop.dev/attempt": "3",
    }


def test_a_user_cannot_take_the_labels_that_tell_replicas_apart() -> None:
    spec = {"replicaSpecs": {"Leader": {"template": template() | {"metadata": {"labels": {"dlop.dev/replica-index": "7"}}}}}}
    pod = next(make(PairJob, spec).all_replicas()).pod()
    assert pod["metadata"]["labels"]["dlop.dev/replica-index"] == "0"


def test_a_service_is_headless_leads_to_its_pod_alone_and_does_not_wait_until_it_is_ready() -> None:
    first, second = (replica_of(pair(), "Follower", index) for index in (0, 1))
    service = first.service()
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["ports"] == [{"name": "dlop-port", "port": 7000}]
    assert service["spec"]["selector"].items() <= first.pod()["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= second.pod()["metadata"]["labels"].items()


def test_the_port_that_the_user_has_named_wins() -> None:
    job = pair(ports=[{"name": "dlop-port", "containerPort": 7777}, {"name": "metrics", "containerPort": 9100}])
    assert job.addresses("Leader") == ["train-leader-0:7777"]
    assert [port["port"] for port in replica_of(job, "Leader", 0).service()["spec"]["ports"]] == [7777, 9100]


def test_addresses_are_those_of_the_services_in_order() -> None:
    job = pair(followers=2)
    assert job.addresses("Follower") == ["train-follower-0:7000", "train-follower-1:7000"]
    assert (job.host("Leader"), job.addresses("Nobody"), job.host("Nobody"), job.replicas("Nobody")) == ("train-leader-0", [], "", 0)


def test_hosts_are_spelled_out_when_the_domain_of_the_cluster_is_known() -> None:
    job = make(PairJob, pair_spec(), options=Options(cluster_domain="cluster.local"))
    assert job.addresses("Leader") == ["train-leader-0.lab.svc.cluster.local:7000"]


def test_a_kind_may_do_without_services() -> None:
    class SilentJob(PairJob):
        def service_name(self, role: RoleSpec, index: int) -> None:
            return None

    job = make(SilentJob, pair_spec())
    assert (job.make_service(job.spec.roles[0], 0), job.host("Leader")) == (None, "train-leader-0")


def test_the_addresses_of_all_are_worked_out_once_and_not_for_every_replica() -> None:
    class CrowdJob(PairJob):
        def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
            return {"PEERS": ",".join(self.addresses("Follower"))}

    asked: list[int] = []

    class CountedJob(CrowdJob):
        def replica_name(self, role: RoleSpec, index: int) -> str:
            asked.append(index)
            return super().replica_name(role, index)

    job = make(CountedJob, pair_spec(followers=500))
    assert len([replica.pod() for replica in job.all_replicas()]) == 501
    assert len(asked) < 5 * 501


def test_a_long_name_still_gives_pods_and_services_that_the_api_takes() -> None:
    job = pair(name="a-very-long-name-for-a-job." * 9)
    replica = replica_of(job, "Follower", 1)
    assert replica.name == replica.service_name
    assert len(replica.name) <= 63
    assert all(len(value) <= 63 for value in replica.pod()["metadata"]["labels"].values())
    assert job.addresses("Follower")[1] == f"{replica.name}:7000"


@pytest.mark.parametrize(
    ("policy", "scope", "expected"),
    [
        ("Always", "Replica", "Always"),
        ("OnFailure", "Replica", "OnFailure"),
        ("Never", "Replica", "Never"),
        ("ExitCode", "Replica", "Never"),
        ("OnFailure", "Role", "Never"),
        ("Always", "Job", "Never"),
    ],
)
def test_the_node_restarts_only_what_the_operator_does_not_decide(policy: str, scope: str, expected: str) -> None:
    spec = pair_spec(run_policy={"restartScope": scope})
    spec["replicaSpecs"]["Leader"]["restartPolicy"] = policy
    job = make(PairJob, spec)
    assert job.spec.roles[0].restart_policy is RestartPolicy(policy)
    assert replica_of(job, "Leader", 0).pod()["spec"]["restartPolicy"] == expected


def with_containers(*names: str) -> PairJob:
    containers = [{"name": name, "image": "x"} for name in names]
    return make(PairJob, {"replicaSpecs": {"Leader": {"template": {"spec": {"containers": containers}}}}})


def test_a_single_container_takes_part_whatever_its_name() -> None:
    pod = next(with_containers("mine").all_replicas()).pod()
    assert environment(pod["spec"]["containers"][0])["LEADER"] == "train-leader-0:7000"


def test_of_several_containers_the_one_that_takes_part_must_have_the_name() -> None:
    pod = next(with_containers("other", "main").all_replicas()).pod()
    assert environment(pod["spec"]["containers"][1])["LEADER"] == "train-leader-0:7000"
    assert "env" not in pod["spec"]["containers"][0]
    with pytest.raises(SpecError, match=r"containers: must have a container named 'main'; the ones there are: 'mine', 'other'"):
        _ = with_containers("mine", "other").spec


def test_a_kind_may_insist_on_its_container() -> None:
    class StrictJob(PairJob):
        container_properties = ContainerProperties(name="trainer", required=True)

    job = make(StrictJob, pair_spec())
    with pytest.raises(Exception, match=r"containers: must have a container named 'trainer'; the ones there are: 'main'"):
        _ = job.spec


def test_a_framework_that_gives_something_else_than_texts_is_told_so() -> None:
    class NumberJob(PairJob):
        def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
            return {"RANK": replica.index}  # type: ignore[dict-item]

    with pytest.raises(TypeError, match=r"NumberJob\.get_environment_variables must give texts: 'RANK' is 0"):
        next(make(NumberJob, pair_spec()).all_replicas()).pod()


def test_a_replica_of_which_nothing_is_known_is_missing() -> None:
    replica = replica_of(pair(), "Leader", 0)
    assert (replica.state, replica.observed_pod) == (ReplicaState.MISSING, None)
