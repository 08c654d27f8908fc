from __future__ import annotations

from pathlib import Path

import pytest

from dlop.embedded.kubelet.image_map import (
    Image,
    ImageMap,
    ImageMapError,
    ImagePullError,
    PythonEnvironment,
    command_line,
    parse_image_option,
    read_images,
)


@pytest.mark.parametrize(
    ("pattern", "image", "matches"),
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
def test_an_image_matches_by_name_or_pattern(pattern: str, image: str, matches: bool) -> None:
    assert Image(name=pattern).matches(image) is matches


def test_an_unknown_image_without_a_command_is_an_error_with_the_entry_to_add() -> None:
    with pytest.raises(ImagePullError) as raised:
        ImageMap().resolve({"image": "team/train:1"})
    assert "--image team/train:1=PATH" in str(raised.value)
    assert '- {name: "team/train:1", command: [PROGRAM, ARGUMENT]}' in str(raised.value)


def test_an_unknown_image_with_a_command_runs_on_the_host() -> None:
    container = {"image": "x", "command": ["python", "train.py"], "args": ["--fast"]}
    assert command_line(container, ImageMap().resolve(container)) == ("python", "train.py", "--fast")


def test_the_first_matching_image_applies() -> None:
    images = ImageMap([Image(name="a:1", command=("one",)), Image(name="a", command=("any",))])
    assert images.resolve({"image": "a:1"}).command == ("one",)
    assert images.resolve({"image": "a:2"}).command == ("any",)


def test_a_known_image_without_a_command_is_an_error() -> None:
    with pytest.raises(ImagePullError, match="has no command in the image map"):
        ImageMap([Image(name="a")]).resolve({"image": "a"})


def test_an_image_map_is_read_from_a_file(tmp_path: Path) -> None:
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
            working_dir="/app",
        )
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "`images` must be a list"),
        ("images: {}", "`images` must be a list"),
        ("images: [{command: [x]}]", r"images\[0\]: must be an object with a `name`"),
        ("images: [{name: a, comand: [x]}]", "unknown key `comand`"),
        ("images: [{name: a, command: x}]", r"images\[0\]\.command: must be a list, got 'x'"),
        ("images: [{name: a}, {name: b, files: [x]}]", r"images\[1\]\.files: must be an object"),
        ("images: [", "cannot read the image map"),
    ],
)
def test_an_invalid_image_map_is_an_error_with_the_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "images.yaml"
    path.write_text(text)
    with pytest.raises(ImageMapError, match=message):
        read_images(path)


def test_an_image_option_may_be_a_directory_with_a_requirements_file(tmp_path: Path) -> None:
    assert parse_image_option(f"team/train={tmp_path}").python is None
    (tmp_path / "requirements.txt").write_text("numpy\n")
    image = parse_image_option(f"team/train={tmp_path}")
    assert image.working_dir == str(tmp_path)
    assert image.python == PythonEnvironment(requirement_files=(tmp_path / "requirements.txt",))


def test_an_image_option_may_be_a_program_or_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    assert parse_image_option(f"x={script}").command == ("python", str(script))
    script.chmod(0o755)
    assert parse_image_option(f"x={script}").command == (str(script),)


@pytest.mark.parametrize("text", ["x", "=x", "x=", "x=/no/such/file"])
def test_an_invalid_image_option_is_an_error(text: str) -> None:
    with pytest.raises(ImageMapError, match="--image"):
        parse_image_option(text)
