"""Writes the tables of the README that are made from the code: kinds, commands, settings, policies, what a framework may say and finds.

Called as a program. With `--check` it writes nothing, and fails when a table is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from restart_matrix import truth_table_markdown

from dlop.api.job_resource import StoredJob
from dlop.api.spec_models import RunPolicyModel
from dlop.cli.command_list import COMMANDS
from dlop.compat.kubeflow.flags import FLAGS, VARIABLES
from dlop.frameworks.registry import load_registry
from dlop.job import DLJob
from dlop.operator.settings import table

ATTRIBUTES = "What a framework may say otherwise: attributes"
README = Path(__file__).resolve().parents[2] / "README.md"


def kinds_markdown() -> str:
    """One row a kind."""
    rows = "\n".join(_kind_row(kind) for kind in load_registry([]))
    return f"| kind | roles | container | port | what it is |\n|---|---|---|---|---|\n{rows}"


def _kind_row(kind: type[DLJob]) -> str:
    roles, container = ", ".join(role.name for role in kind.replica_types), kind.container_properties
    named = f"`{container.name}`" if container.name else "the first"
    meaning = " ".join((kind.__doc__ or "").split())
    return f"| `{kind.job_type.api_version}` {kind.job_type.kind} | {roles} | {named} | {container.port or ''} | {meaning} |"


def settings_markdown() -> str:
    """One row a setting."""
    rows = [f"| `{row.flag}` | `{row.variable}` | {row.default or ''} | {row.meaning} |" for row in table()]
    return "\n".join(["| flag | variable | default | meaning |", "|---|---|---|---|", *rows])


def old_flags_markdown() -> str:
    """What becomes of the flags and variables of Kubeflow's operator: one row for those that share an answer."""
    answers: dict[str, list[str]] = {}
    for flag in FLAGS:
        answers.setdefault(f"is refused: it {flag.meaning}" if flag.is_refused else flag.meaning, []).append(f"`{flag.flag}`")
    for variable in VARIABLES:
        answers.setdefault(variable.meaning, []).append(f"`{variable.name}`")
    rows = [f"| {', '.join(names)} | {_with_marked_flags(answer)} |" for answer, names in answers.items()]
    return "\n".join(["| flag or variable | here |", "|---|---|", *rows])


def _with_marked_flags(text: str) -> str:
    return re.sub(r"--[a-z-]+(=[:a-zA-Z]+)?", lambda flag: f"`{flag[0]}`", text)


def commands_markdown() -> str:
    """One row a command."""
    rows = [f"| `dlop {name}` | {command.summary} |" for name, command in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def run_policy_markdown() -> str:
    """One row a field of `runPolicy`."""
    rows = [f"| `{field.alias}` | {field.description} |" for field in RunPolicyModel.model_fields.values()]
    return "\n".join(["| field of `runPolicy` | meaning |", "|---|---|", *rows])


def framework_markdown(section: str) -> str:
    """One row for each thing in those parts of `DLJob` whose headings begin like this."""
    rows = [f"| `{name}` | {meaning} |" for heading, name, meaning in members() if heading.startswith(section)]
    return "\n".join(["| of `DLJob` | meaning |", "|---|---|", *rows])


def members() -> Iterator[tuple[str, str, str]]:
    """What `DLJob` has in public: the heading that it stands under, its name, and the first sentence on it."""
    yield from _members(StoredJob)
    yield from _members(DLJob)


def _members(kind: type[Any]) -> Iterator[tuple[str, str, str]]:
    source = inspect.getsource(kind)
    headings = {number: line.strip("# ") for number, line in enumerate(source.splitlines(), 1) if line.startswith("    # What ")}
    (found,) = ast.parse(source).body
    assert isinstance(found, ast.ClassDef)
    for node, after in zip(found.body, [*found.body[1:], ast.Pass()], strict=True):
        heading = next((text for number, text in sorted(headings.items(), reverse=True) if number < node.lineno), ATTRIBUTES)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield heading, node.name, _first_sentence(ast.get_docstring(node) or "")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield heading, node.target.id, _first_sentence(str(text))


def _first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence; tables have no room for more."""
    return " ".join(text.split()).partition(". ")[0].removesuffix(".").replace("|", "\\|")


def with_tables(page: str) -> str:
    """The page with its tables as they are now."""
    tables = {
        "kinds": kinds_markdown(),
        "commands": commands_markdown(),
        "settings": settings_markdown(),
        "old flags": old_flags_markdown(),
        "run policy": run_policy_markdown(),
        "truth table": truth_table_markdown(),
        "what a framework says": framework_markdown("What a framework m"),
        "what a framework finds": framework_markdown("What a framework finds"),
    }
    for name, text in tables.items():
        begin, end = f"<!-- {name}: made by hack/generate -->\n", "\n<!-- end -->"
        before, found, rest = page.partition(begin)
        if not found:
            raise SystemExit(f"README.md has no place for the {name}")
        page = before + begin + text.strip() + end + rest.partition(end)[2]
    return page


def main() -> None:
    """Write the tables, or check them."""
    page = README.read_text()
    made = with_tables(page)
    if "--check" not in sys.argv[1:]:
        README.write_text(made)
    elif made != page:
        raise SystemExit("the tables of README.md are out of date: run hack/generate")


if __name__ == "__main__":
    main()
