"""The `dlop` commands in the README of each example work as written. Complete runs of the examples are tested in `tests/local`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dlop.cli.main import main
from tests.frameworks.example_manifests import EXAMPLES

FOLDERS = sorted(page.parent for page in EXAMPLES.glob("*/README.md"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_commands_of_an_example_work_as_written(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = re.findall(r"^    dlop (.*)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        # Paths in a README are relative to the repository or to its own directory.
        monkeypatch.chdir(EXAMPLES.parent if "examples/" in command else folder)
        monkeypatch.setattr(sys, "path", list(sys.path))
        assert main(command.split()) == 0
        assert "kind: " in capsys.readouterr().out
