"""Paths of printer columns."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.embedded.apiserver.views.jsonpath import JsonPath

_BODY = {
    "metadata": {"annotations": {"x.y/z": "dotted"}},
    "spec": {"replicas": 3, "list": [{"n": "a", "v": 1}, {"n": "b", "v": 2}], "map": {"k": 1, "l": 2}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.replicas", [3]),
        (".spec.list[0].n", ["a"]),
        (".spec.list[-1].n", ["b"]),
        (".spec.list[*].n", ["a", "b"]),
        (".spec.list[0:1].n", ["a"]),
        (".spec.map.*", [1, 2]),
        (".spec['replicas']", [3]),
        (r".metadata.annotations.x\.y/z", ["dotted"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Done')].status", ["False"]),
        (".spec.list[?(@.v>1)].n", ["b"]),
        (".spec.list[?(@.x)].n", []),
        ("..n", ["a", "b"]),
        (".spec.nothing.below", []),
        (".spec.replicas.below", []),
        (".spec.list[7].n", []),
    ],
)
def test_a_path_finds_what_it_leads_to_and_nothing_else(path: str, found: list[Any]) -> None:
    assert JsonPath(path).find(_BODY) == found


@pytest.mark.parametrize("path", [".a[", ".a[?(x)]", "no dot"])
def test_a_path_that_is_not_understood_is_refused(path: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - three different sentences
        JsonPath(path)
