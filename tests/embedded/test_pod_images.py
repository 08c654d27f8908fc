"""Images that are Python environments: made once, shared, and told of when they cannot be made."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from dlop.embedded.kubelet.image_map import Image, ImageMap, ImageProblem, PythonEnvironment
from dlop.embedded.kubelet.python_environments import PythonEnvironments
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from tests.embedded.kubelet_cases import main, pod, waiting
from tests.embedded.node_world import NodeWorld, embedded_world

_WHERE = ("python", "-c", "import sys; print(sys.prefix)")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[NodeWorld]:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "words").write_text("from the image\n")
    images = ImageMap(
        [
            Image(name="good", command=_WHERE, python=PythonEnvironment(())),
            Image(name="bad", command=_WHERE, python=PythonEnvironment(("/no/such/package",))),
            Image(name="files", command=("cat", "/app/words"), files={"/app": tmp_path / "files"}),
        ]
    )
    environments = PythonEnvironments(tmp_path / "cache")
    async with embedded_world(PlainRuntime(dice=Random(5)), tmp_path / "node", images=images, environments=environments) as world:
        yield world


async def test_the_python_of_an_image_is_its_own_and_two_pods_share_it(world: NodeWorld, tmp_path: Path) -> None:
    for name in ("a", "b"):
        await world.run_pod(name, pod({"name": "main", "image": "good:1"}))
    for name in ("a", "b"):
        assert (await world.sees_the_end(name))["phase"] == "Succeeded"
        assert Path(world.output(name).strip()).parent == tmp_path / "cache"
    await world.hears("a", {"reason": "Pulling", "message": 'Pulling image "good:1"'})
    assert world.output("a") == world.output("b")


async def test_an_environment_that_cannot_be_made_is_an_image_that_cannot_be_pulled(world: NodeWorld) -> None:
    await world.run_pod("a", pod({"name": "main", "image": "bad"}))
    await world.sees("a", {"phase": "Pending", **main(state=waiting("ErrImagePull", message=re.compile("/no/such/package")))})


async def test_the_files_of_an_image_are_in_the_container(world: NodeWorld) -> None:
    await world.run_pod("a", pod({"name": "main", "image": "files"}))
    assert (await world.sees_the_end("a"))["phase"] == "Succeeded"
    assert world.output("a") == "from the image\n"


async def test_who_asks_while_an_environment_is_made_waits_for_it(tmp_path: Path) -> None:
    told: list[str] = []
    environments = PythonEnvironments(tmp_path, tell=told.append)
    programs = await asyncio.gather(*(environments.programs(PythonEnvironment(())) for _ in range(3)))
    assert len(set(programs)) == 1
    assert told.count("the Python environment is ready") == 1
    assert (programs[0] / "python").exists()


async def test_a_python_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ImageProblem, match=r"wants Python 2\.1"):
        await PythonEnvironments(tmp_path).programs(PythonEnvironment((), "2.1"))
