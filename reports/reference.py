"""docs/columns.md, from the declared statistics; `python -m reports.reference` rewrites it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports.analysis.arm_columns import ARM_COLUMNS
from reports.analysis.comparison_columns import COMPARISON_COLUMNS
from reports.analysis.recipe_columns import RECIPE_COLUMNS
from reports.inputs.columns import Column
from reports.inputs.run_columns import RUN_COLUMNS

DOCS = Path(__file__).resolve().parents[1] / "docs"
HEAD = """\
# Columns

Generated from the declarations by `python -m reports.reference`; do not edit. A statistic is
declared once ([how to add one](contributing.md)): the page, the command line, the exports and these
tables read the declaration. A name is that of JSON and of exported tables; beside it stands the
heading that [the page](report.md) prints it below.
"""
SECTIONS: tuple[tuple[str, str, Sequence[Column[Any]]], ...] = (
    ("A run", "`ablate export EXP -o FILE`, and the page's table of every run.", RUN_COLUMNS),
    (
        "An arm",
        "`ablate export EXP --arms -o FILE`, and the page's table of verdicts; in bold what "
        "`ablate ab` prints. Below the headings with Δ stand the statistics of comparisons.",
        ARM_COLUMNS,
    ),
    (
        "A comparison",
        "`ablate compare EXP --json`, `ablate export EXP --comparisons -o FILE` (without what is a "
        "list or a mapping), and below the differences on the page; in bold what the terminal "
        "shows.",
        COMPARISON_COLUMNS,
    ),
    (
        "A recipe",
        "`recipe` of `ablate compare EXP --json`, and the box at the top of the page: what the "
        "compared runs recorded of themselves. A value is null where no run tells it, and a list "
        "where the runs differ.",
        RECIPE_COLUMNS,
    ),
)


def page_name(column: Column[Any]) -> str:
    """The heading that a page prints it below; of a comparison, those with Δ."""
    if not column.format and not column.head:
        return ""
    return column.head or "Δ"


def json_name(column: Column[Any]) -> str:
    if column.json_name is None:
        return ""
    if column.in_terminal:
        return f"**`{column.json_name}`**"
    return f"`{column.json_name}`"


def columns_page() -> str:
    """docs/columns.md."""
    parts = [HEAD]
    for title, where, columns in SECTIONS:
        parts.append(
            f"\n## {title}\n\n{where}\n\n| name | on the page | meaning |\n|---|---|---|\n"
        )
        for column in columns:
            if column.head.startswith("Δ"):
                continue
            cells = (json_name(column), page_name(column), column.meaning)
            parts.append(f"| {' | '.join(cells)} |\n")
    return "".join(parts)


def pages() -> dict[Path, str]:
    """Generated file -> its content."""
    return {DOCS / "columns.md": columns_page()}


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content, encoding="utf-8")
        print(path)
