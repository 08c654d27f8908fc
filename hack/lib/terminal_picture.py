"""A picture of a command: it is run in a terminal, and what the screen shows in the end becomes an SVG.

    terminal_picture.py hack/demo --out demo.svg

Nothing in the picture is made up. The terminal is a simple one: it knows colours, going up, and erasing a line, which is all
that a table that is drawn again and again takes.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 112, 50
_PIECE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")
_FONT_FROM_ELSEWHERE = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """Run, draw, and return the exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="+")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    output, code = recorded(options.command)
    sys.stdout.buffer.write(output)
    if code == 0:
        options.out.write_text(drawing([f"$ {' '.join(options.command)}", *screen(output.decode())], title="dlop"))
        print(f"{options.out} is drawn")
    return code


def recorded(command: Sequence[str]) -> tuple[bytes, int]:
    """What a command writes to a terminal, and its exit code."""
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=far, stderr=far, env=variables) as process:
        os.close(far)
        output = b"".join(_pieces(near))
        os.close(near)
    return output, process.returncode


def _pieces(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how a terminal says that nobody writes to it any more
            return
        if not piece:
            return
        yield piece


def screen(output: str) -> list[str]:
    """The lines that are on the screen in the end, with their colours."""
    lines, row = [""], 0
    for numbers, action, back, feed, text in _PIECE.findall(output):
        if action == "A":
            row = max(0, row - int(numbers or 1))
        elif action == "K":
            lines[row] = ""
        elif action == "m":
            lines[row] += f"\x1b[{numbers}m"
        elif feed:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text and not back:
            lines[row] += text
    return [line for line in lines if line.strip()]


def drawing(lines: Sequence[str], *, title: str) -> str:
    """The lines as an SVG, with whatever font the reader has for programs."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text.from_ansi(line))
    return console.export_svg(title=title, code_format=_FONT_FROM_ELSEWHERE.sub("", CONSOLE_SVG_FORMAT), unique_id="dlop")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
