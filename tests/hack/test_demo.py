"""`hack/demo`, and the picture of its output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from terminal_picture import final_screen, record, render_svg

from tests.hack.scripts import ROOT, run
from tests.local.example_needs import require_mxnet


@pytest.mark.timeout(420)
def test_the_demo_trains_a_model_at_a_terminal() -> None:
    require_mxnet("01-mxnet-linear")
    output, code = record([str(ROOT / "hack" / "demo")])
    lines = final_screen(output.decode())
    assert code == 0, "\n".join(lines)
    assert any("learned w = (2.00, -3.40), b = 4.20" in line for line in lines)
    assert "MXJob mx-test-dist Succeeded after" in lines[-1]


@pytest.mark.timeout(420)
def test_the_demo_trains_with_jax_on_a_machine_that_cannot_run_mxnet(tmp_path: Path) -> None:
    uname = tmp_path / "uname"
    uname.write_text("#!/bin/sh\necho Darwin arm64\n")
    uname.chmod(0o755)
    demo = run(ROOT / "hack" / "demo", environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, timeout_seconds=400.0)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "learned w = (2.00, -3.40), b = 4.20" in demo.stdout
    assert "JAXJob jax-linear Succeeded after" in demo.stdout


def test_the_picture_of_the_readme_shows_the_demo() -> None:
    picture = (ROOT / "examples" / "01-mxnet-linear" / "demo.svg").read_text().replace("&#160;", " ")
    assert "$ hack/demo" in picture
    assert "learned w = (2.00, -3.40), b = 4.20" in picture
    assert "MXJob mx-test-dist Succeeded after" in picture


def test_the_final_screen_contains_the_last_update() -> None:
    output = "start\r\n\x1b[?25lfirst\r\nsecond\r\x1b[2K\x1b[1A\x1b[2K\x1b[32mthird\x1b[0m\r\nfourth\r\n\x1b[?25hend\r\n"
    assert final_screen(output) == ["start", "\x1b[32mthird\x1b[0m", "fourth", "end"]


def test_a_picture_references_no_remote_files() -> None:
    picture = render_svg(["\x1b[31mred\x1b[0m and not"], title="any")
    assert "red" in picture
    assert "url(http" not in picture
