"""Images with Python environments: created once, shared, and reported when they cannot be created."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from dlop.embedded.kubelet.image_map import Image, ImageMap, ImagePullError, PythonEnvironment
from dlop.embedded.kubelet.python_environments import PythonEnvironments
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from tests.embedded.kubelet_cases import main, pod, waiting
from tests.embedded.node_env import NodeEnv, embedded_node_env

_PRINT_PREFIX = ("python", "-c", "import sys; print(sys.prefix)")


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[NodeEnv]:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "words").write_text("from the image\n")
    images = ImageMap(
        [
            Image(name="good", command=_PRINT_PREFIX, python=PythonEnvironment(())),
            Image(name="bad", command=_PRINT_PREFIX, python=PythonEnvironment(("/no/such/package",))),
            Image(name="files", command=("cat", "/app/words"), files={"/app": tmp_path / "files"}),
        ]
    )
    environments = PythonEnvironments(tmp_path / "cache")
    async with embedded_node_env(PlainRuntime(rng=Random(5)), tmp_path / "node", images=images, environments=environments) as env:
        yield env


async def test_pods_share_the_python_environment_of_an_image(env: NodeEnv, tmp_path: Path) -> None:
    for name in ("a", "b"):
        await env.run_pod(name, pod({"name": "main", "image": "good:1"}))
    for name in ("a", "b"):
        assert (await env.wait_finished(name))["phase"] == "Succeeded"
        assert Path(env.output(name).strip()).parent == tmp_path / "cache"
    await env.wait_for_event("a", {"reason": "Pulling", "message": 'Pulling image "good:1"'})
    assert env.output("a") == env.output("b")


async def test_an_environment_that_cannot_be_created_is_an_image_pull_error(env: NodeEnv) -> None:
    await env.run_pod("a", pod({"name": "main", "image": "bad"}))
    await env.wait_for_status("a", {"phase": "Pending", **main(state=waiting("ErrImagePull", message=re.compile("/no/such/package")))})


async def test_the_files_of_an_image_are_mounted(env: NodeEnv) -> None:
    await env.run_pod("a", pod({"name": "main", "image": "files"}))
    assert (await env.wait_finished("a"))["phase"] == "Succeeded"
    assert env.output("a") == "from the image\n"


async def test_concurrent_users_of_an_environment_wait_for_its_creation(tmp_path: Path) -> None:
    messages: list[str] = []
    environments = PythonEnvironments(tmp_path, report=messages.append)
    bin_dirs = await asyncio.gather(*(environments.ensure(PythonEnvironment()) for _ in range(3)))
    assert len(set(bin_dirs)) == 1
    assert messages.count("the Python environment is ready") == 1
    assert (bin_dirs[0] / "python").exists()


async def test_a_missing_python_version_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImagePullError, match=r"requires Python 2\.1"):
        await PythonEnvironments(tmp_path).ensure(PythonEnvironment((), "2.1"))
