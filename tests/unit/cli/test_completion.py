"""Shell completion scripts contain all commands and flags, and bash can use them."""

from __future__ import annotations

import importlib
import shutil
import subprocess

import pytest

from dlop.cli.common import Parser
from dlop.cli.completion import completion_entry, script
from dlop.cli.main import COMMANDS, main

SHELLS = ("bash", "zsh", "fish")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == script(shell)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_every_flag_is_in_every_script(shell: str) -> None:
    text = script(shell)
    for name in COMMANDS:
        assert name in text
        for flag in completion_entry(name).flags:
            for option in flag.names:
                dashes = "--" if option.startswith("--") else "-"
                fish = f"-{'l' if dashes == '--' else 's'} {option.removeprefix(dashes)}"
                assert (fish if shell == "fish" else option) in text


@pytest.mark.machine
@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_installed_shells_accept_their_script(shell: str) -> None:
    subprocess.run([shell, "-n"], input=script(shell), text=True, check=True, timeout=60)


@pytest.mark.machine
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("des", {"describe"}),
        ("get --o", {"--output"}),
        ("get -o ", {"text", "json"}),
        ("get -o j", {"json"}),
        ("wait job --for su", {"succeeded"}),
        ("logs job --prev", {"--previous"}),
        ("completion ", {"bash", "zsh", "fish"}),
        ("submit ", set()),
        ("logs --role ", set()),
        ("run --log-f", {"--log-format"}),
        ("get ", {"crons", "cron/"}),
        ("describe c", {"cron/"}),
        ("suspend cron/", {"cron/"}),
        ("logs c", set()),
    ],
)
def test_bash_completes_commands_flags_and_values(words: str, expected: set[str]) -> None:
    assert _complete(words) == (expected, "")


@pytest.mark.machine
@pytest.mark.parametrize(("words", "options"), [("describe c", "-o nospace\n"), ("get crons", ""), ("logs --pre", "")])
def test_bash_adds_no_space_after_a_prefix(words: str, options: str) -> None:
    assert _complete(words, before='compopt() { echo "$*" >&3; }; exec 3>&2')[1] == options


def _complete(words: str, *, before: str = "") -> tuple[set[str], str]:
    """The words that bash offers, and the standard error."""
    typed = ["dlop", *words.split(" ")]
    quoted = " ".join(f"'{word}'" for word in typed)
    completion = f"COMP_WORDS=({quoted}); COMP_CWORD={len(typed) - 1}; _dlop; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    program = "\n".join((script("bash"), before, completion))
    printed = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(printed.stdout.split()), printed.stderr


def test_commands_that_take_a_cron_complete_it() -> None:
    completed = {name for name in COMMANDS if "cron/" in completion_entry(name).words}
    assert completed == {"get", "describe", "suspend", "resume", "delete"}
    assert all(("cron/NAME" in _help_of_arguments(name)) is (name in completed) for name in COMMANDS)


def _help_of_arguments(name: str) -> str:
    command = COMMANDS[name]
    parser: Parser = getattr(importlib.import_module(f"dlop.cli.{command.module}"), command.parser)()
    return " ".join(parser.format_help().partition("positional arguments:")[2].partition("options:")[0].split())


def test_flags_with_fixed_values_are_completed_with_them() -> None:
    values = {flag.names[-1]: flag.values for flag in completion_entry("wait").flags if flag.values}
    assert values == {"--for": ("succeeded", "failed", "finished", "running", "deleted"), "--output": ("text", "json")}
