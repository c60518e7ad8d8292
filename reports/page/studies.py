"""The page's tables beside the verdicts: which there are, effects over axes, chosen rates."""

import math
from collections.abc import Mapping, Sequence

from harness.run.document import Document
from harness.run.plan import Plan
from reports.analysis.judges import Share
from reports.analysis.notes import is_too_noisy
from reports.analysis.optimum import Optimum
from reports.analysis.published_steps import Step, published_steps
from reports.analysis.sensitivity import Sensitivity
from reports.analysis.types import Comparisons
from reports.format import p_value
from reports.inputs.experiment import Experiment
from reports.page.adding_up import pairs_apart
from reports.page.by_design import ByDesign
from reports.page.contributions import attribution_table, beside_table, inseparable_table
from reports.page.places import FEW, place_words, where_words
from reports.page.study import Study, StudyRow, carried_end, share_cell, unknown
from reports.page.tables import TableCell
from reports.stats.digits import settled
from reports.stats.intervals import Estimate

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


def studies(experiment: Experiment, by_design: ByDesign, outcome: Comparisons) -> list[Study]:
    """The tables there are to show, [] for most experiments; none of times that tell nothing."""
    plan = experiment.plan
    told = by_design.contributions
    if is_too_noisy(outcome):
        told = [a for a in told if a.metric != "seconds"]
    tables = [attribution_table(a) for a in told]
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
