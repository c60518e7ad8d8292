"""The tables of what changes contribute, of those that do not add up, of what stays together."""

from collections.abc import Sequence

from reports.analysis.attribution import Attribution
from reports.analysis.judges import Share
from reports.page.adding_up import pairs_apart
from reports.page.by_design import ByDesign
from reports.page.study import BLANK, Study, StudyRow, share_cell

KINDS = {"val_loss": "loss_delta", **dict.fromkeys(("steps", "tokens", "seconds"), "s_delta")}
METRIC_TITLES = {"val_loss": "loss", "steps": "steps", "tokens": "tokens", "seconds": "seconds"}
HEADS = {
    "alone": "alone",
    "in_order": "added in order",
    "shapley": "Shapley share",
    "left_out": "added last",
}
MEANS_OF_SEVERAL = (
    "alone on the baseline, averaged over every order in which the changes can be added "
    "(these shares sum to the whole), and added last, to all others. Where the three differ, "
    "changes interact. A dash: no arm that was run tells it."
)
OF_INTERVALS = (
    "Below zero is better. Intervals hold with 95 % for all changes of a column at once, that of"
    " all together for itself alone. In the table of verdicts they hold for all arms at once, so"
    " that the same difference has a wider one there."
)
LEAVING = "left_out"  # the column in which a change leaves with what needs it
MEANS_OF_ONE = {  # of a table with one column
    "left_out": (
        "added last, to all others, with what needs it. Changes that help together alone are "
        "each given the whole of it, so these need not sum to it."
    ),
    "alone": (
        "alone on the baseline, or on what it needs. Changes that help together alone show "
        "nothing here, so these need not sum to the whole, which no arm of this design is."
    ),
    "in_order": (
        "on top of those before it, in the order of changes.yaml. These sum to the whole; in "
        "another order each can be another number."
    ),
}


def attribution_table(a: Attribution) -> Study:
    kind = KINDS[a.metric]
    filled = {column for shares in a.shares.values() for column in shares}
    columns = [column for column in HEADS if column in filled]
    of_total = "shapley" if "shapley" in columns else columns[-1]
    rows: list[StudyRow] = []
    for change, shares in a.shares.items():
        needing = a.leaves_with.get(change) or ()
        of_change = dict(shares)
        leaving = of_change.pop(LEAVING, None) if needing else None
        if of_change:
            cells = [share_cell(of_change.get(column), kind) for column in columns]
            rows.append((change, cells))
        if leaving is not None:  # which is no number of the change alone
            together = f"{change} with {' and '.join(needing)}"
            cells = [share_cell(leaving, kind) if c == LEAVING else BLANK for c in columns]
            rows.append((together, cells))
    if a.total is not None:
        total = share_cell(a.total, kind)
        rows.append(
            ("all together", [total if column == of_total else BLANK for column in columns])
        )
    lead = f"What each change adds in {a.unit} {a.note}".strip()
    if a.metric == "val_loss":
        means = MEANS_OF_SEVERAL if len(columns) > 1 else MEANS_OF_ONE[columns[0]]
        lead += f": {means} {OF_INTERVALS}"
        if any(a.leaves_with.values()):
            lead += " A change that others need leaves with them: such a row is of all of these."
    else:
        lead += ", read as the table of the loss."
    return Study(
        key=f"attribution-{a.metric}",
        title=f"Contributions in {a.title or METRIC_TITLES[a.metric]}",
        lead=lead,
        first="change",
        heads=[HEADS[column] for column in columns],
        rows=rows,
    )


def beside_table(by_design: ByDesign, unit: str) -> Study:
    """Pairs whose interaction leaves zero, each change of them with the other and without it."""
    rows: list[StudyRow] = []
    for pair in pairs_apart(by_design.interactions):
        beyond = Share(value=pair.estimate, low=pair.low, high=pair.high)
        for e in by_design.beside:
            if {e.change, e.other} == set(pair.changes):
                shares = (e.with_other, e.without, beyond)
                cells = [share_cell(share, "loss_delta") for share in shares]
                rows.append((f"{e.change}, beside {e.other}", cells))
    return Study(
        key="beside",
        title="Changes that do not add up",
        lead=(
            f"What a change adds in {unit} with the other one and without it, on average over the"
            " sets of other changes for which both ran. The difference is what the two add beyond"
            " their sum. Below zero is better; intervals of the first two columns hold with 95 %"
            " for all pairs of changes at once, those of the third for all effects of the figure."
        ),
        first="change, beside another",
        heads=["with it", "without it", "difference"],
        rows=rows,
    )


def inseparable_table(remarks: Sequence[str]) -> Study:
    return Study(
        key="inseparable",
        title="What could not be separated",
        lead=(
            "A bundle was taken apart into groups; these stay together, in every arm of this "
            "experiment. Atoms and lines of each group: split.html in its folder."
        ),
        first="what stays together, and why",
        heads=[],
        rows=[(remark, []) for remark in remarks],
    )
