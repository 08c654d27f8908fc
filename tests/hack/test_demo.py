"""`hack/demo` and the picture of it."""

from __future__ import annotations

import pytest
from terminal_picture import drawing, recorded, screen

from tests.hack.scripts import ROOT
from tests.local.example_needs import require_mxnet


@pytest.mark.timeout(420)
def test_the_demo_trains_a_model_at_a_terminal() -> None:
    require_mxnet("01-mxnet-linear")
    output, code = recorded([str(ROOT / "hack" / "demo")])
    shown = screen(output.decode())
    assert code == 0, "\n".join(shown)
    assert any("learned w = (2.00, -3.40), b = 4.20" in line for line in shown)
    assert "MXJob mx-test-dist Succeeded after" in shown[-1]


def test_the_picture_of_the_readme_shows_the_demo() -> None:
    picture = (ROOT / "examples" / "01-mxnet-linear" / "demo.svg").read_text().replace("&#160;", " ")
    assert "$ hack/demo" in picture
    assert "learned w = (2.00, -3.40), b = 4.20" in picture
    assert "MXJob mx-test-dist Succeeded after" in picture


def test_the_screen_shows_what_was_drawn_last() -> None:
    output = "begin\r\n\x1b[?25lfirst\r\nsecond\r\x1b[2K\x1b[1A\x1b[2K\x1b[32mthird\x1b[0m\r\nfourth\r\n\x1b[?25hend\r\n"
    assert screen(output) == ["begin", "\x1b[32mthird\x1b[0m", "fourth", "end"]


def test_a_picture_needs_nothing_from_elsewhere() -> None:
    picture = drawing(["\x1b[31mred\x1b[0m and not"], title="any")
    assert "red" in picture
    assert "url(http" not in picture
