"""The paths that suspend and scale write to, and the merge patches they send."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.frameworks.fioravanzo.mxjob import MXJob as FioravanzoMXJob
from dlop.frameworks.mpba.tfjob import TFJob
from dlop.frameworks.registry import Registry
from dlop.jobs.actions import value_at, with_value_at
from dlop.jobs.render import parse_job
from dlop.kube.merge_patch import merge_patch
from tests.sim.crew_job import CrewJob, crew, mxjob, template

DATA = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)


def spec_patch(before: Any, after: Any) -> Any:
    return merge_patch({"spec": before}, {"spec": after}).get("spec", {})


def apply_patch(target: Any, patch: Any) -> Any:
    """RFC 7386 without deletions, because these patches delete nothing."""
    if not isinstance(patch, dict):
        return patch
    fields = target if isinstance(target, dict) else {}
    return {**fields, **{name: apply_patch(fields.get(name), value) for name, value in patch.items()}}


@given(before=DATA, path=st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple), value=st.integers())
def test_applying_the_patch_yields_the_new_spec(before: Any, path: tuple[str, ...], value: int) -> None:
    after = with_value_at(before, path, value)
    assert value_at(after, path) == value
    if after != before:
        assert apply_patch(before, spec_patch(before, after)) == after


def test_a_patch_contains_only_changed_fields_and_complete_lists() -> None:
    before = {"a": {"b": 1, "c": 2}, "d": [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}]}
    assert spec_patch(before, with_value_at(before, ("a", "b"), 5)) == {"a": {"b": 5}}
    assert spec_patch(before, with_value_at(before, ("d", 1, "n"), 5)) == {"d": [{"n": 1, "t": "x"}, {"n": 5, "t": "y"}]}
    assert spec_patch(before, with_value_at(before, ("run", "suspend"), value=True)) == {"run": {"suspend": True}}


@pytest.mark.parametrize(
    ("manifest", "role", "path"),
    [
        (crew("x"), "worker", ("replicaSpecs", "Worker", "replicas")),
        (crew("x"), "Evaluator", None),
        (mxjob("x"), "WORKER", ("replicaSpecs", 2, "replicas")),
        (mxjob("x"), "BOAT", None),
    ],
)
def test_every_kind_knows_the_path_of_its_replica_count(manifest: dict[str, Any], role: str, path: tuple[str | int, ...] | None) -> None:
    assert replicas_path(manifest, Registry([CrewJob, FioravanzoMXJob]), role) == path


def replicas_path(manifest: dict[str, Any], registry: Registry, role: str) -> tuple[str | int, ...] | None:
    job = parse_job(manifest, registry)
    return job.schema.replicas_path(job.spec_field, role)


def test_an_entry_without_a_role_is_the_scheduler() -> None:
    manifest = mxjob("x")
    del manifest["spec"]["replicaSpecs"][0]["mxReplicaType"]
    assert replicas_path(manifest, Registry([FioravanzoMXJob]), "SCHEDULER") == ("replicaSpecs", 0, "replicas")


def test_a_spec_that_is_a_list_has_the_replica_count_in_its_entries() -> None:
    entries = [{"replicas": 1, "replicaType": role, "template": template()} for role in ("worker", "ps")]
    manifest = {"apiVersion": "mpba.fbk.eu/v1", "kind": "TFJob", "metadata": {"name": "x"}, "spec": entries}
    assert replicas_path(manifest, Registry([TFJob]), "ps") == (1, "replicas")
