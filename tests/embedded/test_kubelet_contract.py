"""All kubelet test cases, with real processes, run concurrently."""

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
from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.kube.errors import AlreadyExistsError
from tests.embedded import kubelet_cases_config, kubelet_cases_lifecycle, kubelet_cases_order, kubelet_cases_probes
from tests.embedded.kubelet_cases import (
    Case,
    CreateObject,
    DeletePod,
    ExpectDeleted,
    ExpectEvent,
    ExpectOutput,
    ExpectStatus,
    PatchObject,
    Step,
    WaitForOutput,
)
from tests.embedded.node_env import NodeEnv, embedded_node_env, find_mismatch

_CASE_MODULES = (kubelet_cases_lifecycle, kubelet_cases_order, kubelet_cases_config, kubelet_cases_probes)
CASES = [case for module in _CASE_MODULES for case in module.CASES]

_IMAGES = ImageMap([Image(name="echo-image", command=("echo", "the image says"), environment={"COLOUR": "red", "SHAPE": "square"})])
_MAX_CONCURRENT = 24

pytestmark = pytest.mark.asyncio(loop_scope="module")

CaseTasks = dict[str, "asyncio.Task[None]"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["isolated", "plain"])
async def case_tasks(request: pytest.FixtureRequest) -> AsyncIterator[CaseTasks]:
    """The tasks that run the cases, by name."""
    runtime = PlainRuntime(rng=Random(1)) if request.param == "plain" else (await detect_runtime()).runtime
    semaphore = asyncio.Semaphore(_MAX_CONCURRENT)
    with tempfile.TemporaryDirectory(prefix="dlop-contract-") as directory:
        async with embedded_node_env(runtime, Path(directory), images=_IMAGES, extended_resources={"nvidia.com/gpu": 2}) as env:
            tasks = {case.name: asyncio.create_task(_run_case(env, case, f"case-{number}", semaphore)) for number, case in enumerate(CASES)}
            yield tasks
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_kubelet_case_passes(case: Case, case_tasks: CaseTasks) -> None:
    await case_tasks[case.name]


async def test_case_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


async def _run_case(env: NodeEnv, case: Case, name: str, semaphore: asyncio.Semaphore) -> None:
    async with semaphore:
        for creation in case.objects:
            try:
                await env.create(creation.resource, creation.body)
            except AlreadyExistsError:
                raise AssertionError("two cases use the same object") from None
        await env.run_pod(name, case.spec, **case.metadata)
        version = 0
        for step in case.steps:
            version = await _run_step(env, step, name, version)
        if not env.history(name).is_deleted:
            await env.delete(name, grace_seconds=0)


async def _run_step(env: NodeEnv, step: Step, name: str, version: int) -> int:
    """Run a step. Returns the index of the pod version that it has matched."""
    match step:
        case ExpectStatus():
            return await env.wait_for_status(name, step.pattern, since=version)
        case DeletePod():
            await env.delete(name, grace_seconds=step.grace_seconds)
        case ExpectDeleted():
            mismatch = find_mismatch(step.pattern, await env.wait_deleted(name))
            assert not mismatch, mismatch
        case ExpectEvent():
            await env.wait_for_event(name, step.pattern)
        case CreateObject():
            await env.create(step.resource, step.body)
        case PatchObject():
            await env.client.patch(step.resource, step.name, step.change, namespace=env.namespace)
        case WaitForOutput():
            await env.wait_for_output(name, step.text, step.container)
        case ExpectOutput():
            _check_output(step, env.output(name, step.container))
    return version


def _check_output(step: ExpectOutput, output: str) -> None:
    if isinstance(step.text, re.Pattern):
        assert step.text.search(output), output
    else:
        assert output == step.text
