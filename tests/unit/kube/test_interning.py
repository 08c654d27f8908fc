"""Interning: equal values share one instance, and the number of values is bounded."""

from __future__ import annotations

from typing import Any

import msgspec

from dlop.kube.objects import Interner, Pod, Service, object_decoder

OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "job", "uid": "1234", "controller": True}


def copy_of(value: str) -> str:
    """A string with its own identity, as decoding creates it."""
    return "".join(list(value))


def body(name: str, **spec: Any) -> bytes:
    labels = {"training.kubeflow.org/job-name": "job", "index": name}
    metadata = {"name": name, "namespace": "team-a", "labels": labels, "ownerReferences": [OWNER]}
    return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


def test_the_first_of_several_equal_values_is_returned() -> None:
    interner = Interner()
    first = copy_of("worker")
    assert interner.intern(first) is first
    assert interner.intern(copy_of("worker")) is first
    assert interner.intern(copy_of("master")) == "master"
    assert len(interner) == 2


def test_no_more_than_max_entries_are_kept() -> None:
    interner = Interner(max_entries=3)
    for number in range(100):
        assert interner.intern(f"value {number}") == f"value {number}"
        assert len(interner) <= 3


def test_the_pods_of_a_job_share_owner_spec_label_values_and_phase() -> None:
    spec = {"nodeName": "node-1", "restartPolicy": "Never", "containers": [{"name": "main"}]}
    one, other = object_decoder(Pod)(body("job-0", **spec)), object_decoder(Pod)(body("job-1", **spec))
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.metadata.labels["training.kubeflow.org/job-name"] is other.metadata.labels["training.kubeflow.org/job-name"]
    assert one.spec is other.spec
    assert one.status.phase is other.status.phase
    assert (one.metadata.labels["index"], other.metadata.labels["index"]) == ("job-0", "job-1")


def test_pods_on_different_nodes_have_their_own_spec() -> None:
    one, other = object_decoder(Pod)(body("job-0", nodeName="node-1")), object_decoder(Pod)(body("job-1", nodeName="node-2"))
    assert (one.spec.node_name, other.spec.node_name) == ("node-1", "node-2")


def test_services_with_equal_ports_share_one_spec() -> None:
    ports = [{"name": "web", "port": 80}]
    one, other = object_decoder(Service)(body("job-0", ports=ports)), object_decoder(Service)(body("job-1", ports=ports))
    assert one.spec is other.spec
    assert object_decoder(Service)(body("job-2", ports=[{"name": "web", "port": 81}])).spec != one.spec
