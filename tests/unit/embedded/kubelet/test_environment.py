from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.embedded.kubelet.environment import (
    ConfigSources,
    ContainerConfigError,
    DownwardValues,
    build_environment,
    expand,
    referenced_sources,
    resolve_field_ref,
)
from dlop.kube.types import JsonObject

_DOWNWARD = DownwardValues("10.0.0.1", "10.0.0.7", {"cpu": "8", "memory": "16Gi"})
_POD: JsonObject = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": 'say "hi"'}},
    "spec": {"containers": []},
}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1y2z"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(A", "$(A"),
        ("$A $", "$A $"),
        ("$()", "$()"),
        ("$(A)$(", "1$("),
    ],
)
def test_references_are_expanded_as_in_kubernetes(text: str, result: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == result


@given(st.text())
def test_a_string_without_dollar_signs_is_unchanged(text: str) -> None:
    plain = text.replace("$", "")
    assert expand(plain, {"A": "1"}) == plain


def test_values_are_not_expanded_twice() -> None:
    container = {"env": [{"name": "A", "value": "$$(B)"}, {"name": "B", "value": "x"}, {"name": "C", "value": "$(A)"}]}
    assert build_environment(_POD, container, downward=_DOWNWARD, sources=ConfigSources())["C"] == "$(B)"


def test_all_labels_are_sorted_and_quoted() -> None:
    assert resolve_field_ref(_POD, "metadata.labels", downward=_DOWNWARD) == 'a="say \\"hi\\""\nb="2"'


def test_a_missing_label_is_empty() -> None:
    assert resolve_field_ref(_POD, "metadata.labels['none']", downward=_DOWNWARD) == ""


def test_an_unsupported_field_is_an_error() -> None:
    with pytest.raises(ContainerConfigError, match=r"unsupported fieldPath: spec\.containers"):
        resolve_field_ref(_POD, "spec.containers", downward=_DOWNWARD)


def test_the_names_of_all_sources_are_returned() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
        "env": [
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "d", "key": "k"}}},
            {"name": "Z", "value": "1"},
        ],
    }
    config_maps, secrets = referenced_sources(container)
    assert sorted(config_maps) == ["a", "c"]
    assert sorted(secrets) == ["b", "d"]


def test_a_secret_that_is_not_utf8_keeps_its_bytes() -> None:
    sources = ConfigSources(secrets={"s": {"data": {"k": base64.b64encode(b"\xff\x00x").decode()}}})
    container = {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
    environment = build_environment(_POD, container, downward=_DOWNWARD, sources=sources)
    assert environment["X"].encode(errors="surrogateescape") == b"\xff\x00x"


def test_a_later_source_overrides_an_earlier_one() -> None:
    sources = ConfigSources(config_maps={"a": {"data": {"X": "1", "Y": "1"}}, "b": {"data": {"Y": "2"}}})
    container = {"envFrom": [{"configMapRef": {"name": "a"}}, {"configMapRef": {"name": "b"}}]}
    assert build_environment(_POD, container, downward=_DOWNWARD, sources=sources) == {"X": "1", "Y": "2"}
