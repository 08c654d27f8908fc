"""The unmodified Kubeflow training client of PyPI works with `dlop local`.

A thorough run also tests it with the real API server and an embedded kubelet. The scenarios are in `official_client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.local.official_client_env import ClientEnv, embedded_env, real_env
from tests.thorough import select

# The first test installs the client.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420)]


@dataclass(frozen=True)
class Kind:
    name: str
    leader: str
    """The pod that decides about success, without the name of the job."""
    pods: tuple[str, ...]
    roles: dict[str, int]

    def pod(self, of: str, pod: str) -> str:
        return f"{self.name.lower()}-{of}-{pod}"

    def all_pods(self, of: str) -> list[str]:
        return [self.pod(of, pod) for pod in self.pods]


_LED = ("master-0", "worker-0")
KINDS = [
    Kind("TFJob", "chief-0", ("chief-0", "worker-0"), {"Chief": 1, "Worker": 1}),
    Kind("PyTorchJob", "master-0", _LED, {"Master": 1, "Worker": 1}),
    Kind("XGBoostJob", "master-0", _LED, {"Master": 1, "Worker": 1}),
    Kind("MPIJob", "launcher", ("launcher", "worker-0"), {"Launcher": 1, "Worker": 1}),
    Kind("PaddleJob", "master-0", _LED, {"Master": 1, "Worker": 1}),
    Kind("JAXJob", "worker-0", ("worker-0", "worker-1"), {"Worker": 2}),
]


@dataclass(frozen=True)
class LifecycleResult:
    kind: Kind
    observations: dict[str, Any]
    """By step."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=select(["embedded", "real"], ["embedded"]))
async def env(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientEnv]:
    folder = tmp_path_factory.mktemp("client")
    cluster = embedded_env(folder) if request.param == "embedded" else real_env(request.getfixturevalue("cluster_with_nodes"), folder)
    async with cluster as client_env:
        yield client_env


@pytest_asyncio.fixture(loop_scope="module", params=KINDS, ids=lambda kind: kind.name)
async def lifecycle(request: pytest.FixtureRequest, env: ClientEnv) -> LifecycleResult:
    """The lifecycle runs once per cluster, and all tests check its observations."""
    return LifecycleResult(request.param, await env.run_scenario_once("lifecycle", request.param.name))


# --- every kind -----------------------------------------------------------------------------------------------------------


async def test_a_job_is_created_listed_and_got(lifecycle: LifecycleResult) -> None:
    kind = lifecycle.kind
    expected = {"listed": [f"{kind.name.lower()}-held"], "kind": kind.name, "type": f"KubeflowOrgV1{kind.name}", "replicas": kind.roles}
    assert lifecycle.observations["create"] == expected


async def test_waiting_for_running_returns_when_the_job_runs(lifecycle: LifecycleResult) -> None:
    assert lifecycle.observations["run"]["conditions"] == ["Created", "Running"]
    assert lifecycle.observations["run"]["is"] == ["created", "running"]


async def test_pods_are_found_by_job_role_type_and_index(lifecycle: LifecycleResult) -> None:
    kind, observed = lifecycle.kind, lifecycle.observations["run"]
    assert observed["pods"] == kind.all_pods("held")
    assert observed["masters"] == [kind.pod("held", kind.leader)]
    assert observed["workers"] == [name for name in kind.all_pods("held") if "worker" in name]
    assert observed["first worker"] == [kind.pod("held", "worker-0")]


async def test_an_update_suspends_and_resumes_the_job(lifecycle: LifecycleResult) -> None:
    assert lifecycle.observations["suspend"] == {"suspended": ["created"], "resumed": ["created", "running"]}


async def test_a_log_is_followed_while_it_is_written(lifecycle: LifecycleResult) -> None:
    leader = lifecycle.kind.pod("held", lifecycle.kind.leader)
    # The client joins the lines of a followed log without line breaks.
    assert lifecycle.observations["finish"]["followed"] == {leader: f"started in {leader}done"}
    assert lifecycle.observations["finish"]["printed"] == f"[Pod {leader}]: started in {leader}\n[Pod {leader}]: done\n"


async def test_waiting_for_success_returns_when_the_job_has_succeeded(lifecycle: LifecycleResult) -> None:
    observed, leading = lifecycle.observations["finish"], next(iter(lifecycle.kind.roles))
    assert observed["conditions"] == [["Created", "True"], ["Suspended", "False"], ["Running", "False"], ["Succeeded", "True"]]
    assert observed["is"] == ["created", "succeeded"]
    assert observed["succeeded"][leading] == lifecycle.kind.roles[leading]
    assert observed["completed"]


async def test_the_logs_of_one_pod_and_of_all_are_read(lifecycle: LifecycleResult) -> None:
    expected = {pod: f"started in {pod}\ndone\n" for pod in lifecycle.kind.all_pods("held")}
    leader = lifecycle.kind.pod("held", lifecycle.kind.leader)
    assert lifecycle.observations["logs"]["master"] == {leader: expected[leader]}
    assert lifecycle.observations["logs"]["all"] == expected


async def test_events_of_the_job_and_of_its_pods_are_read(lifecycle: LifecycleResult) -> None:
    events = lifecycle.observations["logs"]["events"]
    name = lifecycle.kind.name.lower()
    assert any("successfully completed" in message for message in events[f"{name}/{name}-held"])
    assert all("Container started" in events[f"pod/{pod}"] for pod in lifecycle.kind.all_pods("held"))


async def test_a_deleted_job_does_not_exist(lifecycle: LifecycleResult) -> None:
    observed, plural = lifecycle.observations["delete"], f"{lifecycle.kind.name.lower()}s.kubeflow.org"
    assert observed["listed"] == []
    for action in ("get", "delete"):
        assert f"Failed to {action} {lifecycle.kind.name}: " in observed[action]
        assert f'{plural} \\"{lifecycle.kind.name.lower()}-held\\" not found' in observed[action]


async def test_waiting_for_the_success_of_a_failed_job_raises_an_error(lifecycle: LifecycleResult) -> None:
    kind, observed = lifecycle.kind, lifecycle.observations["fail"]
    assert observed["is"] == ["created", "failed"]
    assert f"{kind.name.lower()}-failing is Failed" in observed["error"]
    assert f"{kind.name}Failed" in observed["error"]
    assert observed["logs"] == {kind.pod("failing", kind.leader): "the disk is full\n"}
    # With foreground deletion, the pods are deleted before the job.
    assert observed["pods"] == []


# --- other scenarios ------------------------------------------------------------------------------------------------------


async def test_a_job_is_restarting_until_its_new_pod_runs(env: ClientEnv) -> None:
    observed = await env.run_scenario("restart")
    assert observed == {"restarting": True, "names": ["again-master-0"] * 2, "logs": {"again-master-0": "done\n"}}


async def test_functions_and_images_become_jobs(env: ClientEnv) -> None:
    observed = await env.run_scenario("functions", env.index)
    torchrun = observed["torchrun"]
    assert torchrun["labels"] == {"team": "vision", "kueue.x-k8s.io/queue-name": "nightly"}
    assert torchrun["annotations"]["note"] == "first"
    # Four processes in two pods add 7, 14, 21 and 28.
    assert torchrun["logs"] == {
        "added-master-0": ["hello blue 0 of 4: 70", "hello blue 1 of 4: 70"],
        "added-worker-0": ["hello blue 2 of 4: 70", "hello blue 3 of 4: 70"],
    }
    cluster = "of ['chief', 'ps', 'worker']"
    assert observed["tensorflow"]["logs"] == {
        "tasks-chief-0": [f"chief 0 {cluster}"],
        "tasks-ps-0": [f"ps 0 {cluster}"],
        "tasks-worker-0": [f"worker 0 {cluster}"],
        "tasks-worker-1": [f"worker 1 {cluster}"],
    }
    assert observed["image"]["logs"] == {"echo-master-0": ["rank 0 of 1"]}


async def test_errors_of_the_server_name_the_field(env: ClientEnv) -> None:
    observed = await env.run_scenario("invalid_jobs")
    assert "spec.pytorchReplicaSpecs[Worker].template.spec.containers: Required value: must have at least one" in observed["container"]
    assert "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1" in observed["masters"]
    assert "metadata.name: Invalid value" in observed["name"]
    assert observed["listed"] == []


async def test_the_lifecycle_of_an_mxjob_with_the_kubernetes_client(env: ClientEnv) -> None:
    observed = await env.run_scenario("mxjob")
    assert observed == {
        "create": {"listed": ["mxjob-held"], "kind": "MXJob"},
        "running": ["Created", "Running"],
        "pods": ["mxjob-held-scheduler-0", "mxjob-held-server-0", "mxjob-held-worker-0"],
        "suspended": ["Created", "Suspended"],
        "resumed": ["Created", "Running"],
        "succeeded": ["Created", "Succeeded"],
        "log": "started in mxjob-held-scheduler-0\ndone\n",
        "left": [],
    }


# The kubelet of the real server does not give pods access to the API server.
@pytest.mark.parametrize("env", ["embedded"], indirect=True)
async def test_the_client_in_a_pod_has_the_permissions_of_its_service_account(env: ClientEnv) -> None:
    observed = await env.run_scenario("in_pod")
    assert observed == {"phase": "Succeeded", "logs": ["default {'from-inside-master-0': 'rank 0 of 1\\n'}", "True"]}
