"""python -m tests.findings: write the published pages again, from the data inside them or, the history's, from its tables.

For when the report's own code changed what it prints of the same runs; say why in CHANGELOG.md under *Numerics*."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.cli.history import atlas
from harness.run.document import Content
from harness.run.halving import GRID
from harness.run.ledger import claims_of
from harness.run.plan import Plan
from reports.inputs.memory import Memory
from reports.page.embed import embed_experiment, lean, plain, restore_experiment
from reports.page.write import draw_page, judged
from reports.verify.page import read_page

FINDINGS = Path(__file__).resolve().parents[1] / "docs" / "findings"
HISTORY = FINDINGS / "history" / "history.html"  # written by `ablate atlas`: it has no data in it
OLDER = "7_of_8"  # how a page's name ends that shows an experiment before its end
PAGES = [page for page in sorted(FINDINGS.rglob("*.html")) if page != HISTORY]


def tell_of_others(data: Content, path: Path, pages: Mapping[Path, Sequence[Content]]) -> None:
    """Keep in an experiment's data which of the other pages' asked the same at other seeds.

    They came before results folders knew that. pages: the experiments of each page.
    """
    plan = Plan.from_mapping(data["plan"])
    claims = claims_of(plan)
    baseline = claims.pop(plan.baseline)
    named: dict[str, str] = {}
    for other, experiments in pages.items():
        asked = Plan.from_mapping(experiments[0]["plan"])
        of_other = claims_of(asked)
        same = of_other.pop(asked.baseline) == baseline and {*of_other.values()} & {
            *claims.values()
        }
        if same and asked.confirm != plan.confirm and not other.stem.endswith(OLDER):
            named[asked.name] = other.relative_to(path.parent).as_posix()
    if plan.name.endswith(GRID):
        named = {}
    names = tuple(named)
    memory = replace(
        Memory.from_mapping(data.get("memory") or {}),
        confirmed_by=() if plan.confirm else names,
        confirms=names if plan.confirm else (),
    )
    data["memory"] = memory.to_mapping()
    data["pages"] = named
    data["confirmations"] = []
    for other, experiments in pages.items():
        is_told = experiments[0]["name"] in names and not other.stem.endswith(OLDER)
        if is_told and not plan.confirm:
            alone = {**experiments[0], "confirmations": []}
            again = plain(embed_experiment(restore_experiment(alone)))
            data["confirmations"].append(lean(again))


def main() -> int:
    pages = {path: read_page(path).data["experiments"] for path in PAGES}
    for path, experiments in pages.items():
        for data in experiments:
            tell_of_others(data, path, pages)
        path.write_text(draw_page([judged(data) for data in experiments]), encoding="utf-8")
        print(path)
    atlas(out=HISTORY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
