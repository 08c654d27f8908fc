"""Claims on `dlop.kube.interning`: what is equal is kept once, and not for ever."""

from __future__ import annotations

from typing import Any

import msgspec

from dlop.kube.interning import Interner
from dlop.kube.objects import Pod, Service, reader

OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "job", "uid": "1234", "controller": True}


def text(value: str) -> str:
    """A text of its own, as decoding makes them."""
    return "".join(list(value))


def body(name: str, **spec: Any) -> bytes:
    labels = {"training.kubeflow.org/job-name": "job", "index": name}
    metadata = {"name": name, "namespace": "team-a", "labels": labels, "ownerReferences": [OWNER]}
    return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


def test_of_equal_values_the_first_one_is_kept() -> None:
    shared = Interner()
    first = text("worker")
    assert shared.one(first) is first
    assert shared.one(text("worker")) is first
    assert shared.one(text("master")) == "master"
    assert len(shared) == 2


def test_no_more_values_are_kept_than_asked_for() -> None:
    shared = Interner(most=3)
    for number in range(100):
        assert shared.one(f"value {number}") == f"value {number}"
        assert len(shared) <= 3


def test_the_pods_of_a_job_have_their_owner_spec_and_words_in_common() -> None:
    spec = {"nodeName": "node-1", "restartPolicy": "Never", "containers": [{"name": "main"}]}
    one, other = reader(Pod)(body("job-0", **spec)), reader(Pod)(body("job-1", **spec))
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.metadata.labels["training.kubeflow.org/job-name"] is other.metadata.labels["training.kubeflow.org/job-name"]
    assert one.spec is other.spec
    assert one.status.phase is other.status.phase
    assert (one.metadata.labels["index"], other.metadata.labels["index"]) == ("job-0", "job-1")


def test_pods_on_two_nodes_keep_their_own() -> None:
    one, other = reader(Pod)(body("job-0", nodeName="node-1")), reader(Pod)(body("job-1", nodeName="node-2"))
    assert (one.spec.node_name, other.spec.node_name) == ("node-1", "node-2")


def test_services_of_the_same_ports_have_them_in_common() -> None:
    ports = [{"name": "web", "port": 80}]
    one, other = reader(Service)(body("job-0", ports=ports)), reader(Service)(body("job-1", ports=ports))
    assert one.spec is other.spec
    assert reader(Service)(body("job-2", ports=[{"name": "web", "port": 81}])).spec != one.spec
