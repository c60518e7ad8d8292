"""What pages say and draw is what they said and drew when somebody last read them: a change of it is read as a diff.

That it is right the second path of `verify` says, which computes the numbers again; tests/reports/figures reads marks against their axes.
"""

from pathlib import Path

import pytest

from reports.page.write import draw_page, judged
from reports.verify.page import read_page
from reports.verify.verify import check_data
from tests.findings import FINDINGS, PAGES
from tests.kept_pages import FOLDER, first_difference, page_of, said_and_drawn
from tests.report_kinds import KINDS

LONG = 600_000  # bytes: pages of many runs are drawn again by slow tests


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_every_kind_is_confirmed_and_says_and_draws_what_it_did(kind: str) -> None:
    page = page_of(kind)
    assert check_data(read_page(page), None) == []
    kept = (FOLDER / f"{kind}.html").read_text(encoding="utf-8")
    changed = first_difference(kept, said_and_drawn(kind, page))
    assert not changed, f"{changed}; python -m tests.kept_pages writes it again: read the diff"


def test_no_kept_page_is_of_a_kind_that_is_gone() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(KINDS)


@pytest.mark.parametrize(
    "path", [p for p in PAGES if p.stat().st_size < LONG], ids=lambda path: path.stem
)
def test_a_page_of_the_findings_is_drawn_again_as_it_stands(path: Path) -> None:
    page = read_page(path)
    again = draw_page([judged(data) for data in page.data["experiments"]])
    changed = first_difference(page.markup, read_page(again).markup)
    assert not changed, f"{path.relative_to(FINDINGS)}: {changed}; python -m tests.findings"
