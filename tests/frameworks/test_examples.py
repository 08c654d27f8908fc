"""Every example renders, by the commands that are on its page. What its page says comes of running it is checked by running it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dlop.cli.main import main
from tests.frameworks.manifests import EXAMPLES

FOLDERS = sorted(folder for folder in EXAMPLES.iterdir() if (folder / "job.yaml").exists())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_commands_of_an_example_work_as_they_are_written(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = re.findall(r"^    dlop (.*)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        # Pages name files from the top of the repository, or from their own directory.
        monkeypatch.chdir(EXAMPLES.parent if "examples/" in command else folder)
        monkeypatch.setattr(sys, "path", list(sys.path))
        assert main(command.split()) == 0
        assert "kind: " in capsys.readouterr().out
