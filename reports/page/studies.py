"""The page's tables beside the verdicts: contributions, effects over axes, chosen rates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.run.document import Document
from harness.run.plan import Plan
from reports.analysis.attribution import Attribution
from reports.analysis.judges import Share
from reports.analysis.optimum import Optimum
from reports.analysis.published_steps import Step, published_steps
from reports.analysis.sensitivity import Sensitivity
from reports.format import interval, p_value, show
from reports.inputs.experiment import Experiment
from reports.page.adding_up import pairs_apart
from reports.page.by_design import ByDesign
from reports.page.places import FEW, place_words, where_words
from reports.page.tables import TableCell
from reports.stats.digits import kept, settled
from reports.stats.intervals import Estimate

KINDS = {"val_loss": "loss_delta", "steps": "s_delta", "seconds": "s_delta"}
METRIC_TITLES = {"val_loss": "loss", "steps": "steps to target", "seconds": "training time"}
HEADS = {
    "alone": "alone",
    "in_order": "added in order",
    "shapley": "Shapley share",
    "left_out": "added last",
}
MEANS = (
    "alone on the baseline, averaged over every order in which the changes can be added "
    "(these shares sum to the whole), and added last, to all others. Where the three differ, "
    "changes interact. A dash: no arm that was run tells it."
)
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
LEAD_OF_AXES = (
    "The lowest point of a quadratic through an arm's mean losses along an axis, "
    "logarithmic where all its points are above zero, and where that point lies with 95 % "
    "confidence for all arms and axes at once (Fieller's interval). Of two axes the one is "
    "averaged over the other. The error is that of the noise, not of the quadratic."
)
LEAD_OF_SURFACES = (
    "The lowest point of one quadratic of both axes through an arm's mean losses at the drawn "
    "points, logarithmic where all are above zero, and how far the region reaches along each axis "
    "in which that point lies with 95 % confidence, for all arms at once (Box and Hunter 1954). "
    "It holds where the quadratic fits, which runs repeated at a point test (lack of fit). It "
    "chooses a place and judges none: fresh seeds do."
)
BLANK = TableCell(text="", css="num")
StudyRow = tuple[str, Sequence[TableCell]]  # its name, its cells


@dataclass(frozen=True, kw_only=True)
class Study:
    """One table: its title, what it means, its heads after the first column, its rows."""

    key: str
    title: str
    lead: str
    first: str
    heads: Sequence[str]
    rows: Sequence[StudyRow]

    def is_number(self, column: int) -> bool:
        return all(cells[column].css == "num" for _, cells in self.rows)


def studies(experiment: Experiment, by_design: ByDesign) -> list[Study]:
    """The tables there are to show, [] for most experiments."""
    plan = experiment.plan
    tables = [attribution_table(a) for a in by_design.contributions]
    if pairs_apart(by_design.interactions):
        tables.append(beside_table(by_design, plan.corpus.unit))
    if by_design.contributions and plan.remarks:
        tables.append(inseparable_table(plan.remarks))
    if by_design.lowest:
        tables.append(optimum_table(by_design.lowest))
    if by_design.signs:
        tables.append(sensitivity_table(by_design.signs))
    steps = published_steps(experiment)
    if steps:
        tables.append(steps_table(steps, plan))
    if plan.rates:
        tables.append(rates_table(plan.rates, str(plan.grid)))
    return tables


def unknown(kind: str) -> TableCell:
    return TableCell(text=show(None, kind), css="num")


def share_cell(share: Share | None, kind: str) -> TableCell:
    """A number with its interval."""
    if share is None:
        return unknown(kind)
    printed = f"{show(share.value, kind)} {interval(share.low, share.high, kind)}"
    carried = ",".join(map(carried_end, (share.value, share.low, share.high)))
    if share.is_extrapolated:
        printed += " extrapolated"
    return TableCell(text=printed.strip(), v=carried, css="num")


def attribution_table(a: Attribution) -> Study:
    kind = KINDS[a.metric]
    filled = {column for shares in a.shares.values() for column in shares}
    columns = [column for column in HEADS if column in filled]
    of_total = "shapley" if "shapley" in columns else columns[-1]
    rows: list[StudyRow] = []
    for change, shares in a.shares.items():
        name = change
        needing = a.leaves_with.get(change)
        if needing:
            verb = "needs" if len(needing) == 1 else "need"
            name += f" ({' and '.join(needing)} {verb} it)"
        rows.append((name, [share_cell(shares.get(column), kind) for column in columns]))
    if a.total is not None:
        total = share_cell(a.total, kind)
        rows.append(
            ("all together", [total if column == of_total else BLANK for column in columns])
        )
    means = MEANS_OF_ONE.get(columns[0], MEANS) if len(columns) == 1 else MEANS
    lead = (
        f"What each change adds in {a.unit} {a.note}".strip()
        + f": {means} Below zero is better; intervals hold with 95 % for all changes of a column "
        "at once, in the table of verdicts for all arms, so that one difference may have two."
    )
    if any(a.leaves_with.values()):
        lead += " In brackets: the changes that need this one, and leave together with it."
    return Study(
        key=f"attribution-{a.metric}",
        title=f"Contributions in {contributed_to(a)}",
        lead=lead,
        first="change",
        heads=[HEADS[column] for column in columns],
        rows=rows,
    )


def contributed_to(a: Attribution) -> str:
    """What is contributed to: at equal steps seconds are training time, else time to target."""
    if a.metric == "seconds" and a.note == "to the target":
        return "time to target"
    return METRIC_TITLES[a.metric]


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


def optimum_table(lowest: Sequence[Optimum]) -> Study:
    rows: list[StudyRow] = []
    for o in lowest:
        what = where_words(o)
        if o.doubt:
            what += f"; the quadratic {o.doubt}"
        elif o.value is not None and not o.is_resolved:
            wider = "points between wider ends" if o.is_drawn else "a wider grid"
            what += f", but the curvature is not told apart from zero: more seeds or {wider}"
        if o.left_out:
            what += f"; without {', '.join(o.left_out)}, where not every run finished"
        carried = None
        if o.where not in FEW:
            ends = [o.value, o.low, o.high]
            if o.surface is not None:
                ends.append(o.lack_of_fit)
                what += f"; {fit_words(o)}"
            carried = ",".join(map(carried_end, ends))
        cells = [
            TableCell(text=place_words(o), v=carried),
            TableCell(text=what),
            TableCell(text=str(o.n_blocks), css="num"),
        ]
        rows.append((f"{o.arm}, {o.axis.name}", cells))
    lead = LEAD_OF_SURFACES
    if all(o.surface is None for o in lowest):
        lead = LEAD_OF_AXES
    return Study(
        key="optimum",
        title="Where the loss is lowest",
        lead=lead,
        first="arm and axis",
        heads=["lowest at", "where", "blocks"],
        rows=rows,
    )


def fit_words(o: Optimum) -> str:
    """How many drawn points a surface goes through, and how well it fits them."""
    n = 0 if o.surface is None else o.surface.n_points
    if o.lack_of_fit is None:
        return f"{n} points, whose fit no repeated run tests"
    return f"{n} points, lack of fit p {p_value(settled(o.lack_of_fit))}"


def carried_end(value: float | None) -> str:
    """A number as a page carries it; '' for none."""
    rounded = kept(value)
    if rounded is None:
        return ""
    return repr(rounded)


def sensitivity_table(of_arms: Sequence[Sensitivity]) -> Study:
    """Arms and points, the longer list down the page."""
    points: dict[str, None] = {}
    at: dict[tuple[str, str], TableCell] = {}
    for s in of_arms:
        for e in s.effects:
            points[e.point] = None
            at[s.arm, e.point] = share_cell(
                Share(value=e.delta, low=e.low, high=e.high), "loss_delta"
            )
    nothing, rows = unknown("loss"), []
    if len(points) > len(of_arms):
        first, heads = "point", [s.arm for s in of_arms]
        for point in points:
            rows.append((point, [at.get((s.arm, point), nothing) for s in of_arms]))
        signs = [TableCell(text=s.words, css="num") for s in of_arms]
        rows.append(("sign", signs))
    else:
        first, heads = "arm", [*points, "sign"]
        for s in of_arms:
            cells = [at.get((s.arm, point), nothing) for point in points]
            rows.append((s.arm, [*cells, TableCell(text=s.words)]))
    return Study(
        key="sensitivity",
        title="Does the sign hold?",
        lead=(
            "Every arm against the baseline at the same point, in loss, with intervals that hold "
            "for all points and arms at once. An effect whose sign changes along the axis is a "
            "statement about the rates as much as about the change."
        ),
        first=first,
        heads=heads,
        rows=rows,
    )


def steps_table(steps: Sequence[Step], plan: Plan) -> Study:
    rows: list[StudyRow] = []
    for step in steps:
        kind, metric = "percent", "step time"
        if step.metric == "val_loss":
            kind, metric = "loss_delta", "loss"
        cells = [
            estimate_cell(step.published, kind),
            estimate_cell(step.ours, kind),
            TableCell(text=step.verdict, css="words"),
            TableCell(text=step.why),
        ]
        rows.append((f"{step.change}: {metric}", cells))
    lead = (
        f"Every change of {plan.published}'s published ladder that was run here with and without "
        "it, each against the arm before it. Losses are differences in nats per token, step times "
        "are ratios; brackets are 95 % intervals. The published side is one run per row, with the "
        "noise of single runs of its era and of nodes. Margins are half the published effect."
    )
    if not plan.confirm:
        lead += " Exploratory: the same runs may have suggested the question."
    return Study(
        key="published-steps",
        title="Against the published ladder",
        lead=lead,
        first="change",
        heads=["published", "here", "verdict", "why"],
        rows=rows,
    )


def estimate_cell(e: Estimate | None, kind: str) -> TableCell:
    """An effect with its 95 % interval; a log ratio as percent."""
    if e is None:
        return unknown(kind)
    low, high = e.interval(0.05)
    share = Share(value=e.value, low=low, high=high)
    if kind != "loss_delta":
        share = Share(value=math.expm1(e.value), low=math.expm1(low), high=math.expm1(high))
    return share_cell(share, kind)


def rates_table(rates: Mapping[str, Document], grid: str) -> Study:
    """Arm -> the factor on a rate that was chosen for it, from the experiment named grid."""
    rows: list[StudyRow] = []
    for arm, rate in rates.items():
        edge = "lowest point inside the grid"
        if rate["at_edge"]:
            edge = "an end of the grid: the best may lie beyond it, widen the grid"
        factor = TableCell(text=f"x{float(rate['factor']):.3g}", css="num")
        rows.append((arm, [factor, TableCell(text=str(rate["how"])), TableCell(text=edge)]))
    axis = next(iter(rates.values()))["axis"]
    return Study(
        key="rates",
        title="Rates chosen",
        lead=(
            f"Factors on {axis}, each arm's best in {grid}; these runs were made at them, on "
            "seeds that the grid never saw. How well each is known, and whether its interval "
            "reaches beyond the grid or is not resolved, that experiment says."
        ),
        first="arm",
        heads=["factor", "found by", "where"],
        rows=rows,
    )
