"""The scripts of `hack/chaos`: they depend on the seed only, and are valid for every built-in kind."""

from __future__ import annotations

import base64
import itertools

import msgspec
import pytest
from chaos_faults import ClusterFault, draw_faults
from chaos_history import ReplicaKey, pod_names
from chaos_scripts import End, JobScript, PodFault, draw_scripts, finishing_roles
from chaos_watch import Histories, parse_event

from dlop.api.spec import RestartPolicy
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.mpijob import MPIJob as KubeDLMPIJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.registry import BUILT_IN, load
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, object_decoder
from dlop.kube.types import JsonObject

pytestmark = pytest.mark.selftest

KINDS = tuple(map(load, BUILT_IN))
_decode_job = object_decoder(CustomObject)


def scripts(seed: int, count: int = 300) -> list[JobScript]:
    return list(itertools.islice(draw_scripts(KINDS, seed=seed), count))


def test_a_seed_determines_scripts_and_faults() -> None:
    assert scripts(7) == scripts(7)
    assert scripts(7) != scripts(8)
    first, again, other = (list(itertools.islice(draw_faults(seed=seed), 50)) for seed in (7, 7, 8))
    assert first == again != other


def test_all_kinds_ends_and_faults_occur() -> None:
    drawn = scripts(1)
    assert {script.kind for script in drawn[: len(KINDS)]} == set(KINDS)
    assert {script.end for script in drawn} == set(End)
    assert {fault for script in drawn for faults in script.faults.values() for fault in faults} == set(PodFault) - {
        PodFault.FAIL_PERMANENTLY
    }
    assert {fault for _, fault in itertools.islice(draw_faults(seed=1), 2 * len(ClusterFault))} == set(ClusterFault)


@pytest.mark.parametrize("seed", range(3))
def test_every_spec_is_valid_and_its_decisive_replica_exists(seed: int) -> None:
    for script in scripts(seed):
        job = script.kind(_decode_job(msgspec.json.encode(script.body("chaos"))))
        assert script.decisive in {(role.name, index) for role in job.spec.roles for index in range(role.replicas)}
        assert finishing_roles(script.kind, script.draft) <= {role.name for role in job.spec.roles}


def test_a_culprit_has_a_restart_policy_under_which_it_fails_the_job() -> None:
    for script in scripts(2):
        if script.culprit is not None and script.culprit_fault is PodFault.FAIL_PERMANENTLY:
            policy = next(role.restart_policy for role in script.draft.roles if role.name == script.culprit[0])
            assert policy in (RestartPolicy.NEVER, RestartPolicy.EXIT_CODE)


@pytest.mark.parametrize(("kind", "culprit"), [(MarsJob, ("Scheduler", 0)), (KubeDLMPIJob, ("Launcher", 0))])
def test_the_culprit_is_the_role_that_decides_if_other_failures_leave_a_job_running(kind: type[DLJob], culprit: ReplicaKey) -> None:
    culprits = {script.culprit for seed in range(5) for script in scripts(seed) if script.kind is kind} - {None}
    assert culprits == {culprit}


def test_the_workers_of_a_pytorchjob_of_kubedl_finish_before_its_master() -> None:
    for script in scripts(3):
        if script.kind is PyTorchJob and "AIMaster" not in {role.name for role in script.draft.roles}:
            assert script.decisive == ("Master", 0)
            assert finishing_roles(script.kind, script.draft) == {"Master", "Worker"}


def test_no_job_is_deleted_later_than_a_few_seconds_after_its_end() -> None:
    for script in scripts(4):
        job = script.kind(_decode_job(msgspec.json.encode(script.body("chaos"))))
        assert job.spec.run_policy.ttl_seconds_after_finished in (None, 3)


# --- the watch -------------------------------------------------------------------------------------------------------


def etcd_event(key: str, body: JsonObject, *, revision: int, created: int, deleted: bool = False) -> JsonObject:
    key, value = (base64.b64encode(text).decode() for text in (key.encode(), msgspec.json.encode(body)))
    pair = {"key": key, "mod_revision": str(revision), "create_revision": str(created)}
    return {"type": "DELETE", "kv": pair, "prev_kv": {"value": value}} if deleted else {"kv": {**pair, "value": value}}


def test_events_of_etcd_become_changes_with_the_last_state_of_deleted_objects() -> None:
    body = {"kind": "Pod", "metadata": {"name": "a"}}
    changes = [
        parse_event(etcd_event("/registry/pods/chaos/a", body, revision=5, created=5), seconds=1.0),
        parse_event(etcd_event("/registry/pods/chaos/a", body, revision=6, created=5), seconds=1.0),
        parse_event(etcd_event("/registry/pods/chaos/a", body, revision=7, created=5, deleted=True), seconds=1.0),
    ]
    assert [(change.created, change.deleted, change.key, change.body["metadata"]) for change in changes if change] == [
        (True, False, "pods a", {"name": "a", "resourceVersion": "5"}),
        (False, False, "pods a", {"name": "a", "resourceVersion": "6"}),
        (False, True, "pods a", {"name": "a", "resourceVersion": "7"}),
    ]


def test_keys_without_a_namespace_are_skipped() -> None:
    assert parse_event(etcd_event("/registry/masterleases/a", {}, revision=5, created=5), seconds=1.0) is None


def test_objects_are_listed_under_the_job_that_owns_them() -> None:
    script = next(script for script in scripts(1) if script.kind is MPIJob)
    job = {**script.body("chaos"), "metadata": {"name": script.name, "uid": "u", "generation": 1}}
    owner = {"name": script.name, "uid": "u", "controller": True}
    config_map = {"metadata": {"name": "hosts", "ownerReferences": [owner]}}
    histories = Histories({"kubeflow.org/mpijobs": MPIJob}, namespace="chaos")
    for number, (key, body) in enumerate([(f"kubeflow.org/mpijobs/chaos/{script.name}", job), ("configmaps/chaos/hosts", config_map)]):
        change = parse_event(etcd_event(f"/registry/{key}", body, revision=number + 1, created=number + 1), seconds=1.0)
        assert change is not None
        histories.add(change)
    assert [str(entry) for entry in histories.entries[script.name]][1] == "configmaps hosts: created"
    assert not histories.ended
    assert histories.replica_of(script.name, f"{script.name}-launcher") == ("Launcher", 0)


@pytest.mark.parametrize(("phase", "deleted"), [("Succeeded", False), ("Failed", False), ("Running", True)])
def test_a_finished_or_deleted_job_has_ended(phase: str, *, deleted: bool) -> None:
    script = next(script for script in scripts(1) if script.kind is MPIJob)
    job = {**script.body("chaos"), "metadata": {"name": script.name, "uid": "u"}, "status": {"dlop": {"phase": phase}}}
    histories = Histories({"kubeflow.org/mpijobs": MPIJob}, namespace="chaos")
    event = etcd_event(f"/registry/kubeflow.org/mpijobs/chaos/{script.name}", job, revision=2, created=1, deleted=deleted)
    change = parse_event(event, seconds=1.0)
    assert change is not None
    histories.add(change)
    assert histories.ended == {script.name}


def test_a_name_without_an_index_belongs_to_index_0() -> None:
    script = next(script for script in scripts(1) if script.kind is MPIJob)
    names = pod_names(MPIJob, script.body("chaos"))
    assert names[f"{script.name}-launcher"] == ("Launcher", 0)
