"""python -m tests.findings: write the published pages again, from the data inside them or, the history's, from its tables.

For when the report's own code changed what it prints of the same runs; say why in CHANGELOG.md under *Numerics*."""

import sys
from pathlib import Path

from harness.cli.history import atlas
from reports.page.write import draw_page, judged
from reports.verify.page import read_page

FINDINGS = Path(__file__).resolve().parents[1] / "docs" / "findings"
HISTORY = FINDINGS / "history" / "history.html"  # written by `ablate atlas`: it has no data in it
PAGES = [page for page in sorted(FINDINGS.rglob("*.html")) if page != HISTORY]


def main() -> int:
    for path in PAGES:
        page = read_page(path)
        path.write_text(
            draw_page([judged(data) for data in page.data["experiments"]]), encoding="utf-8"
        )
        print(path)
    atlas(out=HISTORY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
