"""Writes the tables of the README that are made from the code: the settings, and what happens to a replica when.

Called as a program. With `--check` it writes nothing, and fails when a table is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dlop.engine.truth import truth_table_markdown
from dlop.settings import table

README = Path(__file__).resolve().parents[2] / "README.md"


def settings_markdown() -> str:
    """One row a setting."""
    rows = [f"| `{row.flag}` | `{row.variable}` | {row.default or ''} | {row.meaning} |" for row in table()]
    return "\n".join(["| flag | variable | default | meaning |", "|---|---|---|---|", *rows])


def with_tables(page: str) -> str:
    """The page with its tables as they are now."""
    for name, text in (("settings", settings_markdown()), ("truth table", truth_table_markdown())):
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
