"""Names that the server generates."""

from __future__ import annotations

import asyncio
import re

from dlop.kube.errors import InvalidError
from dlop.kube.resources import CONFIG_MAPS
from tests.conformance.bodies import config_map, object_of
from tests.conformance.crds import WIDGETS
from tests.conformance.support import Api, expect_error


async def test_a_generated_name_is_the_prefix_and_five_characters(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "prefix-"}})
    assert re.fullmatch("prefix-[bcdfghjklmnpqrstvwxz2456789]{5}", created["metadata"]["name"])
    assert created["metadata"]["generateName"] == "prefix-"


async def test_generated_names_differ(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "prefix-"}}
    created = await asyncio.gather(*(api.create(CONFIG_MAPS, body) for _ in range(20)))
    assert len({obj["metadata"]["name"] for obj in created}) == 20


async def test_a_custom_object_can_have_a_generated_name(api: Api) -> None:
    body = object_of(WIDGETS, "") | {"metadata": {"generateName": "prefix-"}}
    assert (await api.create(WIDGETS, body))["metadata"]["name"].startswith("prefix-")


async def test_name_takes_precedence_over_generate_name(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("explicit", generateName="prefix-"))
    assert created["metadata"]["name"] == "explicit"


async def test_a_long_prefix_is_truncated_to_a_name_of_63_characters(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, {"metadata": {"generateName": "x" * 70}})
    assert len(created["metadata"]["name"]) == 63


async def test_an_object_without_a_name_is_invalid(api: Api) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap"}), InvalidError)
    assert str(error) == 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    assert error.details["causes"] == [
        {"reason": "FieldValueRequired", "message": "Required value: name or generateName is required", "field": "metadata.name"}
    ]
    assert "name" not in error.details
