"""How commands print: aligned plain tables, and JSON for scripts.

Numbers have no thousands separators.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from harness.errors import CONTROLS, visible
from harness.run.document import Cells
from harness.run.results import finite

JSON_HELP = "print JSON for scripts"
NUMBER = (int, float, type(None))


def text(value: Any, digits: int = 4) -> str:
    """A cell: numbers short, nothing as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{digits}f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"
    if isinstance(value, list | tuple):
        return " ".join(text(v, digits) for v in value)
    return visible(str(value)).replace("\n", " ")


def text_table(rows: Sequence[Cells], columns: Sequence[str] | None = None, digits: int = 4) -> str:
    """Rows as a table with a header; nothing for no rows."""
    if not rows:
        return ""
    columns = columns or list(rows[0])
    cells = [[text(row.get(c), digits) for c in columns] for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    right = [all(isinstance(row.get(c), NUMBER) for row in rows) for c in columns]
    return "\n".join(
        "  ".join(
            v.rjust(w) if r else v.ljust(w) for v, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [list(columns), *cells]
    )


def print_table(
    rows: Sequence[Cells], columns: Sequence[str] | None = None, digits: int = 4
) -> None:
    """text_table, printed; nothing for no rows."""
    if rows:
        print(text_table(rows, columns, digits))


def print_json(value: Any) -> None:
    """Standard JSON, an entry of a list on each line: a number that is not finite is null."""
    if isinstance(value, list):
        print("[" + ",".join(f"\n{_json(v)}" for v in value) + "\n]")
    else:
        print(_json(value, indent=1))


def _json(value: Any, indent: int | None = None) -> str:
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # mappings that are no dicts; numbers that are not finite
        text = json.dumps(finite(value), indent=indent, ensure_ascii=False)
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
