"""Runs a command in a pseudo-terminal and renders the final screen as an SVG.

    terminal_picture.py hack/demo --out demo.svg

The terminal emulation supports colors, cursor up and erase line, which is what a table with live updates uses.
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
_TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")
_REMOTE_FONT = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code of the command. Writes no file if the command fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="+")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    output, code = record(options.command)
    sys.stdout.buffer.write(output)
    if code == 0:
        options.out.write_text(render_svg([f"$ {' '.join(options.command)}", *final_screen(output.decode())], title="dlop"))
        print(f"wrote {options.out}")
    return code


def record(command: Sequence[str]) -> tuple[bytes, int]:
    """Return what the command writes to a terminal, and its exit code."""
    parent_end, child_end = pty.openpty()
    fcntl.ioctl(child_end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=child_end, stderr=child_end, env=environment) as process:
        os.close(child_end)
        output = b"".join(_chunks(parent_end))
        os.close(parent_end)
    return output, process.returncode


def _chunks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # all writers have closed the terminal
            return
        if not chunk:
            return
        yield chunk


def final_screen(output: str) -> list[str]:
    """The non-empty lines of the screen after all output, with color escape sequences."""
    lines, row = [""], 0
    for numbers, action, carriage_return, line_feed, text in _TOKEN.findall(output):
        if action == "A":
            row = max(0, row - int(numbers or 1))
        elif action == "K":
            lines[row] = ""
        elif action == "m":
            lines[row] += f"\x1b[{numbers}m"
        elif line_feed:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text and not carriage_return:
            lines[row] += text
    return [line for line in lines if line.strip()]


def render_svg(lines: Sequence[str], *, title: str) -> str:
    """The lines as an SVG that uses the viewer's own monospace font."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text.from_ansi(line))
    return console.export_svg(title=title, code_format=_REMOTE_FONT.sub("", CONSOLE_SVG_FORMAT), unique_id="dlop")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
