"""`dlop completion`.

Scripts with which shells complete `dlop`: made from the table of commands and their parsers, and static from then on.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlop.cli.command_list import COMMANDS
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

    sys.stdout.write(script(options.shell))
    return 0


_FILES = ("FILE", "FOLDER", "DIR", "NAME=PATH")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, with all its names."""

    names: tuple[str, ...]
    meaning: str
    values: tuple[str, ...] = ()
    """What may stand behind it, where that is known."""
    takes_value: bool = False
    takes_file: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One command."""

    name: str
    summary: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]
    """What may stand behind it, where that is known."""
    takes_files: bool


def script(shell: str) -> str:
    """The script for `bash`, `zsh` or `fish`."""
    entries = [entry(name) for name in COMMANDS]
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](entries)
    return "\n".join(lines) + "\n"


def entry(name: str) -> Entry:
    """What there is to complete of a command."""
    command = COMMANDS[name]
    parser: Parser = getattr(importlib.import_module(f"dlop.cli.{command.module}"), command.parser)()
    # argparse has no other way to be asked.
    actions = parser._actions
    positional = [action for action in actions if not action.option_strings]
    return Entry(
        name=name,
        summary=command.summary,
        flags=tuple(_flag(action) for action in actions if action.option_strings and action.help is not argparse.SUPPRESS),
        words=tuple(str(word) for action in positional for word in action.choices or ()),
        takes_files=any(action.metavar in _FILES for action in positional),
    )


def _flag(action: argparse.Action) -> Flag:
    return Flag(
        names=tuple(action.option_strings),
        meaning=" ".join((action.help or "").split()),
        values=tuple(str(value) for value in action.choices or ()),
        takes_value=action.nargs != 0,
        takes_file=action.metavar in _FILES,
    )


# --- bash ----------------------------------------------------------------------------------------------------------------


def _bash(entries: list[Entry]) -> Iterator[str]:
    yield "# dlop completion for bash. It knows flags and commands; names of files are completed as ever."
    yield "_dlop() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}" flags="" words=""'
    yield "    COMPREPLY=()"
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{" ".join(each.name for each in entries)} --help --version" -- "$word"))'
    yield "        return"
    yield "    fi"
    yield '    case "$command $before" in'
    for each in entries:
        yield from _bash_values(each)
    yield "    esac"
    yield '    case "$command" in'
    for each in entries:
        names = " ".join(name for flag in each.flags for name in flag.names)
        yield f'        {each.name}) flags="{names}" words="{" ".join(each.words)}" ;;'
    yield "    esac"
    yield '    case "$word" in'
    yield '        -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;'
    yield '        *) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;'
    yield "    esac"
    yield "}"
    yield "complete -o default -F _dlop dlop"


def _bash_values(entry: Entry) -> Iterator[str]:
    """What stands behind flags: words where they are known, else whatever the shell itself thinks of."""
    for flag in entry.flags:
        if flag.takes_value:
            patterns = "|".join(f'"{entry.name} {name}"' for name in flag.names)
            known = f'COMPREPLY=($(compgen -W "{" ".join(flag.values)}" -- "$word")); ' if flag.values else ""
            yield f"        {patterns}) {known}return ;;"


# --- zsh -----------------------------------------------------------------------------------------------------------------


def _zsh(entries: list[Entry]) -> Iterator[str]:
    yield "#compdef dlop"
    yield "# dlop completion for zsh."
    yield "_dlop() {"
    yield "    local -a commands"
    yield "    commands=("
    for each in entries:
        yield f"        {_quoted(f'{each.name}:{each.summary}')}"
    yield "    )"
    yield "    if (( CURRENT == 2 )); then"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield '    local command="$words[2]"'
    yield "    shift words"
    yield "    (( CURRENT-- ))"
    yield '    case "$command" in'
    for each in entries:
        yield f"        {each.name})"
        yield " ".join(["            _arguments", *_zsh_arguments(each)])
        yield "            ;;"
    yield "    esac"
    yield "}"
    # The file is the function when zsh finds it by itself, and is to declare it when it is sourced.
    yield 'if [ "$funcstack[1]" = "_dlop" ]; then _dlop "$@"; else compdef _dlop dlop; fi'


def _zsh_arguments(entry: Entry) -> Iterator[str]:
    for flag in entry.flags:
        meaning = flag.meaning.replace("[", "(").replace("]", ")").replace(":", "\\:")
        value = f":value:{_zsh_action(flag.values, takes_file=flag.takes_file)}" if flag.takes_value else ""
        for name in flag.names:
            # The star: a flag may come again.
            yield _quoted(f"*{name}[{meaning}]{value}")
    # Also where nothing is known of it: zsh completes no flag behind an argument that it does not expect.
    yield _quoted(f"*:argument:{_zsh_action(entry.words, takes_file=entry.takes_files)}")


def _zsh_action(values: tuple[str, ...], *, takes_file: bool) -> str:
    return f"({' '.join(values)})" if values else "_files" if takes_file else " "


# --- fish ----------------------------------------------------------------------------------------------------------------


def _fish(entries: list[Entry]) -> Iterator[str]:
    yield "# dlop completion for fish."
    yield "complete -c dlop -f"
    for each in entries:
        yield f"complete -c dlop -n __fish_use_subcommand -a {each.name} -d {_quoted(each.summary)}"
    for each in entries:
        seen = f"complete -c dlop -n '__fish_seen_subcommand_from {each.name}'"
        for flag in each.flags:
            yield f"{seen} {_fish_flag(flag)} -d {_quoted(flag.meaning)}"
        if each.words:
            yield f"{seen} -a {_quoted(' '.join(each.words))}"
        if each.takes_files:
            yield f"{seen} -F"


def _fish_flag(flag: Flag) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
    if flag.values:
        return f"{names} -x -a {_quoted(' '.join(flag.values))}"
    return f"{names} -r -F" if flag.takes_file else f"{names} -x" if flag.takes_value else names


def _quoted(text: str) -> str:
    """Between single quotes, for any of these shells: a quote in the text becomes a typographic one, for it is only shown."""
    return "'" + text.replace("\\:", "\0").replace("\\", "").replace("\0", "\\:").replace("'", "\u2019") + "'"
