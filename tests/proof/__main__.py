"""python -m tests.proof [replications [part ...]]: run the study and write its table into docs/statistics.md.

Between the markers; with the names of parts (tests/proof/study.py) their rows alone are made again. The numbers of seeds for the
same power follow from its rows (tests/proof/sizes.py)."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.proof.decisions import with_tables
from tests.proof.row import Row, falls
from tests.proof.sizes import SIZES_BEGIN, SIZES_END, sizes_table
from tests.proof.study import PARTS

DOCS = Path(__file__).parents[2] / "docs" / "statistics.md"
BEGIN, END = "<!-- proof: begin -->", "<!-- proof: end -->"
COLUMNS = ("coverage", "simultaneous", "family_error", "width", "unbounded", "power")


def table(rows: list[Row]) -> str:
    lines = [
        "| kind | n | noise | replications | coverage | all of a family | family-wise error | width / oracle | unbounded "
        "| power |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            ""
            if (v := getattr(row, c)) is None
            else f"{v:.2f}"
            if c == "width"
            else f"{100 * v:.1f} %"
            for c in COLUMNS
        ]
        lines.append(
            f"| {row.kind} | {row.n} | {row.noise} | {row.replications} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def written_rows() -> list[Row]:
    """The rows of the table in the docs."""
    lines = DOCS.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip().splitlines()
    assert lines[:2] == table([]).splitlines()
    rows = []
    for line in lines[2:]:
        kind, n, noise, replications, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        values = [
            None if not c else float(c.removesuffix(" %")) / (100 if c.endswith("%") else 1)
            for c in cells
        ]
        row = Row(kind=kind, n=n, noise=noise, replications=int(replications), **dict(zip(COLUMNS, values, strict=True)))  # fmt: skip
        rows.append(row)
    return rows


def study(replications: int, names: Sequence[str]) -> list[Row]:
    """All rows, those of the named parts made again where some are named."""
    if not names:
        return [row for part in PARTS for row in part(replications)]
    rows, parts = written_rows(), {part.__name__: part for part in PARTS}
    for name in names:
        made = [*parts[name](replications)]
        kinds = {row.kind for row in made}
        at = next((i for i, row in enumerate(rows) if row.kind in kinds), len(rows))
        rows[at:] = [*made, *(row for row in rows[at:] if row.kind not in kinds)]
    return rows


def main(replications: int = 10_000, *names: str) -> int:
    rows = study(replications, names)
    text = DOCS.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        print(
            f"{DOCS}: the markers '{BEGIN}' and '{END}' must each stand there once", file=sys.stderr
        )
        return 2
    body = re.sub(
        f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{table(rows)}\n{END}", text, flags=re.DOTALL
    )
    sizes = sizes_table(rows)
    body = re.sub(
        f"{SIZES_BEGIN}.*?{SIZES_END}",
        lambda _: f"{SIZES_BEGIN}\n{sizes}\n{SIZES_END}",
        body,
        flags=re.DOTALL,
    )
    if not names:
        body = with_tables(body)
    DOCS.write_text(body, encoding="utf-8")
    missed = [(row, row.misses()) for row in rows if row.misses()]
    for row, why in missed:
        print(f"{row.kind}, n {row.n}, {row.noise}: {', '.join(why)}")
    fallen = falls(rows)
    for sentence in fallen:
        print(sentence)
    print(
        f"{len(rows)} rows of up to {replications} replications, {len(missed) + len(fallen)} missed a bar; "
        f"table in {DOCS.name}"
    )
    return 1 if missed or fallen else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2]), *sys.argv[2:]))
