from __future__ import annotations

from pathlib import Path

import pytest

from dlop.embedded.kubelet.image_map import (
    Image,
    ImageMap,
    ImageMapError,
    ImageProblem,
    PythonEnvironment,
    command_line,
    image_option,
    read_images,
)


@pytest.mark.parametrize(
    ("pattern", "image", "fits"),
    [
        ("mxnet:*", "mxnet:1.9", True),
        ("mxnet", "mxnet:1.9", True),
        ("mxnet", "mxnet", True),
        ("mxnet", "registry:5000/mxnet", False),
        ("registry:5000/mxnet", "registry:5000/mxnet:2", True),
        ("mxnet", "mxnet@sha256:00", True),
        ("*/mxnet*", "docker.io/mxnet-gpu:1", True),
        ("mxnet:1", "mxnet:2", False),
    ],
)
def test_an_image_is_meant_by_its_name_or_a_pattern(pattern: str, image: str, fits: bool) -> None:
    assert Image(name=pattern).matches(image) is fits


def test_an_unknown_image_without_a_command_is_a_problem_that_says_the_line_to_add() -> None:
    with pytest.raises(ImageProblem) as problem:
        ImageMap().meant_by({"image": "team/train:1"})
    assert "--image team/train:1=PATH" in str(problem.value)
    assert '- {name: "team/train:1", command: [PROGRAM, ARGUMENT]}' in str(problem.value)


def test_an_unknown_image_with_a_command_runs_on_the_host() -> None:
    container = {"image": "x", "command": ["python", "train.py"], "args": ["--fast"]}
    assert command_line(container, ImageMap().meant_by(container)) == ("python", "train.py", "--fast")


def test_the_first_image_that_fits_is_meant() -> None:
    images = ImageMap([Image(name="a:1", command=("one",)), Image(name="a", command=("any",))])
    assert images.meant_by({"image": "a:1"}).command == ("one",)
    assert images.meant_by({"image": "a:2"}).command == ("any",)


def test_a_known_image_without_any_command_is_a_problem() -> None:
    with pytest.raises(ImageProblem, match="has no command here"):
        ImageMap([Image(name="a")]).meant_by({"image": "a"})


def test_a_map_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "images.yaml"
    path.write_text(
        """
images:
  - name: "mxnet:*"
    command: [python, train.py]
    python: {requirements: ["mxnet==1.9.1"], version: "3.11"}
    files: {/app: src}
    env: {OMP_NUM_THREADS: 1}
    workingDir: /app
"""
    )
    assert read_images(path) == [
        Image(
            name="mxnet:*",
            command=("python", "train.py"),
            python=PythonEnvironment(("mxnet==1.9.1",), "3.11"),
            files={"/app": tmp_path / "src"},
            environment={"OMP_NUM_THREADS": "1"},
            working_folder="/app",
        )
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "a list under the key `images` is expected"),
        ("images: {}", "a list under the key `images` is expected"),
        ("images: [{command: [x]}]", r"images\[0\]: an entry with a `name` is expected"),
        ("images: [{name: a, comand: [x]}]", "unknown key `comand`"),
        ("images: [{name: a, command: x}]", r"images\[0\]\.command: a list is expected"),
        ("images: [{name: a}, {name: b, files: [x]}]", r"images\[1\]\.files: a mapping is expected"),
        ("images: [", "cannot be read"),
    ],
)
def test_a_wrong_map_says_what_is_wrong_and_where(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "images.yaml"
    path.write_text(text)
    with pytest.raises(ImageMapError, match=problem):
        read_images(path)


def test_a_folder_may_be_given_as_an_image(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("# packages\nnumpy  # fast\n\ntorch>=2\n")
    image = image_option(f"team/train={tmp_path}")
    assert image.working_folder == str(tmp_path)
    assert image.python == PythonEnvironment(("numpy", "torch>=2"))


def test_a_program_or_a_script_may_be_given_as_an_image(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    assert image_option(f"x={script}").command == ("python", str(script))
    script.chmod(0o755)
    assert image_option(f"x={script}").command == (str(script),)


@pytest.mark.parametrize("text", ["x", "=x", "x=", "x=/no/such/file"])
def test_an_option_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ImageMapError, match="--image"):
        image_option(text)
