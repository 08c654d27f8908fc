"""However deeply a user nests, the list that the object is in can be read."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.kube import json_depth
from dlop.kube.client import Client
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject
from dlop.kube.resources import Resource
from dlop.testing.virtual_time import virtual_time
from tests.toy_server import ToyServer, following, names, settle

# Deeper than any version of Python goes: from 3.12 on, the limit of C code is not that of Python code.
TOO_DEEP = 20_000

anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def deep(levels: int, inside: bytes = b"1") -> bytes:
    return b'{"a":[' * (levels // 2) + inside + b"]}" * (levels // 2)


@settings(max_examples=25)
@given(json_values, json_values)
def test_what_is_near_is_read_as_it_is_next_to_something_deep(before: Any, after: Any) -> None:
    data = b"[" + b",".join([msgspec.json.encode(before), deep(TOO_DEEP), msgspec.json.encode(after)]) + b"]"
    read = json_depth.decode(data, anything)
    assert (read[0], read[2]) == (before, after)


def test_what_lies_too_deep_is_null_and_its_brackets_in_strings_do_not_count() -> None:
    read = json_depth.decode(deep(TOO_DEEP, inside=b'"]}\\"{["'), anything)
    levels = 0
    while read is not None:
        read = read["a"] if isinstance(read, dict) else read[0]
        levels += 1
    assert levels == 200


@pytest.mark.parametrize("data", [b"[" * 5000, b"]" * 5000, b'{"a":' * 5000, b'["' * 5000])
def test_what_is_no_json_stays_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        json_depth.decode(data, anything)


@pytest.mark.parametrize("streams_lists", [True, False])
@virtual_time
async def test_an_informer_follows_past_an_object_that_is_nested_too_deeply(streams_lists: bool) -> None:
    server = ToyServer(streams_lists=streams_lists)
    server.put("deep", spec=msgspec.Raw(deep(TOO_DEEP)))
    async with following(server) as informer:
        server.put("deep", spec=msgspec.Raw(deep(TOO_DEEP + 2)))
        server.put("other")
        await settle()
        assert names(informer) == ["deep", "other"]
        assert informer.cache.resource_version == server.version


@virtual_time
async def test_a_custom_object_that_is_nested_too_deeply_keeps_what_is_near() -> None:
    server = ToyServer()
    server.put("deep", spec=msgspec.Raw(b'{"replicas":3,"junk":' + deep(TOO_DEEP) + b"}"))
    widgets = Resource("example.org", "v1", "widgets", "Widget")
    informer: Informer[CustomObject] = Informer(Client(server), widgets, CustomObject, rng=Random(1))
    replacement, _ = await informer._read_pages()
    (found,) = replacement.contents.objects.values()
    assert found.body()["spec"]["replicas"] == 3
