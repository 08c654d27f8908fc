"""`dlop completion`.

The scripts are generated from the list of commands and their parsers.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlop.cli.command_list import COMMANDS
from dlop.cli.common import Parser

_EPILOG = """\
To load the completion:
  bash   source <(dlop completion bash)                                  in ~/.bashrc
  zsh    dlop completion zsh > "${fpath[1]}/_dlop"                       once
  fish   dlop completion fish > ~/.config/fish/completions/dlop.fish     once
"""


def parser() -> Parser:
    parser = Parser("completion", "Print a shell completion script.", epilog=_EPILOG)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="{bash,zsh,fish}", help="The shell.")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    sys.stdout.write(script(options.shell))
    return 0


_FILE_METAVARS = ("FILE", "DIR", "NAME=PATH")


@dataclass(frozen=True, slots=True)
class CompletionFlag:
    names: tuple[str, ...]
    help: str
    values: tuple[str, ...] = ()
    """The allowed values; empty if they are not fixed."""
    takes_value: bool = False
    takes_file: bool = False


@dataclass(frozen=True, slots=True)
class CompletionEntry:
    name: str
    summary: str
    flags: tuple[CompletionFlag, ...]
    words: tuple[str, ...]
    """Positional arguments, and prefixes of them that end with a slash."""
    takes_files: bool


def script(shell: str) -> str:
    """The script for `bash`, `zsh` or `fish`."""
    entries = [completion_entry(name) for name in COMMANDS]
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](entries)
    return "\n".join(lines) + "\n"


def completion_entry(name: str) -> CompletionEntry:
    command = COMMANDS[name]
    parser: Parser = getattr(importlib.import_module(f"dlop.cli.{command.module}"), command.parser)()
    # argparse has no public access to its actions.
    actions = parser._actions
    positional = [action for action in actions if not action.option_strings]
    return CompletionEntry(
        name=name,
        summary=command.summary,
        flags=tuple(_flag(action) for action in actions if action.option_strings and action.help is not argparse.SUPPRESS),
        words=(*(str(word) for action in positional for word in action.choices or ()), *parser.words),
        takes_files=any(action.metavar in _FILE_METAVARS for action in positional),
    )


def _flag(action: argparse.Action) -> CompletionFlag:
    return CompletionFlag(
        names=tuple(action.option_strings),
        help=" ".join((action.help or "").split()),
        values=tuple(str(value) for value in action.choices or ()),
        takes_value=action.nargs != 0,
        takes_file=action.metavar in _FILE_METAVARS,
    )


# --- bash ----------------------------------------------------------------------------------------------------------------


def _bash(entries: list[CompletionEntry]) -> Iterator[str]:
    yield "# dlop completion for bash. It completes commands, flags and file names."
    yield "_dlop() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}" flags="" words=""'
    yield "    COMPREPLY=()"
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{" ".join(entry.name for entry in entries)} --help --version" -- "$word"))'
    yield "        return"
    yield "    fi"
    yield '    case "$command $before" in'
    for entry in entries:
        yield from _bash_values(entry)
    yield "    esac"
    yield '    case "$command" in'
    for entry in entries:
        names = " ".join(name for flag in entry.flags for name in flag.names)
        yield f'        {entry.name}) flags="{names}" words="{" ".join(entry.words)}" ;;'
    yield "    esac"
    yield '    case "$word" in'
    yield '        -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;'
    yield '        *) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;'
    yield "    esac"
    # A name follows the slash. Without compopt (bash 3), or outside of a completion, there is a space after it.
    yield '    case "${COMPREPLY[*]}" in */) compopt -o nospace 2>/dev/null ;; esac'
    yield "}"
    yield "complete -o default -F _dlop dlop"


def _bash_values(entry: CompletionEntry) -> Iterator[str]:
    """Complete the values of flags: fixed values, or the default completion of the shell."""
    for flag in entry.flags:
        if flag.takes_value:
            patterns = "|".join(f'"{entry.name} {name}"' for name in flag.names)
            known = f'COMPREPLY=($(compgen -W "{" ".join(flag.values)}" -- "$word")); ' if flag.values else ""
            yield f"        {patterns}) {known}return ;;"


# --- zsh -----------------------------------------------------------------------------------------------------------------


def _zsh(entries: list[CompletionEntry]) -> Iterator[str]:
    yield "#compdef dlop"
    yield "# dlop completion for zsh."
    yield "_dlop() {"
    yield "    local -a commands"
    yield "    commands=("
    for entry in entries:
        yield f"        {_quoted(f'{entry.name}:{entry.summary}')}"
    yield "    )"
    yield "    if (( CURRENT == 2 )); then"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield '    local command="$words[2]"'
    yield "    shift words"
    yield "    (( CURRENT-- ))"
    yield '    case "$command" in'
    for entry in entries:
        yield f"        {entry.name})"
        yield " ".join(["            _arguments", *_zsh_arguments(entry)])
        yield "            ;;"
    yield "    esac"
    yield "}"
    # When autoloaded by zsh, the file is the function. When sourced, it must register the function.
    yield 'if [ "$funcstack[1]" = "_dlop" ]; then _dlop "$@"; else compdef _dlop dlop; fi'


def _zsh_arguments(entry: CompletionEntry) -> Iterator[str]:
    for flag in entry.flags:
        description = flag.help.replace("[", "(").replace("]", ")").replace(":", "\\:")
        value = f":value:{_zsh_action(flag.values, takes_file=flag.takes_file)}" if flag.takes_value else ""
        for name in flag.names:
            # The star allows a flag to be repeated.
            yield _quoted(f"*{name}[{description}]{value}")
    # Always present, because zsh completes no flag after an unexpected argument.
    prefixes = [word for word in entry.words if word.endswith("/")]
    others = tuple(word for word in entry.words if word not in prefixes)
    action = _zsh_action(others, takes_file=entry.takes_files)
    if prefixes:
        # No space after a prefix.
        action = f'{{compadd -- {" ".join(others)}; compadd -S "" -- {" ".join(prefixes)}}}'
    yield _quoted(f"*:argument:{action}")


def _zsh_action(values: tuple[str, ...], *, takes_file: bool) -> str:
    return f"({' '.join(values)})" if values else "_files" if takes_file else " "


# --- fish ----------------------------------------------------------------------------------------------------------------


def _fish(entries: list[CompletionEntry]) -> Iterator[str]:
    yield "# dlop completion for fish."
    yield "complete -c dlop -f"
    for entry in entries:
        yield f"complete -c dlop -n __fish_use_subcommand -a {entry.name} -d {_quoted(entry.summary)}"
    for entry in entries:
        seen = f"complete -c dlop -n '__fish_seen_subcommand_from {entry.name}'"
        for flag in entry.flags:
            yield f"{seen} {_fish_flag(flag)} -d {_quoted(flag.help)}"
        if entry.words:
            yield f"{seen} -a {_quoted(' '.join(entry.words))}"
        if entry.takes_files:
            yield f"{seen} -F"


def _fish_flag(flag: CompletionFlag) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
    if flag.values:
        return f"{names} -x -a {_quoted(' '.join(flag.values))}"
    return f"{names} -r -F" if flag.takes_file else f"{names} -x" if flag.takes_value else names


def _quoted(text: str) -> str:
    """In single quotes, for all shells. Quotes in the text become typographic ones, because the text is only displayed."""
    return "'" + text.replace("\\:", "\0").replace("\\", "").replace("\0", "\\:").replace("'", "\u2019") + "'"
