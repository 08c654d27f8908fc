"""Patches of specs: only what is new, and the same spec after the server has merged them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.frameworks.fioravanzo.mxjob import MXJob as FioravanzoMXJob
from dlop.frameworks.mpba.tfjob import TFJob
from dlop.frameworks.registry import Registry
from dlop.jobs.actions import changed, difference, value_at
from dlop.jobs.render import job_of
from tests.sim.job_world import CrewJob, crew, mxjob, template

DATA = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, without the taking away."""
    if not isinstance(patch, dict):
        return patch
    found = target if isinstance(target, dict) else {}
    return {**found, **{name: merged(found.get(name), value) for name, value in patch.items()}}


@given(before=DATA, path=st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple), value=st.integers())
def test_the_server_makes_of_a_patch_what_was_meant(before: Any, path: tuple[str, ...], value: int) -> None:
    after = changed(before, path, value)
    assert value_at(after, path) == value
    assert merged(before, difference(before, after)) == after


def test_a_patch_has_only_what_is_new_and_lists_as_a_whole() -> None:
    before = {"a": {"b": 1, "c": 2}, "d": [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}]}
    assert difference(before, changed(before, ("a", "b"), 5)) == {"a": {"b": 5}}
    assert difference(before, changed(before, ("d", 1, "n"), 5)) == {"d": [{"n": 1, "t": "x"}, {"n": 5, "t": "y"}]}
    assert difference(before, changed(before, ("run", "suspend"), value=True)) == {"run": {"suspend": True}}


@pytest.mark.parametrize(
    ("manifest", "role", "path"),
    [
        (crew("x"), "worker", ("replicaSpecs", "Worker", "replicas")),
        (crew("x"), "Evaluator", None),
        (mxjob("x"), "WORKER", ("replicaSpecs", 2, "replicas")),
        (mxjob("x"), "BOAT", None),
    ],
)
def test_every_kind_knows_where_its_replicas_are_written(manifest: dict[str, Any], role: str, path: tuple[str | int, ...] | None) -> None:
    assert job_of(manifest, Registry([CrewJob, FioravanzoMXJob])).replicas_path(role) == path


def test_an_entry_that_names_no_role_is_the_schedulers() -> None:
    manifest = mxjob("x")
    del manifest["spec"]["replicaSpecs"][0]["mxReplicaType"]
    assert job_of(manifest, Registry([FioravanzoMXJob])).replicas_path("SCHEDULER") == ("replicaSpecs", 0, "replicas")


def test_a_spec_that_is_a_list_has_its_replicas_in_the_entries() -> None:
    entries = [{"replicas": 1, "replicaType": role, "template": template()} for role in ("worker", "ps")]
    manifest = {"apiVersion": "mpba.fbk.eu/v1", "kind": "TFJob", "metadata": {"name": "x"}, "spec": entries}
    assert job_of(manifest, Registry([TFJob])).replicas_path("ps") == (1, "replicas")
