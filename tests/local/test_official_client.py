"""PyPI's own client of Kubeflow's kinds works unmodified: on `dlop local`, and on the real API server with a node of ours.

What it is asked to do is in `official_client`; here is what has to come of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.local.official_client_world import ClientWorld, embedded, real

# The first one installs the client.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420)]


@dataclass(frozen=True)
class Kind:
    """What a kind's job is like in these stories."""

    name: str
    leader: str
    """The pod that decides, without the name of the job."""
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
class Life:
    """A job of a kind, and what was seen of it, step by step."""

    kind: Kind
    seen: dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["embedded", "real"])
async def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientWorld]:
    folder = tmp_path_factory.mktemp("client")
    cluster = embedded(folder) if request.param == "embedded" else real(request.getfixturevalue("real_cluster"), folder)
    async with cluster as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", params=KINDS, ids=lambda kind: kind.name)
async def life(request: pytest.FixtureRequest, world: ClientWorld) -> Life:
    """It is lived once in each world, and all claims are about that one."""
    return Life(request.param, await world.has_played("life", request.param.name))


# --- every kind -----------------------------------------------------------------------------------------------------------


async def test_a_job_is_created_listed_and_got(life: Life) -> None:
    kind = life.kind
    expected = {"listed": [f"{kind.name.lower()}-held"], "kind": kind.name, "type": f"KubeflowOrgV1{kind.name}", "replicas": kind.roles}
    assert life.seen["create"] == expected


async def test_waiting_for_running_ends_when_the_job_runs(life: Life) -> None:
    assert life.seen["run"]["conditions"] == ["Created", "Running"]
    assert life.seen["run"]["is"] == ["created", "running"]


async def test_pods_are_found_by_job_role_type_and_index(life: Life) -> None:
    kind, seen = life.kind, life.seen["run"]
    assert seen["pods"] == kind.all_pods("held")
    assert seen["masters"] == [kind.pod("held", kind.leader)]
    assert seen["workers"] == [name for name in kind.all_pods("held") if "worker" in name]
    assert seen["first worker"] == [kind.pod("held", "worker-0")]


async def test_a_patch_suspends_the_job_and_another_one_resumes_it(life: Life) -> None:
    assert life.seen["suspend"] == {"resting": ["created"], "again": ["created", "running"]}


async def test_a_log_is_followed_while_it_is_written(life: Life) -> None:
    leader = life.kind.pod("held", life.kind.leader)
    # The client puts the lines of a log that it follows together without their ends.
    assert life.seen["finish"]["followed"] == {leader: f"begun in {leader}done"}
    assert life.seen["finish"]["shown"] == f"[Pod {leader}]: begun in {leader}\n[Pod {leader}]: done\n"


async def test_waiting_for_success_ends_when_the_job_is_done(life: Life) -> None:
    seen, leading = life.seen["finish"], next(iter(life.kind.roles))
    assert seen["conditions"] == [["Created", "True"], ["Suspended", "False"], ["Running", "False"], ["Succeeded", "True"]]
    assert seen["is"] == ["created", "succeeded"]
    assert seen["succeeded"][leading] == life.kind.roles[leading]
    assert seen["completed"]


async def test_the_logs_of_one_pod_and_of_all_are_read(life: Life) -> None:
    written = {pod: f"begun in {pod}\ndone\n" for pod in life.kind.all_pods("held")}
    leader = life.kind.pod("held", life.kind.leader)
    assert life.seen["logs"]["master"] == {leader: written[leader]}
    assert life.seen["logs"]["all"] == written


async def test_events_of_the_job_and_of_its_pods_are_read(life: Life) -> None:
    events = life.seen["logs"]["events"]
    name = life.kind.name.lower()
    assert any("successfully completed" in told for told in events[f"{name}/{name}-held"])
    assert all("Container started" in events[f"pod/{pod}"] for pod in life.kind.all_pods("held"))


async def test_a_deleted_job_is_gone_with_its_pods(life: Life) -> None:
    seen, plural = life.seen["delete"], f"{life.kind.name.lower()}s.kubeflow.org"
    assert seen["listed"] == []
    for what in ("get", "delete"):
        assert f"Failed to {what} {life.kind.name}: " in seen[what]
        assert f'{plural} \\"{life.kind.name.lower()}-held\\" not found' in seen[what]


async def test_a_failed_job_is_told_to_who_waits_for_its_success(life: Life) -> None:
    kind, seen = life.kind, life.seen["fail"]
    assert seen["is"] == ["created", "failed"]
    assert f"{kind.name.lower()}-failing is Failed" in seen["told"]
    assert f"{kind.name}Failed" in seen["told"]
    assert seen["logs"] == {kind.pod("failing", kind.leader): "the disk is full\n"}
    # It was deleted in the foreground: it goes last.
    assert seen["pods"] == []


# --- other stories --------------------------------------------------------------------------------------------------------


async def test_a_restarting_job_is_called_so_until_its_new_pod_runs(world: ClientWorld) -> None:
    seen = await world.plays("restart")
    assert seen == {"restarting": True, "names": ["again-master-0"] * 2, "said": {"again-master-0": "done\n"}}


async def test_functions_and_images_become_jobs(world: ClientWorld) -> None:
    seen = await world.plays("functions", world.index)
    torchrun = seen["torchrun"]
    assert torchrun["labels"] == {"team": "vision", "kueue.x-k8s.io/queue-name": "nightly"}
    assert torchrun["annotations"]["note"] == "first"
    # Four processes in two pods bring 7, 14, 21 and 28: each knows the sum only from the others.
    assert torchrun["said"] == {
        "added-master-0": ["hello blue 0 of 4: 70", "hello blue 1 of 4: 70"],
        "added-worker-0": ["hello blue 2 of 4: 70", "hello blue 3 of 4: 70"],
    }
    cluster = "of ['chief', 'ps', 'worker']"
    assert seen["tensorflow"]["said"] == {
        "told-chief-0": [f"chief 0 {cluster}"],
        "told-ps-0": [f"ps 0 {cluster}"],
        "told-worker-0": [f"worker 0 {cluster}"],
        "told-worker-1": [f"worker 1 {cluster}"],
    }
    assert seen["image"]["said"] == {"talking-master-0": ["I am rank 0 of 1"]}


async def test_what_the_server_refuses_is_told_by_the_name_of_the_field(world: ClientWorld) -> None:
    seen = await world.plays("refused")
    assert "spec.pytorchReplicaSpecs[Worker].template.spec.containers: Required value: must have at least one" in seen["container"]
    assert "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1" in seen["masters"]
    assert "metadata.name: Invalid value" in seen["name"]
    assert seen["listed"] == []


async def test_an_mxjob_lives_through_the_plain_kubernetes_client(world: ClientWorld) -> None:
    seen = await world.plays("mxjob")
    assert seen == {
        "create": {"listed": ["mxjob-held"], "kind": "MXJob"},
        "running": ["Created", "Running"],
        "pods": ["mxjob-held-scheduler-0", "mxjob-held-server-0", "mxjob-held-worker-0"],
        "suspended": ["Created", "Suspended"],
        "again": ["Created", "Running"],
        "succeeded": ["Created", "Succeeded"],
        "log": "begun in mxjob-held-scheduler-0\ndone\n",
        "left": [],
    }


# The node on the real server does not tell its pods where that is: here they need not know.
@pytest.mark.parametrize("world", ["embedded"], indirect=True)
async def test_in_a_pod_the_client_does_what_the_service_account_may(world: ClientWorld) -> None:
    seen = await world.plays("inside")
    assert seen == {"phase": "Succeeded", "said": ["default {'from-inside-master-0': 'I am rank 0 of 1\\n'}", "True"]}
