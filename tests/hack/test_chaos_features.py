"""Features of jobs in `hack/chaos`: they fit the scripted end, and the judge finds every violation of their rules."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from chaos_feature_rules import IN_FLIGHT_SECONDS, STALE_SECONDS
from chaos_features import Features, SpotDraft
from chaos_history import Entry, Injection, JobChange, PodChange, pod_change
from chaos_judge import judge, judge_host_ports
from chaos_report import format_violation
from chaos_scripts import End, JobScript, RoleDraft, SpecDraft, draw_scripts, finishing_roles, has_role_fields

from dlop.api.record import Record
from dlop.api.spec import RestartPolicy, RestartScope
from dlop.api.types import StartAfter, StartCondition
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.frameworks.registry import BUILT_IN, load
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, object_decoder

pytestmark = pytest.mark.selftest

KINDS = tuple(map(load, BUILT_IN))
CODE = ("git-sync-code",)
_decode_job = object_decoder(CustomObject)

# --- scripts ---------------------------------------------------------------------------------------------------------


def drawn(count: int = 600) -> list[JobScript]:
    return list(itertools.islice(draw_scripts(KINDS, seed=5), count))


def parse(script: JobScript) -> DLJob:
    return script.kind(_decode_job(msgspec.json.encode(script.body("chaos"))))


def test_all_features_occur_as_fields_and_as_annotations() -> None:
    for has_fields in (True, False):
        scripts = [script for script in drawn() if script.draft.features.has_role_fields is has_fields]
        names = {name for script in scripts for name in script.draft.features.names}
        assert names == {"start order", "spot replicas", "host network", "code sync", "TensorBoard"}


def test_features_reach_the_spec_of_the_job() -> None:
    for script in drawn():
        features, spec = script.draft.features, parse(script).spec
        assert spec.run_policy.host_network is features.host_network
        assert bool(spec.run_policy.code_sync) is features.code_sync
        tensorboard = spec.run_policy.tensorboard
        assert (tensorboard is None) is (features.tensorboard is None)
        if tensorboard is not None and features.tensorboard is not None:
            assert tensorboard.ttl_seconds == features.tensorboard.ttl_seconds
            assert (tensorboard.ingress is not None) is features.tensorboard.has_ingress
        for role in spec.roles:
            spot = features.spot.get(role.name)
            read = None if role.spot is None else SpotDraft(role.spot.count, role.spot.max_disruptions)
            assert read == spot
            if features.start_order:
                assert role.start_after == features.start_order[role.name]


def test_a_role_waits_for_success_only_if_the_other_role_succeeds_before_the_job_does() -> None:
    waits = 0
    for script in drawn():
        for upstream in script.draft.features.start_order.values():
            for after in upstream:
                if after.condition is StartCondition.SUCCEEDED:
                    waits += 1
                    assert script.end is End.SUCCEEDED
                    assert after.role in finishing_roles(script.kind, script.draft) - {script.decisive[0]}
    assert waits


def test_a_scale_down_leaves_enough_replicas_for_spot() -> None:
    for script in drawn():
        for role in script.draft.roles:
            spot = script.draft.features.spot.get(role.name)
            if spot is not None:
                assert spot.replicas <= role.replicas - (1 if role.name == script.scaled_role else 0)


def test_the_culprit_of_a_disruption_limit_runs_on_demand() -> None:
    scripts = [script for script in drawn() if script.end is End.DISRUPTION_LIMIT and script.draft.features.spot]
    assert scripts
    for script in scripts:
        assert script.culprit is not None
        role = next(role for role in script.draft.roles if role.name == script.culprit[0])
        spot = script.draft.features.spot.get(role.name)
        assert spot is None or script.culprit[1] < role.replicas - spot.replicas


def test_kinds_without_role_fields_use_annotations() -> None:
    for script in drawn():
        if not has_role_fields(script.kind):
            names = set(script.draft.features.names) & {"start order", "spot replicas"}
            assert not names or {"dlop.dev/start-order", "dlop.dev/spot-replicas"} & set(script.annotations)


def test_annotations_are_printed_with_a_violation() -> None:
    script = make_script(Features(host_network=True, has_role_fields=False))
    (violation, *_) = judge(script, ())
    assert 'annotations {"kubedl.io/network-mode": "host"}' in format_violation(violation, script, seed=1)


# --- histories -------------------------------------------------------------------------------------------------------

PS, WORKER, SECOND_WORKER = ("PS", 0), ("Worker", 0), ("Worker", 1)


def make_script(
    features: Features, *, scope: RestartScope = RestartScope.REPLICA, kind: type[DLJob] = TFJob, name: str = "job"
) -> JobScript:
    roles = tuple(RoleDraft(role, 2, RestartPolicy.EXIT_CODE) for role in ("PS", "Worker"))
    return JobScript(
        name=name,
        kind=kind,
        draft=SpecDraft(roles, features=features),
        end=End.SUCCEEDED,
        decisive=WORKER,
        culprit=None,
        culprit_fault=None,
        faults={},
        edits=(),
        scaled_role="Worker",
        scope=scope,
    )


class History:
    """Each change has the next revision, and takes one second."""

    def __init__(self, sizes: Mapping[str, int], *, first_revision: int = 1) -> None:
        self.entries: list[Entry] = []
        self._first = first_revision
        self._seconds = 0.0
        self._sizes = dict(sizes)
        self._pods: dict[str, PodChange] = {}
        self.job()

    def _next(self) -> dict[str, Any]:
        self._seconds += 1.0
        return {"revision": self._first + len(self.entries), "seconds": self._seconds}

    def wait(self, seconds: float) -> History:
        self._seconds += seconds
        return self

    def job(self, *, deleted: bool = False, sizes: Mapping[str, int] | None = None, **record: Any) -> History:
        self._sizes |= sizes or {}
        stored = Record(observed_generation=1, **record)
        self.entries.append(JobChange(**self._next(), deleted=deleted, replicas=dict(self._sizes), record=stored))
        return self

    def pod(self, uid: str, replica: tuple[str, int], **fields: Any) -> History:
        """A new pod."""
        self._pods[uid] = PodChange(revision=0, seconds=0.0, name=f"job-{uid}", uid=uid, replica=replica, attempt=fields.pop("attempt", 0))
        return self.change(uid, created=True, **fields)

    def change(self, uid: str, **fields: Any) -> History:
        self._pods[uid] = replace(self._pods[uid], **{"created": False, **fields}, **self._next())
        self.entries.append(self._pods[uid])
        return self

    def running(self, uid: str, *, ready: bool = True) -> History:
        return self.change(uid, phase="Running", ready=ready)

    def failed(self, uid: str, **fields: Any) -> History:
        return self.change(uid, phase="Failed", exit_code=137, ready=False, **fields)

    def succeeded(self, uid: str) -> History:
        return self.change(uid, phase="Succeeded", exit_code=0, ready=False, finished_at=self._seconds)

    def gone(self, uid: str) -> History:
        return self.change(uid, deleted=True, deletion_requested_at=self._seconds)

    def user_deletes(self, uid: str) -> History:
        self.entries.append(Injection(revision=self._first + len(self.entries) - 1, seconds=0.0, description="delete", deleted_uid=uid))
        return self.change(uid, deletion_requested_at=self._seconds)


def rules(history: History, features: Features, *, kind: type[DLJob] = TFJob, scope: RestartScope = RestartScope.REPLICA) -> list[str]:
    """The rules that an unfinished history violates."""
    script = make_script(features, kind=kind, scope=scope)
    return sorted({violation.rule for violation in judge(script, history.entries, is_over=False)})


# --- start order -----------------------------------------------------------------------------------------------------


def order(condition: StartCondition = StartCondition.RUNNING) -> Features:
    return Features(start_order={"PS": (), "Worker": (StartAfter("PS", condition),)})


def two_servers() -> History:
    return History({"PS": 2, "Worker": 1}).pod("a", PS).pod("b", ("PS", 1)).running("a")


def test_a_worker_that_is_created_before_all_servers_run_is_a_violation() -> None:
    assert rules(two_servers().pod("w", WORKER), order()) == ["started too early"]
    assert rules(two_servers().running("b").pod("w", WORKER), order()) == []


def test_a_job_with_the_order_of_its_kind_is_not_checked() -> None:
    assert rules(two_servers().pod("w", WORKER), Features(code_sync=False)) == []


@pytest.mark.parametrize(("condition", "expected"), [(StartCondition.RUNNING, []), (StartCondition.READY, ["started too early"])])
def test_a_server_that_runs_and_is_not_ready_satisfies_only_running(condition: StartCondition, expected: list[str]) -> None:
    assert rules(two_servers().running("b", ready=False).pod("w", WORKER), order(condition)) == expected


def test_a_server_that_runs_has_not_succeeded() -> None:
    servers = two_servers().running("b").succeeded("a")
    assert rules(servers.pod("w", WORKER), order(StartCondition.SUCCEEDED)) == ["started too early"]


def test_servers_that_have_succeeded_satisfy_every_condition_even_when_their_pods_are_gone() -> None:
    for condition in StartCondition:
        servers = two_servers().running("b").succeeded("a").succeeded("b").gone("a").gone("b").wait(2 * STALE_SECONDS)
        assert rules(servers.pod("w", WORKER), order(condition)) == []


@pytest.mark.parametrize(("delay", "expected"), [(STALE_SECONDS / 2, []), (STALE_SECONDS + 1, ["started too early"])])
def test_a_replaced_worker_waits_for_a_failed_server_that_the_operator_must_know(delay: float, expected: list[str]) -> None:
    history = two_servers().running("b").pod("w", WORKER).running("w").failed("w").failed("a").gone("w").wait(delay)
    assert rules(history.pod("x", WORKER), order()) == expected


def test_a_terminating_server_does_not_satisfy_the_condition() -> None:
    history = two_servers().running("b").user_deletes("b").wait(STALE_SECONDS + 1)
    assert rules(history.pod("w", WORKER), order()) == ["started too early"]


@pytest.mark.parametrize(("scope", "expected"), [(RestartScope.JOB, ["started too early"]), (RestartScope.ROLE, [])])
def test_servers_of_an_earlier_attempt_of_the_job_do_not_count(scope: RestartScope, expected: list[str]) -> None:
    history = two_servers().running("b").succeeded("a").succeeded("b").gone("a").gone("b").job(attempt=1)
    assert rules(history.pod("w", WORKER, attempt=1), order(), scope=scope) == expected


def test_servers_that_a_scaled_job_does_not_always_have_are_not_checked() -> None:
    history = History({"PS": 1, "Worker": 1}).job(sizes={"PS": 2}).pod("a", PS).running("a")
    assert rules(history.pod("w", WORKER), order()) == []


# --- spot replicas ---------------------------------------------------------------------------------------------------


def spot(maximum: int | None = None) -> Features:
    return Features(spot={"Worker": SpotDraft(1, maximum)})


def workers(*, spot: bool = True) -> History:
    """Two workers that run, the second of which may be a spot pod."""
    return History({"Worker": 2}).pod("w", WORKER).pod("x", SECOND_WORKER, spot=spot).running("w").running("x")


def test_the_pods_of_the_last_replicas_are_spot_pods() -> None:
    assert rules(workers(), spot()) == []
    assert rules(workers(spot=False), spot()) == ["wrong spot pod"]
    assert rules(History({"Worker": 2}).pod("w", WORKER, spot=True), spot()) == ["wrong spot pod"]
    assert rules(History({"PS": 2, "Worker": 2}).pod("a", ("PS", 1), spot=True), spot()) == ["wrong spot pod"]


def test_a_scaled_job_may_have_spot_pods_of_either_size() -> None:
    history = History({"Worker": 1}).pod("w", WORKER, spot=True).job(sizes={"Worker": 2}).pod("x", SECOND_WORKER, spot=True)
    assert rules(history, spot()) == []


@pytest.mark.parametrize(("delay", "expected"), [(0.0, []), (IN_FLIGHT_SECONDS, ["spot after the fallback"])])
def test_pods_are_created_on_demand_after_the_fallback(delay: float, expected: list[str]) -> None:
    history = workers().failed("x", disrupted=True).job(spot_disruptions={"Worker": 2}).gone("x").wait(delay)
    assert rules(history.pod("y", SECOND_WORKER, spot=True), spot(2)) == expected
    on_demand = workers().failed("x", disrupted=True).job(spot_disruptions={"Worker": 2}).gone("x")
    assert rules(on_demand.pod("y", SECOND_WORKER), spot(2)) == []


def test_pods_are_not_created_on_demand_before_the_fallback() -> None:
    history = workers().failed("x", disrupted=True).job(spot_disruptions={"Worker": 1}).gone("x")
    assert rules(history.pod("y", SECOND_WORKER), spot(2)) == ["wrong spot pod"]


def ended(history: History, features: Features, *, scope: RestartScope = RestartScope.REPLICA, **record: Any) -> list[str]:
    """The violations when the job has ended with these counts."""
    completed = history.succeeded("w").job(phase="Succeeded", completed_indexes={"Worker": "0"}, **record)
    return sorted({each.description for each in judge(make_script(features, scope=scope), completed.entries)})


def test_evictions_of_spot_pods_are_counted_apart() -> None:
    history = workers().job(started_indexes={"Worker": "0-1"}).failed("x", disrupted=True).job(spot_disruptions={"Worker": 1})
    history.gone("x").pod("y", SECOND_WORKER, spot=True)
    assert ended(history, spot(), spot_disruptions={"Worker": 1}) == []


@pytest.mark.parametrize("record", [{"disruptions": {"Worker": 1}}, {}, {"spot_disruptions": {"Worker": 2}}])
def test_another_count_of_an_evicted_spot_pod_is_a_violation(record: dict[str, Any]) -> None:
    history = workers().job(started_indexes={"Worker": "0-1"}).failed("x", disrupted=True).gone("x").pod("y", SECOND_WORKER, spot=True)
    assert ended(history, spot(), **record)


def test_the_eviction_of_a_pod_on_demand_is_no_spot_disruption() -> None:
    history = workers().job(started_indexes={"Worker": "0-1"}).failed("w", disrupted=True).gone("w").pod("w", WORKER)
    assert ended(history, spot(), spot_disruptions={"Worker": 1}) == [
        "0 disruptions of Worker, expected 1",
        "1 spot disruptions of Worker, expected 0",
    ]


@pytest.mark.parametrize(("maximum", "is_violation"), [(2, False), (None, True)])
def test_a_spot_pod_that_is_deleted_may_count_by_its_index_after_a_fallback(maximum: int | None, *, is_violation: bool) -> None:
    history = workers().job(started_indexes={"Worker": "0-1"}).user_deletes("x").gone("x").pod("y", SECOND_WORKER, spot=True)
    assert bool(ended(history, spot(maximum), disruptions={"Worker": 1})) is is_violation


@pytest.mark.parametrize("counts", [{"spot_disruptions": {"Worker": 1}}, {"disruptions": {"Worker": 1}}])
def test_two_disruptions_of_one_attempt_count_once(counts: dict[str, Any]) -> None:
    history = workers().job(started_indexes={"Worker": "0-1"}).failed("x", disrupted=True).failed("w", disrupted=True)
    history.job(attempt=1, **counts).gone("x").gone("w").pod("w", WORKER, attempt=1)
    assert ended(history, spot(), scope=RestartScope.JOB, attempt=1, **counts) == []


def test_a_count_of_spot_disruptions_that_decreases_is_a_violation() -> None:
    assert rules(workers().job(spot_disruptions={"Worker": 1}).job(), spot()) == ["count decreased"]


# --- host network ----------------------------------------------------------------------------------------------------

HOST = Features(host_network=True)


def ports(*numbers: int) -> dict[str, Any]:
    return {"host_ports": frozenset(numbers)}


def two_ports() -> History:
    return History({"Worker": 2}).pod("w", WORKER, **ports(1)).running("w")


def test_every_live_pod_of_a_job_has_its_own_port() -> None:
    assert rules(two_ports().pod("x", SECOND_WORKER, **ports(2)), HOST) == []
    assert rules(two_ports().pod("x", SECOND_WORKER, **ports(1)), HOST) == ["same host port"]
    assert rules(two_ports().failed("w").pod("x", SECOND_WORKER, **ports(1)), HOST) == []


def test_the_workers_of_an_xgboostjob_share_a_port() -> None:
    assert rules(two_ports().pod("x", SECOND_WORKER, **ports(1)), HOST, kind=XGBoostJob) == []


def test_a_pod_without_a_port_is_a_violation() -> None:
    assert rules(History({"Worker": 1}).pod("w", WORKER), HOST) == ["no host port"]
    assert rules(History({"Worker": 1}).pod("w", WORKER), Features()) == []


def test_a_replica_keeps_its_port_until_the_job_restarts() -> None:
    lost = two_ports().failed("w").gone("w")
    assert rules(lost.pod("y", WORKER, **ports(3)), HOST) == ["port changed"]
    restarted = two_ports().failed("w").gone("w").job(attempt=1)
    assert rules(restarted.pod("y", WORKER, attempt=1, **ports(3)), HOST) == []
    scaled = two_ports().failed("w").gone("w").job(sizes={"Worker": 3})
    assert rules(scaled.pod("y", WORKER, **ports(3)), HOST) == []
    waiting = History({"Worker": 2}).pod("w", WORKER, **ports(1)).gone("w")
    assert rules(waiting.pod("y", WORKER, **ports(3)), HOST) == []


def shared_ports(first: History) -> list[str]:
    """The violations when a second job gets port 1 after the first history."""
    second = History({"Worker": 1}, first_revision=100).pod("other", WORKER, **ports(1))
    scripts = [make_script(HOST, name="job"), make_script(HOST, name="second")]
    violations = judge_host_ports(scripts, {"job": first.entries, "second": second.entries})
    assert all(violation.job == scripts[1].title for violation in violations)
    assert all(violation.history == (*first.entries, *second.entries) for violation in violations)
    return [violation.rule for violation in violations]


def test_a_port_of_a_live_pod_of_another_job_is_a_violation() -> None:
    assert shared_ports(two_ports()) == ["same host port"]
    assert shared_ports(History({"Worker": 1}).pod("w", WORKER, **ports(2))) == []


def test_the_ports_of_lost_pods_and_of_ended_jobs_are_free() -> None:
    assert shared_ports(two_ports().failed("w")) == []
    assert shared_ports(two_ports().gone("w")) == []
    assert shared_ports(two_ports().job(phase="Failed")) == []
    assert shared_ports(two_ports().job(deleted=True)) == []


# --- code ------------------------------------------------------------------------------------------------------------


def test_a_pod_without_the_container_that_clones_is_a_violation() -> None:
    features = Features(code_sync=True)
    assert rules(History({"Worker": 1}).pod("w", WORKER, init_containers=("own", *CODE)), features) == []
    assert rules(History({"Worker": 1}).pod("w", WORKER, init_containers=("own",)), features) == ["no code"]


def test_pods_are_read_with_all_that_the_rules_need() -> None:
    body = {
        "metadata": {"name": "a", "uid": "u", "labels": {"dlop.dev/attempt": "0"}, "annotations": {"dlop.dev/spot": "true"}},
        "spec": {
            "initContainers": [{"name": "git-sync-code"}],
            "containers": [{"name": "main", "ports": [{"hostPort": 5}, {}]}, {"name": "b"}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    change = pod_change(body, WORKER, revision=1, seconds=1.0, created=True, deleted=False)
    assert (change.ready, change.spot, change.host_ports, change.init_containers) == (True, True, frozenset({5}), CODE)
    assert str(change).endswith("created, spot, host ports [5]")
