from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.embedded.kubelet.environment import ConfigurationProblem, DownwardValues, Sources, expanded, field_value, named_sources, variables
from dlop.kube.types import JsonObject

_PLACE = DownwardValues("10.0.0.1", "10.0.0.7", {"cpu": "8", "memory": "16Gi"})
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
def test_references_are_expanded_as_kubernetes_does(text: str, result: str) -> None:
    assert expanded(text, {"A": "1", "B": "2"}) == result


@given(st.text())
def test_a_text_without_dollars_stays_as_it_is(text: str) -> None:
    plain = text.replace("$", "")
    assert expanded(plain, {"A": "1"}) == plain


def test_values_are_not_expanded_twice() -> None:
    container = {"env": [{"name": "A", "value": "$$(B)"}, {"name": "B", "value": "x"}, {"name": "C", "value": "$(A)"}]}
    assert variables(_POD, container, place=_PLACE, sources=Sources())["C"] == "$(B)"


def test_labels_as_a_whole_are_sorted_and_quoted() -> None:
    assert field_value(_POD, "metadata.labels", place=_PLACE) == 'a="say \\"hi\\""\nb="2"'


def test_a_label_that_is_not_there_is_empty() -> None:
    assert field_value(_POD, "metadata.labels['none']", place=_PLACE) == ""


def test_a_field_that_nobody_may_ask_for_is_a_problem() -> None:
    with pytest.raises(ConfigurationProblem, match=r"unsupported fieldPath: spec\.containers"):
        field_value(_POD, "spec.containers", place=_PLACE)


def test_the_names_of_all_sources_are_found() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
        "env": [
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "d", "key": "k"}}},
            {"name": "Z", "value": "1"},
        ],
    }
    config_maps, secrets = named_sources(container)
    assert sorted(config_maps) == ["a", "c"]
    assert sorted(secrets) == ["b", "d"]


def test_a_secret_that_is_no_text_becomes_those_very_bytes() -> None:
    sources = Sources(secrets={"s": {"data": {"k": base64.b64encode(b"\xff\x00x").decode()}}})
    container = {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
    found = variables(_POD, container, place=_PLACE, sources=sources)
    assert found["X"].encode(errors="surrogateescape") == b"\xff\x00x"


def test_a_later_source_outranks_an_earlier_one() -> None:
    sources = Sources(config_maps={"a": {"data": {"X": "1", "Y": "1"}}, "b": {"data": {"Y": "2"}}})
    container = {"envFrom": [{"configMapRef": {"name": "a"}}, {"configMapRef": {"name": "b"}}]}
    assert variables(_POD, container, place=_PLACE, sources=sources) == {"X": "1", "Y": "2"}
