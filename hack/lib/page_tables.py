"""Writes the tables of the documentation pages that are generated from the code.

Run as a program. With `--check` it writes nothing and fails if a table is out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from restart_matrix import restart_matrix_markdown

import dlop
from dlop import policies
from dlop.api.cron import CRON
from dlop.api.spec_models import RunPolicyModel
from dlop.cli.command_list import COMMANDS
from dlop.compat.kubedl.flags import KUBEDL
from dlop.compat.kubeflow.flags import KUBEFLOW
from dlop.compat.legacy import LegacyOperator
from dlop.frameworks.registry import load_registry
from dlop.job import DLJob
from dlop.operator.settings import list_settings, with_framework_flags

REQUIRED, POLICIES, HELPERS = "Required", "Policies", "Helpers"
"""The section comments of `DLJob`. Everything below another section comment is internal."""
POLICY_CLASSES: dict[str, type[Any]] = {
    "schema": dlop.Schema,
    "naming": policies.Naming,
    "lifecycle": policies.Lifecycle,
    "status": policies.Status,
    "children": policies.ChildObjects,
    "members": policies.Members,
}
"""The class of each policy of `DLJob`."""
VALUES = (dlop.JobType, dlop.ReplicaType, dlop.ContainerProperties)
ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": ("groups",),
    "manifests/README.md": ("settings",),
    "manifests/kubeflow/README.md": ("legacy flags",),
    "manifests/kubedl/README.md": ("flags of KubeDL",),
    "dlop/cli/README.md": ("commands",),
    "dlop/reconcile/README.md": ("run policy", "restart matrix"),
    "dlop/frameworks/README.md": (
        "kinds",
        "framework",
        "framework values",
        *(f"{name} policy" for name in POLICY_CLASSES),
        "framework helpers",
    ),
}
"""The tables of each page."""


def groups_markdown() -> str:
    """One row per API group, with its kinds."""
    groups: dict[str, list[str]] = {}
    for kind in load_registry([]):
        groups.setdefault(kind.job_type.api_version, []).append(kind.job_type.kind)
    groups[CRON.api_version] = [CRON.kind]
    return "\n".join(["| API | kinds |", "|---|---|", *(f"| `{version}` | {', '.join(kinds)} |" for version, kinds in groups.items())])


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
    settings = list_settings(with_framework_flags(load_registry().flags))
    rows = [f"| `{row.flag}` | `{row.variable}` | {row.default or ''} | {row.description} |" for row in settings]
    return "\n".join(["| flag | variable | default | meaning |", "|---|---|---|---|", *rows])


def legacy_flags_markdown(operator: LegacyOperator) -> str:
    """How flags and variables of another operator are translated; those with the same translation share a row."""
    names_by_description: dict[str, list[str]] = {}
    for flag in operator.flags:
        description = f"Rejected: {flag.description}." if flag.is_rejected else flag.description
        names_by_description.setdefault(description, []).append(f"`{flag.flag}`")
    for variable in operator.variables:
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


def members_markdown(kind: type[Any], *sections: str) -> str:
    """One row per public member of a class: of those below these section comments, or by default above all section comments."""
    rows = [f"| `{name}` | {description} |" for section, name, description in members(kind) if section in (sections or ("",))]
    return "\n".join([f"| of `{kind.__name__}` | meaning |", "|---|---|", *rows])


def members(kind: type[Any]) -> Iterator[tuple[str, str, str]]:
    """The public members of a class: section comment above it, name, and first sentence of the docstring."""
    source = inspect.getsource(kind)
    sections = {number: line.strip("# .") for number, line in enumerate(source.splitlines(), 1) if line.startswith("    # ")}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for node, after in zip(definition.body, [*definition.body[1:], ast.Pass()], strict=True):
        section = next((text for number, text in sorted(sections.items(), reverse=True) if number < node.lineno), "")
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield section, node.name, _first_sentence(ast.get_docstring(node) or "")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield section, node.target.id, _first_sentence(str(text))


def values_markdown() -> str:
    """One row per field of the values that a framework declares."""
    rows = [
        f"| `{kind.__name__}` | `{field.name}` | {descriptions[field.name]} |"
        for kind in VALUES
        for descriptions in [{name: description for _, name, description in members(kind)}]
        for field in dataclasses.fields(kind)
    ]
    return "\n".join(["| value | field | meaning |", "|---|---|---|", *rows])


def _first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence; tables have no room for more."""
    return " ".join(text.split()).partition(". ")[0].removesuffix(".").replace("|", "\\|")


def tables() -> dict[str, str]:
    """All tables by name."""
    return {
        "groups": groups_markdown(),
        "kinds": kinds_markdown(),
        "commands": commands_markdown(),
        "settings": settings_markdown(),
        "legacy flags": legacy_flags_markdown(KUBEFLOW),
        "flags of KubeDL": legacy_flags_markdown(KUBEDL),
        "run policy": run_policy_markdown(),
        "restart matrix": restart_matrix_markdown(),
        "framework": members_markdown(DLJob, REQUIRED, POLICIES),
        "framework values": values_markdown(),
        **{f"{name} policy": members_markdown(kind) for name, kind in POLICY_CLASSES.items()},
        "framework helpers": members_markdown(DLJob, HELPERS),
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
