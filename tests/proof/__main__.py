"""python -m tests.proof [replications]: run the study and write its table into docs/statistics.md between the markers."""

import re
import sys
from pathlib import Path

from tests.proof.row import Row
from tests.proof.study import study

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


def main(replications: int = 10_000) -> int:
    rows = study(replications)
    text = DOCS.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        print(
            f"{DOCS}: the markers '{BEGIN}' and '{END}' must each stand there once", file=sys.stderr
        )
        return 2
    body = re.sub(
        f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{table(rows)}\n{END}", text, flags=re.DOTALL
    )
    DOCS.write_text(body, encoding="utf-8")
    missed = [(row, row.misses()) for row in rows if row.misses()]
    for row, why in missed:
        print(f"{row.kind}, n {row.n}, {row.noise}: {', '.join(why)}")
    print(
        f"{len(rows)} rows of up to {replications} replications, {len(missed)} missed a bar; table in {DOCS.name}"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
