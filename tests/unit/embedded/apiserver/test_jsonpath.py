"""JSONPath of printer columns."""

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
    ("path", "values"),
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
def test_a_path_returns_the_matching_values(path: str, values: list[Any]) -> None:
    assert JsonPath(path).find(_BODY) == values


@pytest.mark.parametrize("path", [".a[", ".a[?(x)]", "no dot"])
def test_an_unsupported_path_is_rejected(path: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - three different messages
        JsonPath(path)
