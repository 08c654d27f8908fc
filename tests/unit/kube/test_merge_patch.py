"""Merge patches: applying the patch to the old object gives the new one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dlop.embedded.apiserver.patches.patch import apply_merge_patch
from dlop.kube.merge_patch import merge_patch

# Without nulls in objects, because null means removal in a merge patch.
_VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)
_STATUSES = st.dictionaries(st.sampled_from("abcde"), _VALUES, max_size=5)


@given(old=_STATUSES, new=_STATUSES)
def test_the_patch_turns_the_old_object_into_the_new_one(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert apply_merge_patch(old, merge_patch(old, new)) == new


@given(status=_STATUSES)
def test_equal_objects_give_an_empty_patch(status: dict[str, Any]) -> None:
    assert merge_patch(status, status) == {}


def test_the_patch_contains_only_changed_fields() -> None:
    old = {"a": {"x": 1, "y": 2}, "b": [1, 2], "removed": 1}
    assert merge_patch(old, {"a": {"x": 1, "y": 3}, "b": [1, 2]}) == {"a": {"y": 3}, "removed": None}
