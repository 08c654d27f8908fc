"""Deeply nested objects do not make a list unreadable."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.kube.client import Client
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject, decode_json
from dlop.kube.resources import Resource
from dlop.testing.virtual_time import virtual_time
from tests.fake_api_server import FakeApiServer, names, run_ready_callbacks, running_informer
from tests.thorough import examples

# More than any Python version supports. Since 3.12 the limit for C code differs from the one for Python code.
TOO_DEEP = 20_000

any_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def deep(levels: int, inside: bytes = b"1") -> bytes:
    return b'{"a":[' * (levels // 2) + inside + b"]}" * (levels // 2)


@settings(max_examples=examples(25))
@given(json_values, json_values)
def test_shallow_values_next_to_a_deep_one_are_decoded_unchanged(before: Any, after: Any) -> None:
    data = b"[" + b",".join([msgspec.json.encode(before), deep(TOO_DEEP), msgspec.json.encode(after)]) + b"]"
    decoded = decode_json(data, any_decoder)
    assert (decoded[0], decoded[2]) == (before, after)


def test_values_below_the_limit_become_null_and_brackets_in_strings_do_not_count() -> None:
    decoded = decode_json(deep(TOO_DEEP, inside=b'"]}\\"{["'), any_decoder)
    levels = 0
    while decoded is not None:
        decoded = decoded["a"] if isinstance(decoded, dict) else decoded[0]
        levels += 1
    assert levels == 200


@pytest.mark.parametrize("data", [b"[" * 5000, b"]" * 5000, b'{"a":' * 5000, b'["' * 5000])
def test_invalid_json_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_json(data, any_decoder)


@pytest.mark.parametrize("streams_lists", [True, False])
@virtual_time
async def test_an_informer_continues_past_an_object_that_is_nested_too_deeply(streams_lists: bool) -> None:
    server = FakeApiServer(streams_lists=streams_lists)
    server.put("deep", spec=msgspec.Raw(deep(TOO_DEEP)))
    async with running_informer(server) as informer:
        server.put("deep", spec=msgspec.Raw(deep(TOO_DEEP + 2)))
        server.put("other")
        await run_ready_callbacks()
        assert names(informer) == ["deep", "other"]
        assert informer.cache.resource_version == server.version


@virtual_time
async def test_a_custom_object_that_is_nested_too_deeply_keeps_its_shallow_fields() -> None:
    server = FakeApiServer()
    server.put("deep", spec=msgspec.Raw(b'{"replicas":3,"junk":' + deep(TOO_DEEP) + b"}"))
    widgets = Resource("example.org", "v1", "widgets", "Widget")
    informer: Informer[CustomObject] = Informer(Client(server), widgets, CustomObject, rng=Random(1))
    replacement, _ = await informer._read_pages()
    (widget,) = replacement.contents.objects.values()
    assert widget.body()["spec"]["replicas"] == 3
