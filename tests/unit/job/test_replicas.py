from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest

from dlop import ContainerProperties, FieldRef, JobType, Options, Replica, ReplicaState, RestartPolicy, RoleSpec, SpecError
from dlop.api.constants import TEMPLATE_HASH_ANNOTATION
from dlop.kube.types import JsonObject
from dlop.policies import Naming
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
    role_spec = job.spec.role(role)
    assert role_spec is not None
    return Replica(job, role_spec, index, attempt=attempt)


def test_the_template_of_the_user_is_preserved() -> None:
    pod, template_spec = rich_pod(), RICH_TEMPLATE["spec"]
    assert {name: pod["spec"][name] for name in template_spec if name != "containers"} == {
        name: template_spec[name] for name in template_spec if name != "containers"
    }
    assert pod["spec"]["containers"][0] == template_spec["containers"][0]
    assert pod["spec"]["containers"][1]["volumeMounts"] == template_spec["containers"][1]["volumeMounts"]
    assert pod["metadata"]["labels"]["team"] == "blue"
    assert pod["metadata"]["annotations"].keys() == {"note", TEMPLATE_HASH_ANNOTATION}
    assert pod["metadata"]["annotations"]["note"] == "mine"
    assert pod["metadata"]["finalizers"] == ["example.org/keep"]


def template_hash(job: PairJob, *, attempt: int = 0) -> str:
    annotations = replica_of(job, "Follower", 1, attempt=attempt).pod()["metadata"]["annotations"]
    value: str = annotations[TEMPLATE_HASH_ANNOTATION]
    return value


def test_the_template_hash_contains_the_generation() -> None:
    assert template_hash(make(PairJob, pair_spec(), generation=7)).startswith("7-")


def test_the_template_hash_does_not_depend_on_job_uid_and_attempt() -> None:
    assert template_hash(pair()) == template_hash(pair(), attempt=3) == template_hash(make(PairJob, pair_spec(), uid="another"))


@pytest.mark.parametrize("field", [{"image": "example.org/train:2"}, {"env": [{"name": "A", "value": "1"}]}, {"args": ["-v"]}])
def test_the_template_hash_depends_on_the_template(field: JsonObject) -> None:
    assert template_hash(pair(**field)) != template_hash(pair())


def test_the_environment_of_the_user_comes_first_in_its_order_and_takes_precedence() -> None:
    variables = rich_pod()["spec"]["containers"][1]["env"]
    assert [(variable["name"], variable["value"]) for variable in variables] == [
        ("BASE", "/data"),
        ("OUT", "$(BASE)/out"),
        ("ME", "mine"),
        ("LEADER", "train-leader-0:7000"),
    ]


class OverridingJob(PairJob):
    """Sets the environment in all containers, overrides the user, and uses pod fields."""

    job_type = JobType(group="example.org", version="v1", kind="OverridingJob")
    container_properties = ContainerProperties(name="main", port=7000, sets_env_in_all_containers=True, overrides_user_env=True)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        return {"POD_IP": FieldRef("status.podIP"), **super().get_environment_variables(replica)}


def test_a_kind_may_set_the_environment_of_all_containers_and_override_the_user() -> None:
    containers = [{"name": "main", "image": "x", "env": [{"name": "ME", "value": "mine"}]}, {"name": "side", "image": "y"}]
    job = make(OverridingJob, {"replicaSpecs": {"Leader": {"template": {"spec": {"containers": containers}}}}})
    main, side = job.replica(job.spec.roles[0], 0).pod()["spec"]["containers"]
    pod_ip = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    environment = [pod_ip, {"name": "LEADER", "value": "train-leader-0:7000"}, {"name": "ME", "value": "Leader-0"}]
    assert main["env"] == [{"name": "ME", "value": "mine"}, *environment]
    assert side == {"name": "side", "image": "y", "env": environment}


def test_a_variable_that_the_user_has_set_to_the_same_value_is_not_repeated() -> None:
    job = make(
        OverridingJob,
        pair_spec(env=[{"name": "ME", "value": "mine"}, {"name": "ME", "value": "Leader-0"}, {"name": "OTHER", "value": "1"}]),
    )
    env = job.replica(job.spec.roles[0], 0).pod()["spec"]["containers"][0]["env"]
    assert [variable["name"] for variable in env] == ["ME", "ME", "OTHER", "POD_IP", "LEADER"]
    job = make(OverridingJob, pair_spec(env=[{"name": "ME", "value": "Leader-0"}, {"name": "ME", "value": "mine"}]))
    env = job.replica(job.spec.roles[0], 0).pod()["spec"]["containers"][0]["env"]
    assert [variable["value"] for variable in env if variable["name"] == "ME"] == ["Leader-0", "mine", "Leader-0"]


def test_rendering_does_not_modify_the_spec() -> None:
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


def test_a_pod_has_owner_role_index_and_attempt() -> None:
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


def test_a_user_cannot_override_the_labels_of_the_operator() -> None:
    spec = {"replicaSpecs": {"Leader": {"template": template() | {"metadata": {"labels": {"dlop.dev/replica-index": "7"}}}}}}
    pod = next(make(PairJob, spec).all_replicas()).pod()
    assert pod["metadata"]["labels"]["dlop.dev/replica-index"] == "0"


def test_a_service_is_headless_selects_only_its_pod_and_publishes_it_before_it_is_ready() -> None:
    first, second = (replica_of(pair(), "Follower", index) for index in (0, 1))
    service = first.service()
    assert service is not None
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["ports"] == [{"name": "dlop-port", "port": 7000}]
    assert service["spec"]["selector"].items() <= first.pod()["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= second.pod()["metadata"]["labels"].items()


def test_a_named_port_of_the_user_takes_precedence() -> None:
    job = pair(ports=[{"name": "dlop-port", "containerPort": 7777}, {"name": "metrics", "containerPort": 9100}])
    assert job.addresses("Leader") == ["train-leader-0:7777"]
    service = replica_of(job, "Leader", 0).service()
    assert service is not None
    assert [port["port"] for port in service["spec"]["ports"]] == [7777, 9100]


def test_addresses_are_the_services_ordered_by_index() -> None:
    job = pair(followers=2)
    assert job.addresses("Follower") == ["train-follower-0:7000", "train-follower-1:7000"]
    assert (job.host("Leader"), job.addresses("Nobody"), job.host("Nobody"), job.replicas("Nobody")) == ("train-leader-0", [], "", 0)


def test_hosts_are_fully_qualified_if_the_cluster_domain_is_known() -> None:
    job = make(PairJob, pair_spec(), options=Options(cluster_domain="cluster.local"))
    assert job.addresses("Leader") == ["train-leader-0.lab.svc.cluster.local:7000"]


def test_a_kind_may_have_no_services() -> None:
    class NoServices(Naming[PairJob]):
        def service_name(self, job: PairJob, role: RoleSpec, index: int) -> None:
            return None

    class ServicelessJob(PairJob):
        naming = NoServices()

    job = make(ServicelessJob, pair_spec())
    assert (job.replica(job.spec.roles[0], 0).service(), job.host("Leader")) == (None, "train-leader-0")


def test_the_addresses_are_computed_once_and_not_for_every_replica() -> None:
    class CrowdJob(PairJob):
        def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
            return {"PEERS": ",".join(self.addresses("Follower"))}

    computed: list[int] = []

    class CountedNaming(Naming[PairJob]):
        def pod_name(self, job: PairJob, role: RoleSpec, index: int) -> str:
            computed.append(index)
            return super().pod_name(job, role, index)

    class CountedJob(CrowdJob):
        naming = CountedNaming()

    job = make(CountedJob, pair_spec(followers=500))
    assert len([replica.pod() for replica in job.all_replicas()]) == 501
    assert len(computed) < 5 * 501


def test_a_long_name_yields_valid_pods_and_services() -> None:
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
def test_the_kubelet_restarts_only_what_the_operator_does_not(policy: str, scope: str, expected: str) -> None:
    spec = pair_spec(run_policy={"restartScope": scope})
    spec["replicaSpecs"]["Leader"]["restartPolicy"] = policy
    job = make(PairJob, spec)
    assert job.spec.roles[0].restart_policy is RestartPolicy(policy)
    assert replica_of(job, "Leader", 0).pod()["spec"]["restartPolicy"] == expected


def with_containers(*names: str) -> PairJob:
    containers = [{"name": name, "image": "x"} for name in names]
    return make(PairJob, {"replicaSpecs": {"Leader": {"template": {"spec": {"containers": containers}}}}})


def test_a_single_container_is_the_training_container_whatever_its_name() -> None:
    pod = next(with_containers("mine").all_replicas()).pod()
    assert environment(pod["spec"]["containers"][0])["LEADER"] == "train-leader-0:7000"


def test_with_several_containers_the_training_container_must_have_the_name() -> None:
    pod = next(with_containers("other", "main").all_replicas()).pod()
    assert environment(pod["spec"]["containers"][1])["LEADER"] == "train-leader-0:7000"
    assert "env" not in pod["spec"]["containers"][0]
    with pytest.raises(SpecError, match=r"containers: must have a container named 'main'; got 'mine', 'other'"):
        _ = with_containers("mine", "other").spec


def test_a_kind_may_require_its_container_name() -> None:
    class StrictJob(PairJob):
        container_properties = ContainerProperties(name="trainer", required=True)

    job = make(StrictJob, pair_spec())
    with pytest.raises(Exception, match=r"containers: must have a container named 'trainer'; got 'main'"):
        _ = job.spec


def test_environment_variables_that_are_not_strings_raise_an_error() -> None:
    class NumberJob(PairJob):
        def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
            return {"RANK": replica.index}  # type: ignore[dict-item]

    with pytest.raises(
        TypeError, match=r"NumberJob\.get_environment_variables must return strings, FieldRefs or ConfigMapKeys, got 0 for 'RANK'"
    ):
        next(make(NumberJob, pair_spec()).all_replicas()).pod()


def test_a_replica_without_observation_is_missing() -> None:
    replica = replica_of(pair(), "Leader", 0)
    assert (replica.state, replica.observed_pod) == (ReplicaState.MISSING, None)
