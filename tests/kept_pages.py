"""python -m tests.kept_pages: write tests/data/pages again, what a page says and draws of every kind of experiment.

One element a line, to be reviewed as a diff. A figure is kept where it is drawn otherwise than before, the table of runs of
the first kind alone; styles, scripts and data are not kept.
"""

import re
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from reports.page.write import render
from tests.report_kinds import KINDS

FOLDER = Path(__file__).parent / "data" / "pages"
FIGURE = re.compile(r'<figure id="(\w+)-0".*?</figure>', re.S)
RUNS = re.compile(r'<table[^>]*data-table="runs".*?</table>', re.S)
FIRST = "ladder"  # of which every figure is kept
FIGURES = {  # kind -> figures that are kept of it, too
    "budgets": (
        *("waterfall_time_to_target", "gains", "forest_time_to_target", "budgets"),
        "step_distribution",
    ),
    "tokens": ("gains", "budgets", "loss_by_step"),
    "factorial": ("interactions",),
    "one_run": ("wall",),
    "loose": ("seeds",),
    "many": ("forest_val_loss", "loss_by_step", "difference"),
    "grid": ("heat",),
    "holes": ("heat",),
    "hostile": ("seeds", "forest_val_loss"),
    "crowd": ("seeds", "step_ms", "step_distribution"),
    "points": ("drawn",),
    "evidence": ("waterfall_step_ms", "loss_whole", "loss_by_step", "difference"),
    "optimizers": ("waterfall_val_loss", "waterfall_train_time_s"),
    "records": ("waterfall_train_time_s", "waterfall_step_ms", "loss_by_time"),
}


def page_of(kind: str) -> str:
    """The page of a kind of experiment."""
    with TemporaryDirectory() as folder:
        return render([KINDS[kind](Path(folder))])


def said_and_drawn(kind: str, page: str) -> str:
    """What the page of a kind says and draws."""
    text = page[page.index("<main") : page.index("</main>")]
    if kind != FIRST:
        kept = FIGURES.get(kind, ())
        text = FIGURE.sub(lambda figure: figure[0] if figure[1] in kept else "", text)
        text = RUNS.sub("", text)
    return text.replace("><", ">\n<").replace("</li> <", "</li>\n<") + "\n"


def first_difference(was: str, now: str) -> str:
    """The first line that is another one, as it was and as it is; '' where there is none."""
    lines = zip_longest(was.split("\n"), now.split("\n"))
    for number, (before, after) in enumerate(lines, start=1):
        if before != after:
            return f"line {number}: {before!r} is now {after!r}"
    return ""


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.html"):
        path.unlink()
    for kind in KINDS:
        (FOLDER / f"{kind}.html").write_text(said_and_drawn(kind, page_of(kind)), encoding="utf-8")


if __name__ == "__main__":
    main()
