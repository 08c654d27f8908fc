"""`dlop completion`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dlop.cli.common import Parser

_HOW = """\
where to put it:
  bash   source <(dlop completion bash)                                  in ~/.bashrc
  zsh    dlop completion zsh > "${fpath[1]}/_dlop"                       once
  fish   dlop completion fish > ~/.config/fish/completions/dlop.fish     once
"""


def parser() -> Parser:
    """What the command takes."""
    found = Parser("completion", "Prints a script that lets a shell complete commands and flags.", epilog=_HOW)
    found.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="{bash,zsh,fish}", help="which one")
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the script."""
    options = parser().parse_args(arguments)

    from dlop.cli.shells import script

    sys.stdout.write(script(options.shell))
    return 0
