"""Writes the tables of the documentation pages that are generated from the code.

Run as a program. With `--check` it writes nothing and fails if a table is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from restart_matrix import restart_matrix_markdown

from dlop.api.job_resource import StoredJob
from dlop.api.spec_models import RunPolicyModel
from dlop.cli.command_list import COMMANDS
from dlop.compat.kubeflow.flags import LEGACY_FLAGS, LEGACY_VARIABLES
from dlop.frameworks.registry import load_registry
from dlop.job import DLJob
from dlop.operator.settings import list_settings

ATTRIBUTES = "Overrides: attributes"
OVERRIDES, HELPERS = "Overrides", "Helpers"
"""The section comments of `DLJob` that begin like this."""
ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": ("kinds",),
    "manifests/README.md": ("settings",),
    "manifests/kubeflow/README.md": ("legacy flags",),
    "dlop/cli/README.md": ("commands",),
    "dlop/reconcile/README.md": ("run policy", "restart matrix"),
    "dlop/frameworks/README.md": ("framework overrides", "framework helpers"),
}
"""The tables of each page."""


def kinds_markdown() -> str:
    """One row per kind."""
    rows = "\n".join(_kind_row(kind) for kind in load_registry([]))
    return f"| kind | roles | container | port | what it is |\n|---|---|---|---|---|\n{rows}"


def _kind_row(kind: type[DLJob]) -> str:
    roles, container = ", ".join(role.name for role in kind.replica_types), kind.container_properties
    named = f"`{container.name}`" if container.name else "the first"
    description = " ".join((kind.__doc__ or "").split())
    return f"| `{kind.job_type.api_version}` {kind.job_type.kind} | {roles} | {named} | {container.port or ''} | {description} |"


def settings_markdown() -> str:
    """One row per setting."""
    rows = [f"| `{row.flag}` | `{row.variable}` | {row.default or ''} | {row.description} |" for row in list_settings()]
    return "\n".join(["| flag | variable | default | meaning |", "|---|---|---|---|", *rows])


def legacy_flags_markdown() -> str:
    """How flags and variables of Kubeflow's operator are translated; those with the same translation share a row."""
    names_by_description: dict[str, list[str]] = {}
    for flag in LEGACY_FLAGS:
        description = f"Rejected: {flag.description}." if flag.is_rejected else flag.description
        names_by_description.setdefault(description, []).append(f"`{flag.flag}`")
    for variable in LEGACY_VARIABLES:
        names_by_description.setdefault(variable.description, []).append(f"`{variable.name}`")
    rows = [f"| {', '.join(names)} | {_with_marked_flags(description)} |" for description, names in names_by_description.items()]
    return "\n".join(["| flag or variable | here |", "|---|---|", *rows])


def _with_marked_flags(text: str) -> str:
    return re.sub(r"--[a-z-]+(=[:a-zA-Z]+)?", lambda flag: f"`{flag[0]}`", text)


def commands_markdown() -> str:
    """One row per command."""
    rows = [f"| `dlop {name}` | {command.summary} |" for name, command in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def run_policy_markdown() -> str:
    """One row per field of `runPolicy`."""
    rows = [f"| `{field.alias}` | {field.description} |" for field in RunPolicyModel.model_fields.values()]
    return "\n".join(["| field of `runPolicy` | meaning |", "|---|---|", *rows])


def framework_markdown(section: str) -> str:
    """One row per member in the sections of `DLJob` whose headings start with `section`."""
    rows = [f"| `{name}` | {description} |" for heading, name, description in members() if heading.startswith(section)]
    return "\n".join(["| of `DLJob` | meaning |", "|---|---|", *rows])


def members() -> Iterator[tuple[str, str, str]]:
    """The public members of `DLJob`: section heading, name, and first sentence of the docstring."""
    yield from _members(StoredJob)
    yield from _members(DLJob)


def _members(kind: type[Any]) -> Iterator[tuple[str, str, str]]:
    source = inspect.getsource(kind)
    headings = {
        number: line.strip("# ")
        for number, line in enumerate(source.splitlines(), 1)
        if line.startswith(("    # Overrides", "    # Helpers", "    # Internal"))
    }
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


def tables() -> dict[str, str]:
    """All tables by name."""
    return {
        "kinds": kinds_markdown(),
        "commands": commands_markdown(),
        "settings": settings_markdown(),
        "legacy flags": legacy_flags_markdown(),
        "run policy": run_policy_markdown(),
        "restart matrix": restart_matrix_markdown(),
        "framework overrides": framework_markdown(OVERRIDES),
        "framework helpers": framework_markdown(HELPERS),
    }


def with_tables(page: str, names: tuple[str, ...], texts: dict[str, str]) -> str:
    """A page with its tables up to date."""
    text = (ROOT / page).read_text()
    for name in names:
        begin, end = f"<!-- {name}: generated by hack/generate -->\n", "<!-- end -->"
        before, marker, rest = text.partition(begin)
        if not marker:
            raise SystemExit(f"{page} has no marker for the table {name!r}")
        text = before + begin + texts[name].strip() + "\n" + end + rest.partition(end)[2]
    return text


def main() -> None:
    """Write the tables, or check them."""
    texts = tables()
    for page, names in PAGES.items():
        text = with_tables(page, names, texts)
        if "--check" not in sys.argv[1:]:
            (ROOT / page).write_text(text)
        elif text != (ROOT / page).read_text():
            raise SystemExit(f"the tables of {page} are out of date: run hack/generate")


if __name__ == "__main__":
    main()
