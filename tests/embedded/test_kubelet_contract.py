"""The node against the contract of a kubelet: every case of the table, with real processes, all at once."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from dlop.embedded.kubelet.image_map import Image, ImageMap
from dlop.embedded.kubelet.runtime.detect import choose
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.kube.errors import AlreadyExistsError
from tests.embedded import kubelet_cases_config, kubelet_cases_lifecycle, kubelet_cases_order, kubelet_cases_probes
from tests.embedded.kubelet_cases import Case, Creates, Deletes, Gone, Hears, Patches, Says, Sees, Speaks, Step
from tests.embedded.node_world import NodeWorld, difference, embedded_world

_FAMILIES = (kubelet_cases_lifecycle, kubelet_cases_order, kubelet_cases_config, kubelet_cases_probes)
CASES = [case for family in _FAMILIES for case in family.CASES]

_IMAGES = ImageMap([Image(name="talker", command=("echo", "the image says"), environment={"COLOUR": "red", "SHAPE": "square"})])
_AT_ONCE = 24

pytestmark = pytest.mark.asyncio(loop_scope="module")

Course = dict[str, "asyncio.Task[None]"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["isolated", "plain"])
async def course(request: pytest.FixtureRequest) -> AsyncIterator[Course]:
    """All cases under way, by their names."""
    runtime = PlainRuntime(dice=Random(1)) if request.param == "plain" else (await choose()).runtime
    places = asyncio.Semaphore(_AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="dlop-contract-") as folder:
        async with embedded_world(runtime, Path(folder), images=_IMAGES, extended={"nvidia.com/gpu": 2}) as world:
            tasks = {case.name: asyncio.create_task(_play(world, case, f"case-{number}", places)) for number, case in enumerate(CASES)}
            yield tasks
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_node_keeps_the_contract(case: Case, course: Course) -> None:
    await course[case.name]


async def test_the_table_has_no_case_twice() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


async def _play(world: NodeWorld, case: Case, name: str, places: asyncio.Semaphore) -> None:
    async with places:
        for creation in case.before:
            try:
                await world.create(creation.resource, creation.body)
            except AlreadyExistsError:
                raise AssertionError("two cases use one object") from None
        await world.run_pod(name, case.spec, **case.metadata)
        at = 0
        for step in case.steps:
            at = await _take(world, step, name, at)
        if not world.sight(name).is_gone:
            await world.delete(name, grace_seconds=0)


async def _take(world: NodeWorld, step: Step, name: str, at: int) -> int:
    """Take a step, and say which version of the pod it has seen."""
    match step:
        case Sees():
            return await world.sees(name, step.pattern, since=at)
        case Deletes():
            await world.delete(name, grace_seconds=step.grace_seconds)
        case Gone():
            problem = difference(step.pattern, await world.sees_it_gone(name))
            assert not problem, problem
        case Hears():
            await world.hears(name, step.pattern)
        case Creates():
            await world.create(step.resource, step.body)
        case Patches():
            await world.client.patch(step.resource, step.name, step.change, namespace=world.namespace)
        case Speaks():
            await world.hears_say(name, step.text, step.container)
        case Says():
            _check_output(step, world.output(name, step.container))
    return at


def _check_output(step: Says, output: str) -> None:
    if isinstance(step.text, re.Pattern):
        assert step.text.search(output), output
    else:
        assert output == step.text
