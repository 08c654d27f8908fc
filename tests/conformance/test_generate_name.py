"""Names that the server makes."""

from __future__ import annotations

import asyncio
import re

from dlop.kube.errors import InvalidError
from dlop.kube.resources import CONFIG_MAPS
from tests.conformance.bodies import config_map, custom
from tests.conformance.definitions import WIDGETS
from tests.conformance.support import Api, refused


async def test_a_generated_name_is_the_prefix_and_five_letters(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}})
    assert re.fullmatch("made-[bcdfghjklmnpqrstvwxz2456789]{5}", created["metadata"]["name"])
    assert created["metadata"]["generateName"] == "made-"


async def test_generated_names_differ(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    created = await asyncio.gather(*(api.create(CONFIG_MAPS, body) for _ in range(20)))
    assert len({each["metadata"]["name"] for each in created}) == 20


async def test_a_custom_object_can_have_a_generated_name(api: Api) -> None:
    body = custom(WIDGETS, "") | {"metadata": {"generateName": "made-"}}
    assert (await api.create(WIDGETS, body))["metadata"]["name"].startswith("made-")


async def test_a_given_name_goes_before_a_generated_one(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("given", generateName="made-"))
    assert created["metadata"]["name"] == "given"


async def test_a_long_prefix_is_cut_so_that_the_name_has_63_letters(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, {"metadata": {"generateName": "x" * 70}})
    assert len(created["metadata"]["name"]) == 63


async def test_an_object_without_any_name_is_invalid(api: Api) -> None:
    error = await refused(api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap"}), InvalidError)
    assert str(error) == 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    assert error.details["causes"] == [
        {"reason": "FieldValueRequired", "message": "Required value: name or generateName is required", "field": "metadata.name"}
    ]
    assert "name" not in error.details
