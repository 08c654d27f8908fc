"""The start order of a job: `dependsOn` of a role, and the annotation for kinds whose roles do not have it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType, SpecError, StartAfter, StartCondition
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.mpba.mxjob import MXJob
from dlop.kube.types import JsonObject
from tests.frameworks.elastic_manifests import elastic_job
from tests.unit.job.jobs import make, template

ORDER = "dlop.dev/start-order"


class TrioJob(DLJob):
    """Workers wait for servers, which wait for the leader."""

    job_type = JobType(group="example.org", version="v1", kind="TrioJob")
    replica_types = (
        ReplicaType("Leader", required_for_success=False),
        ReplicaType("Server", start_after="Leader"),
        ReplicaType("Worker", start_after="Server"),
    )
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> dict[str, str]:
        return {}


def trio(*, order: Any = None, without: str = "", **depends_on: Any) -> TrioJob:
    """A job with `dependsOn` by role, and with the annotation."""
    roles: JsonObject = {name: {"template": template()} for name in ("Leader", "Server", "Worker") if name != without}
    for role, dependencies in depends_on.items():
        roles[role]["dependsOn"] = dependencies
    annotations = {} if order is None else {ORDER: order if isinstance(order, str) else msgspec.json.encode(order).decode()}
    return make(TrioJob, {"replicaSpecs": roles}, annotations=annotations)


def order_of(job: TrioJob) -> dict[str, tuple[StartAfter, ...]]:
    return {role.name: role.start_after for role in job.spec.roles}


def problems(job: TrioJob) -> list[str]:
    with pytest.raises(SpecError) as caught:
        _ = job.spec
    return [str(problem) for problem in caught.value.problems]


def test_without_dependencies_the_order_of_the_kind_applies() -> None:
    assert order_of(trio()) == {"Leader": (), "Server": (StartAfter("Leader"),), "Worker": (StartAfter("Server"),)}


def test_dependencies_replace_the_order_of_the_kind_for_their_role() -> None:
    ready = StartAfter("Leader", StartCondition.READY)
    job = trio(Server=[], Worker=[{"role": "leader", "condition": "Ready"}, {"role": "SERVER"}])
    assert order_of(job) == {"Leader": (), "Server": (), "Worker": (ready, StartAfter("Server"))}


def test_the_annotation_has_the_same_meaning() -> None:
    job = trio(order={"worker": [{"role": "Leader", "condition": "Succeeded"}]})
    assert order_of(job)["Worker"] == (StartAfter("Leader", StartCondition.SUCCEEDED),)
    assert order_of(job)["Server"] == (StartAfter("Leader"),)


def test_the_field_takes_precedence_over_the_annotation() -> None:
    job = trio(order={"Worker": [{"role": "Leader"}]}, Worker=[])
    assert order_of(job)["Worker"] == ()
    assert [str(warning) for warning in job.spec_warnings] == [
        f"metadata.annotations[{ORDER}].Worker: has no effect, because spec.replicaSpecs.Worker.dependsOn takes precedence"
    ]


def test_the_order_of_a_missing_role_is_ignored() -> None:
    job = trio(order={"Leader": [{"role": "Worker"}], "Worker": [{"role": "Leader"}]}, without="Leader")
    assert order_of(job) == {"Server": (StartAfter("Leader"),), "Worker": (StartAfter("Leader"),)}


def test_kinds_with_a_list_of_roles_read_the_annotation() -> None:
    roles = [{"replicaType": role, "replicas": 1, "template": template()} for role in ("SCHEDULER", "WORKER")]
    order = {"Worker": [{"role": "scheduler"}]}
    job = make(MXJob, roles, annotations={ORDER: msgspec.json.encode(order).decode()})
    assert [(role.name, role.start_after) for role in job.spec.roles] == [("SCHEDULER", ()), ("WORKER", (StartAfter("SCHEDULER"),))]


PATH = "spec.replicaSpecs.{}.dependsOn"
WORKER = PATH.format("Worker")


@pytest.mark.parametrize(
    ("depends_on", "problem"),
    [
        ({"Worker": [{"role": "PS"}]}, f"{WORKER}[0].role: must be another role of this kind: Leader, Server; got 'PS'"),
        ({"Worker": [{}]}, f"{WORKER}[0].role: is missing; add another role of this kind: Leader, Server"),
        ({"Worker": [{"role": "worker"}]}, f"{WORKER}[0].role: is the role itself; Worker cannot wait for itself"),
        (
            {"Worker": [{"role": "Leader", "condition": "Done"}]},
            f"{WORKER}[0].condition: must be one of Running, Ready, Succeeded, got 'Done'",
        ),
        ({"Worker": {"role": "Leader"}}, f"{WORKER}: must be a list, got an object"),
        (
            {"Leader": [{"role": "Worker"}]},
            f"{PATH.format('Leader')}: makes the roles Leader, Server, Worker wait for each other; remove one dependency",
        ),
        (
            {"Leader": [{"role": "Server"}], "Worker": [{"role": "Server"}]},
            f"{PATH.format('Leader')}: makes the roles Leader, Server wait for each other; remove one dependency",
        ),
    ],
)
def test_an_order_that_cannot_be_followed_is_reported_with_its_field(depends_on: Any, problem: str) -> None:
    assert problems(trio(**depends_on)) == [problem]


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ("{", "must be JSON: Input data was truncated"),
        ([], "must be an object, got a list"),
        ({"PS": []}, ".PS: is not a role of this kind; must be one of Leader, Server, Worker"),
        ({"Leader": [{"role": "Server"}]}, ".Leader: makes the roles Leader, Server wait for each other; remove one dependency"),
    ],
)
def test_an_annotation_that_cannot_be_used_is_reported(order: Any, problem: str) -> None:
    separator = "" if problem.startswith(".") else ": "
    assert problems(trio(order=order)) == [f"metadata.annotations[{ORDER}]{separator}{problem}"]


def test_the_order_of_roles_whose_pods_the_master_manages_has_no_effect() -> None:
    order = {ORDER: msgspec.json.encode({"worker": [{"role": "ps"}], "evaluator": [], "dlrover-master": []}).decode()}
    job = make(ElasticJob, elastic_job()["spec"], annotations=order)
    assert [str(warning) for warning in job.spec_warnings] == [
        f"metadata.annotations[{ORDER}].worker: has no effect, because the master of the job decides when pods of worker start; remove it"
    ]
