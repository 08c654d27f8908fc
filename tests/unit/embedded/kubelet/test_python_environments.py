"""Requirement files are installed with `pip install -r`, and a change of their content creates another environment."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from dlop.embedded.kubelet.image_map import ImagePullError, PythonEnvironment
from dlop.embedded.kubelet.python_environments import PythonEnvironments


def _write_wheel(directory: Path, name: str, version: str) -> Path:
    """A wheel with one module, whose `version` is that of the distribution."""
    directory.mkdir(parents=True, exist_ok=True)
    path, info = directory / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with ZipFile(path, "w") as wheel:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, content)
    return path


def _installed_version(bin_dir: Path, module: str) -> str:
    program = f"import {module}; print({module}.version)"
    return subprocess.run([bin_dir / "python", "-c", program], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def app_dir(tmp_path: Path) -> Path:
    """The directory of an image with a requirements file that uses the options of pip's file format, and needs no network."""
    directory = tmp_path / "app"
    for version in ("1.0", "2.0"):
        _write_wheel(directory / "wheels", "dlop_test_a", version)
    _write_wheel(directory / "wheels", "dlop_test_b", "1.0")
    _write_wheel(directory / "local", "dlop_test_c", "1.0")
    (directory / "nested").mkdir()
    (directory / "requirements.txt").write_text(
        "# packages of the image\n"
        "--no-index\n"
        "--find-links wheels  # relative to this file\n"
        "-r nested/more.txt\n"
        "-c constraints.txt\n"
        "dlop_test_a \\\n"
        "    >= 1.0\n"
        "./local/dlop_test_c-1.0-py3-none-any.whl\n"
    )
    (directory / "nested" / "more.txt").write_text("dlop_test_b\n")
    (directory / "constraints.txt").write_text("dlop_test_a < 2\n")
    return directory


def _environment(app_dir: Path) -> PythonEnvironment:
    return PythonEnvironment(requirement_files=(app_dir / "requirements.txt",))


@pytest.mark.machine
async def test_a_requirements_file_is_read_by_pip(tmp_path: Path, app_dir: Path) -> None:
    bin_dir = await PythonEnvironments(tmp_path / "cache").ensure(_environment(app_dir))
    modules = ("dlop_test_a", "dlop_test_b", "dlop_test_c")
    versions = [await asyncio.to_thread(_installed_version, bin_dir, module) for module in modules]
    assert versions == ["1.0", "1.0", "1.0"]


@pytest.mark.machine
async def test_an_error_in_a_requirements_file_is_reported(tmp_path: Path, app_dir: Path) -> None:
    (app_dir / "constraints.txt").unlink()
    with pytest.raises(ImagePullError, match=r"failed to create the Python environment of the image: .*constraints\.txt"):
        await PythonEnvironments(tmp_path / "cache").ensure(_environment(app_dir))


def _touch_ready(environments: PythonEnvironments, environment: PythonEnvironment) -> None:
    """Mark an environment as created, without the cost of its creation."""
    path = environments._path(environment)
    path.mkdir(parents=True)
    (path / ".ready").touch()


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        ("requirements.txt", lambda text: text.replace("1.0", "0.9")),
        ("nested/more.txt", lambda text: text + "dlop_test_a\n"),
        ("constraints.txt", lambda text: text.replace("< 2", "< 3")),
    ],
)
def test_a_changed_requirements_file_needs_another_environment(
    tmp_path: Path, app_dir: Path, file: str, edit: Callable[[str], str]
) -> None:
    environments = PythonEnvironments(tmp_path / "cache")
    _touch_ready(environments, _environment(app_dir))
    assert environments.is_ready(_environment(app_dir))
    original = (app_dir / file).read_text()
    (app_dir / file).write_text(edit(original))
    assert not environments.is_ready(_environment(app_dir))
    (app_dir / file).write_text(original)
    assert environments.is_ready(_environment(app_dir))


def test_requirements_files_may_include_each_other(tmp_path: Path, app_dir: Path) -> None:
    (app_dir / "nested" / "more.txt").write_text("--requirement=../requirements.txt\n-r https://example.org/more.txt\n")
    assert not PythonEnvironments(tmp_path / "cache").is_ready(_environment(app_dir))


def test_the_same_file_in_another_directory_is_another_environment(tmp_path: Path) -> None:
    environments = PythonEnvironments(tmp_path / "cache")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text("./package\n")
    _touch_ready(environments, _environment(tmp_path / "one"))
    assert environments.is_ready(_environment(tmp_path / "one"))
    assert not environments.is_ready(_environment(tmp_path / "two"))
