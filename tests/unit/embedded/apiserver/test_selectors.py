"""Label and field selectors."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.selectors import Selector, parse_selector
from dlop.kube.errors import BadRequestError
from dlop.kube.resources import Resource

_THINGS = Resource("", "v1", "things", "Thing")
PLAIN = ResourceType(resource=_THINGS, storage="things", singular="thing", merge_schema={})
WITH_FIELDS = ResourceType(
    resource=_THINGS, storage="things", singular="thing", merge_schema={}, fields={"status.phase": ("status", "phase"), "on": ("on",)}
)


def labels(text: str) -> Selector:
    return parse_selector(PLAIN, labels=text, fields="")


def fields(text: str) -> Selector:
    return parse_selector(WITH_FIELDS, labels="", fields=text)


@pytest.mark.parametrize(
    ("text", "selected", "rejected"),
    [
        ("a=1", [{"a": "1"}], [{"a": "2"}, {}, {"b": "1"}]),
        ("a==1", [{"a": "1"}], [{}]),
        ("a!=1", [{"a": "2"}, {}], [{"a": "1"}]),
        ("a in (1,2)", [{"a": "1"}, {"a": "2"}], [{"a": "3"}, {}]),
        ("a notin (1, 2)", [{"a": "3"}, {}], [{"a": "1"}]),
        ("a", [{"a": ""}, {"a": "x"}], [{"b": "x"}]),
        ("!a", [{}, {"b": ""}], [{"a": ""}]),
        ("a>5", [{"a": "6"}], [{"a": "5"}, {"a": "x"}, {}]),
        ("a<5", [{"a": "-1"}], [{"a": "5"}, {}]),
        ("a=", [{"a": ""}], [{}, {"a": "1"}]),
        ("a in ()", [{"a": ""}], [{"a": "1"}]),
        ("a=1,b", [{"a": "1", "b": "x"}], [{"a": "1"}, {"b": "x"}]),
        (" a = 1 , b ", [{"a": "1", "b": "x"}], [{"a": "1"}]),
        ("in=notin", [{"in": "notin"}], [{"in": "in"}]),
        ("example.org/x=1", [{"example.org/x": "1"}], [{"x": "1"}]),
        ("", [{}, {"a": "1"}], []),
    ],
)
def test_a_label_selector_selects_matching_objects(text: str, selected: list[dict[str, str]], rejected: list[dict[str, str]]) -> None:
    selector = labels(text)
    assert all(selector.matches({"metadata": {"labels": object_labels}}) for object_labels in selected)
    assert not any(selector.matches({"metadata": {"labels": object_labels}}) for object_labels in rejected)


def test_missing_labels_count_as_empty() -> None:
    assert labels("!a").matches({"metadata": {}})
    assert not labels("a").matches({"metadata": {}})


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "a,,b",
        "a,",
        "(a)",
        "a=b=c",
        "a b",
        "a=b c",
        "a in b",
        "a in (b",
        "a in (b c)",
        "!",
        "!!a",
        "a!b",
        "-a",
        "a=-",
        "/a",
        "a/b/c",
        "a>x",
        "=b",
    ],
)
def test_a_malformed_label_selector_is_a_bad_request(text: str) -> None:
    with pytest.raises(BadRequestError):
        labels(text)


@given(st.text(alphabet="ab1!=<>(), innot/.-", max_size=12))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    for parse in (labels, fields):
        with suppress(BadRequestError):
            parse(text).matches({"metadata": {"labels": {"a": "1"}}})


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("metadata.name=a", True),
        ("metadata.name!=a", False),
        ("metadata.name==a,metadata.namespace=n", True),
        ("metadata.namespace=m", False),
        ("status.phase=Running", True),
        ("status.phase!=Failed,metadata.name=a", True),
        ("on=true", True),
        ("status.phase=", False),
        ("", True),
    ],
)
def test_a_field_selector_selects_matching_objects(text: str, *, selected: bool) -> None:
    body = {"metadata": {"name": "a", "namespace": "n"}, "status": {"phase": "Running"}, "on": True}
    assert fields(text).matches(body) is selected


def test_a_missing_field_counts_as_empty() -> None:
    assert fields("status.phase=").matches({"metadata": {"name": "a"}})
    assert not fields("status.phase=Running").matches({"metadata": {"name": "a"}, "status": "odd"})


def test_a_backslash_escapes_commas_and_equals_signs() -> None:
    assert fields(r"status.phase=a\,b\=c\\").matches({"metadata": {}, "status": {"phase": "a,b=c\\"}})


@pytest.mark.parametrize(
    ("resource_type", "message"),
    [
        (PLAIN, '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        (WITH_FIELDS, "field label not supported: spec.x"),
    ],
)
def test_an_unsupported_field_is_reported(resource_type: ResourceType, message: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_selector(resource_type, labels="", fields="spec.x=1")
    assert str(caught.value) == message


def test_a_term_without_an_operator_is_a_bad_request() -> None:
    with pytest.raises(BadRequestError, match=r"can't understand 'metadata\.name'"):
        fields("metadata.name")
