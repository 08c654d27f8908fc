"""Jobs of all kinds in the host network: the pods, their ports, and the ports that their peers are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlop import DLJob
from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob as BatchPaddleJob
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.fioravanzo.mxjob import MXJob as LegacyMXJob
from dlop.frameworks.kubedl.elasticdljob import ElasticDLJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.mpijob import MPIJob as KubeDLMPIJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob as KubeDLPyTorchJob
from dlop.frameworks.kubedl.tfjob import TFJob as KubeDLTFJob
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.kubedl.xgboostjob import XGBoostJob as KubeDLXGBoostJob
from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.frameworks.mpba.mxjob import MXJob as EntriesMXJob
from dlop.frameworks.mpba.tfjob import TFJob as EntriesTFJob
from dlop.frameworks.paddlepaddle.paddlejob import PaddleJob as ServerPaddleJob
from dlop.frameworks.paddlepaddle.trainingjob import TrainingJob
from dlop.frameworks.registry import load_registry
from dlop.kube.types import JsonObject
from tests.frameworks.elastic_manifests import elastic_job
from tests.frameworks.example_manifests import example
from tests.frameworks.kubedl_manifests import KINDS as KUBEDL_KINDS
from tests.frameworks.kubedl_manifests import kubedl_job
from tests.frameworks.kubeflow_jobs import job, mpi_job
from tests.frameworks.paddle_manifests import batch_job, batch_role, sample, training_example
from tests.unit.job.jobs import PairJob, make, pair_spec, template

ANNOTATION = "kubedl.io/network-mode"
FIRST = 40_000
PORTS = {"dlop": {"hostPorts": {"first": FIRST, "count": 20}}}

LISTENING: dict[type[DLJob], Any] = {
    TFJob: job(TFJob, {"PS": 2, "Worker": 2})["spec"],
    PyTorchJob: job(PyTorchJob, {"Master": 1, "Worker": 2})["spec"],
    MXJob: job(MXJob, {"Scheduler": 1, "Server": 2, "Worker": 2})["spec"],
    XGBoostJob: job(XGBoostJob, {"Master": 1, "Worker": 2})["spec"],
    PaddleJob: job(PaddleJob, {"Master": 1, "Worker": 2})["spec"],
    JAXJob: job(JAXJob, {"Worker": 3})["spec"],
    **{kind: kubedl_job(kind)["spec"] for kind in KUBEDL_KINDS},
    LegacyMXJob: example("01-mxnet-linear")["spec"],
    EntriesMXJob: example("02-mxnet-poc")["spec"],
    EntriesTFJob: [{"replicaType": role, "replicas": 2, "template": template()} for role in ("ps", "worker")],
}
"""The specs of kinds whose replicas listen on a port."""
UNSUPPORTED: dict[type[DLJob], tuple[Any, str]] = {
    BatchPaddleJob: (batch_job(worker=batch_role(1))["spec"], "has no effect: set spec.intranet to Host instead"),
    ServerPaddleJob: (sample()["spec"], "has no effect: set spec.hostNetwork instead, and the ports with spec.port"),
    TrainingJob: (training_example()["spec"], "has no effect: set spec.hostNetwork instead, and the ports with spec.port"),
    ElasticJob: (
        elastic_job()["spec"],
        "has no effect: the ports of DLRover are fixed; set hostNetwork in the pod templates and let no two pods run on one node",
    ),
}
BY_LISTENING_KIND = pytest.mark.parametrize("kind", LISTENING, ids=str)


def host_job(kind: type[DLJob], spec: Any = None, *, status: Any = PORTS) -> DLJob:
    return make(kind, LISTENING[kind] if spec is None else spec, status=status, annotations={ANNOTATION: "host"})


def pods(parsed: DLJob) -> dict[tuple[str, int], JsonObject]:
    return {(replica.role, replica.index): replica.pod() for replica in parsed.all_replicas()}


def ports(parsed: DLJob) -> dict[tuple[str, int], list[int]]:
    """The host ports of each replica."""
    return {
        replica: [port["hostPort"] for container in pod["spec"]["containers"] for port in container.get("ports", ()) if "hostPort" in port]
        for replica, pod in pods(parsed).items()
    }


def env(parsed: DLJob, role: str, index: int = 0) -> dict[str, str]:
    (container, *_) = pods(parsed)[role, index]["spec"]["containers"]
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}


def test_every_kind_supports_the_host_network_or_says_why_not() -> None:
    assert {*LISTENING, *UNSUPPORTED, MPIJob} == set(load_registry())


@BY_LISTENING_KIND
def test_every_replica_has_a_port_of_its_own_in_the_network_of_its_node(kind: type[DLJob]) -> None:
    parsed = host_job(kind)
    for pod in pods(parsed).values():
        assert (pod["spec"]["hostNetwork"], pod["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        declared = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
        assert all(port["containerPort"] == port["hostPort"] for port in declared if "hostPort" in port)
    shared = {role.name for role in kind.replica_types if role.shares_port}
    distinct = {port[0] for (role, _), port in ports(parsed).items() if role not in shared}
    assert len(distinct) == sum(role.replicas for role in parsed.spec.roles if role.name not in shared)
    assert {port for (port,) in ports(parsed).values()} == set(range(FIRST, FIRST + parsed.spec.host_ports))


@BY_LISTENING_KIND
def test_services_have_the_port_of_their_replica(kind: type[DLJob]) -> None:
    parsed = host_job(kind)
    for replica in parsed.all_replicas():
        service = replica.service()
        if service is not None:
            assert replica.port in [port["port"] for port in service["spec"]["ports"]]


@BY_LISTENING_KIND
def test_no_replica_is_told_the_usual_port(kind: type[DLJob]) -> None:
    def environment(parsed: DLJob) -> str:
        """The environment of all pods, as far as it is the same in all runs."""
        containers = (container for pod in pods(parsed).values() for container in pod["spec"]["containers"])
        return json.dumps([container.get("env") for container in containers])

    usual = {str(make(kind, LISTENING[kind]).port(role.name)) for role in kind.replica_types}
    has_ports = any(port in environment(make(kind, LISTENING[kind])) for port in usual)
    assert has_ports is (kind not in (ElasticDLJob, KubeDLMPIJob))
    assert [port for port in usual if port in environment(host_job(kind))] == []


def test_peers_are_told_the_ports_by_value() -> None:
    cluster = json.loads(env(host_job(TFJob), "Worker", 1)["TF_CONFIG"])["cluster"]
    assert [address.rpartition(":")[2] for role in ("ps", "worker") for address in cluster[role]] == ["40000", "40001", "40002", "40003"]
    assert env(host_job(PyTorchJob), "Worker")["MASTER_PORT"] == "40000"
    mxnet = env(host_job(MXJob), "Worker")
    assert mxnet["DMLC_PS_ROOT_PORT"] == "40000"
    assert [server["port"] for server in json.loads(mxnet["MX_CONFIG"])["cluster"]["server"]] == [40001, 40002]
    assert env(host_job(JAXJob), "Worker", 2)["COORDINATOR_PORT"] == "40000"
    assert env(host_job(PaddleJob), "Worker")["PADDLE_MASTER"].endswith(":40000")
    assert env(host_job(KubeDLPyTorchJob), "Worker")["MASTER_PORT"] == "40000"
    assert env(host_job(KubeDLXGBoostJob), "Worker")["MASTER_PORT"] == "40000"
    xdl = json.loads(env(host_job(XDLJob), "Worker")["XDL_CONFIG"])["cluster"]
    assert [address.rpartition(":")[2] for address in (*xdl["ps"], *xdl["scheduler"], *xdl["worker"])] == [
        "40000", "40001", "40002", "40003"
    ]  # fmt: skip
    assert "40001" in env(host_job(KubeDLTFJob), "Worker")["TF_CONFIG"]
    assert "40000" in env(host_job(MarsJob), "Worker")["MARS_CLUSTER_DETAIL"]
    assert env(host_job(EntriesMXJob), "WORKER")["DMLC_PS_ROOT_PORT"] == "40000"
    assert env(host_job(LegacyMXJob), "WORKER")["DMLC_PS_ROOT_PORT"] == "40000"


def test_xgboost_workers_share_the_one_port_that_the_environment_can_name() -> None:
    parsed = host_job(XGBoostJob)
    assert ports(parsed) == {("Master", 0): [FIRST], ("Worker", 0): [FIRST + 1], ("Worker", 1): [FIRST + 1]}
    assert env(parsed, "Master")["WORKER_PORT"] == str(FIRST + 1)


def test_a_port_of_the_template_with_the_name_of_the_kind_is_replaced_and_others_are_kept() -> None:
    own = [{"name": "tfjob-port", "containerPort": 2222}, {"name": "metrics", "containerPort": 9100}]
    spec = job(TFJob, {"Worker": 1})["spec"]
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["ports"] = own
    (container,) = pods(host_job(TFJob, spec))["Worker", 0]["spec"]["containers"]
    assert container["ports"] == [own[1], {"name": "tfjob-port", "containerPort": FIRST, "hostPort": FIRST}]


@pytest.mark.parametrize(("policy", "expected"), [("ClusterFirst", "ClusterFirstWithHostNet"), ("Default", "Default"), ("None", "None")])
def test_a_dns_policy_of_the_template_is_kept_unless_it_hides_the_peers(policy: str, expected: str) -> None:
    spec = job(TFJob, {"Worker": 1})["spec"]
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["dnsPolicy"] = policy
    assert pods(host_job(TFJob, spec))["Worker", 0]["spec"]["dnsPolicy"] == expected


def test_an_mpi_job_has_no_ports_to_assign() -> None:
    parsed = host_job(MPIJob, mpi_job()["spec"])
    assert parsed.spec.host_ports == 0
    assert all(pod["spec"]["hostNetwork"] for pod in pods(parsed).values())
    assert set(map(tuple, ports(parsed).values())) == {()}


def test_an_elastic_role_has_the_ports_of_its_maximum() -> None:
    spec = job(PyTorchJob, {"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 6}, runPolicy={"autoscale": True})["spec"]
    assert host_job(PyTorchJob, spec).spec.host_ports == 6


def test_the_field_of_the_run_policy_has_the_same_meaning() -> None:
    by_field = make(PairJob, pair_spec(run_policy={"hostNetwork": True}), status=PORTS)
    by_annotation = make(PairJob, pair_spec(), status=PORTS, annotations={ANNOTATION: "host"})
    assert pods(by_field) == pods(by_annotation)


@pytest.mark.parametrize("kind", UNSUPPORTED, ids=str)
def test_a_kind_that_ignores_the_host_network_warns(kind: type[DLJob]) -> None:
    spec, message = UNSUPPORTED[kind]
    parsed = host_job(kind, spec, status=None)
    assert [str(warning) for warning in parsed.spec_warnings if "network" in warning.path] == [
        f"metadata.annotations[{ANNOTATION}]: {message}"
    ]
    assert parsed.spec.host_ports == 0
    assert not any(pod["spec"].get("hostNetwork") for pod in pods(parsed).values())
