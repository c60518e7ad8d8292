"""The page's tables beside the verdicts: contributions three ways, effects over the axes, and the rates that a grid chose."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.analysis.attribution import Attribution, Share, attributions
from reports.analysis.published_steps import Step, published_steps
from reports.analysis.sensitivity import Sensitivity, sensitivities
from reports.format import interval, kept, show
from reports.inputs.experiment import Experiment
from reports.page.tables import Cell
from reports.stats.intervals import Estimate

KINDS = {"val_loss": "loss_delta", "steps": "s_delta", "seconds": "s_delta"}
TITLES = {"val_loss": "loss", "steps": "steps", "seconds": "seconds"}
HEADS = {"alone": "alone", "shapley": "Shapley share", "left_out": "lost without it"}


@dataclass(frozen=True, kw_only=True)
class Study:
    """One table: its title, what it means, its heads after the first column, its rows."""

    key: str
    title: str
    lead: str
    first: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]

    def is_number(self, column: int) -> bool:
        return all(cells[column].css == "num" for _, cells in self.rows)


def studies(experiment: Experiment) -> list[Study]:
    """The tables there are to show, [] for most experiments."""
    rates = experiment.plan.get("rates")
    return [
        *map(attribution_table, attributions(experiment)),
        *sensitivity_table(sensitivities(experiment)),
        *steps_table(published_steps(experiment), experiment.plan),
        *([rates_table(rates, str(experiment.plan.get("grid")))] if rates else []),
    ]


def number(share: Share | None, kind: str) -> Cell:
    if share is None:
        return Cell(text=show(None, kind), css="num")
    return Cell(text=f"{show(share.value, kind)} {interval(share.low, share.high, kind)}".strip(), v=kept(share.value), css="num")


def attribution_table(a: Attribution) -> Study:
    kind = KINDS[a.metric]
    columns = [c for c in HEADS if any(c in shares for shares in a.shares.values())]
    rows = []
    for change, shares in a.shares.items():
        with_it = f" (with {', '.join(a.leaves_with[change])})" if a.leaves_with.get(change) else ""
        cells = [number(shares.get(c), kind) for c in columns]
        rows.append((change + with_it, cells))
    if a.total is not None:
        sums = {"shapley": number(a.total, kind)}
        rows.append(("all together", [sums.get(c, Cell(text="", css="num")) for c in columns]))
    lead = f"What each change adds in {a.unit} {a.note}".strip() + (
        ": alone on the baseline, averaged over every order in which the changes can be added (these shares sum to the whole), "
        "and what is lost when it is left out of all. Where the three differ, changes interact. Below zero is better; intervals "
        "hold with 95 % for all changes of a column at once."
    )
    return Study(
        key=f"attribution-{a.metric}", title=f"Contributions in {TITLES[a.metric]}", lead=lead, first="change",
        heads=[HEADS[c] for c in columns], rows=rows,
    )  # fmt: skip


def sensitivity_table(found: Sequence[Sensitivity]) -> list[Study]:
    if not found:
        return []
    points = list(dict.fromkeys(e.point for s in found for e in s.effects))
    rows = []
    for s in found:
        at = {e.point: number(Share(value=e.delta, low=e.low, high=e.high), "loss_delta") for e in s.effects}
        cells = [at.get(p, Cell(text=show(None, "loss"), css="num")) for p in points]
        rows.append((s.arm, [*cells, Cell(text=s.words)]))
    lead = (
        "Every arm against the baseline at the same point, in loss, with intervals that hold for all points and arms at once. An "
        "effect whose sign changes along the axis is a statement about the rates as much as about the change."
    )
    return [Study(key="sensitivity", title="Does the sign hold?", lead=lead, first="arm", heads=[*points, "sign"], rows=rows)]


def steps_table(found: Sequence[Step], plan: Mapping[str, Any]) -> list[Study]:
    if not found:
        return []
    rows = []
    for step in found:
        kind, of = ("loss_delta", "loss") if step.metric == "val_loss" else ("percent", "step time")
        cells = [effect(step.published, kind), effect(step.own, kind), Cell(text=step.verdict, css="words"), Cell(text=step.why)]
        rows.append((f"{step.change}: {of}", cells))
    standing = "" if plan.get("confirm") else " Exploratory: the same runs may have suggested the question."
    lead = (
        f"Every change of {plan['published']}'s published ladder that was run here with and without it, each against the arm "
        "before it. Losses are differences in nats per token, step times are ratios; brackets are 95 % intervals. The published "
        "side is one run per rung, with the noise of single runs of its era and of nodes. Margins are half the published effect."
        + standing
    )
    heads = ["published", "here", "verdict", "why"]
    return [Study(key="published-steps", title="Against the published ladder", lead=lead, first="change", heads=heads, rows=rows)]


def effect(e: Estimate | None, kind: str) -> Cell:
    """An effect with its 95 % interval; a log ratio as percent."""
    if e is None:
        return Cell(text=show(None, kind), css="num")
    value, low, high = (v if kind == "loss_delta" else math.expm1(v) for v in (e.value, *e.interval(0.05)))
    return number(Share(value=value, low=low, high=high), kind)


def rates_table(rates: dict[str, dict[str, object]], grid: str) -> Study:
    rows = []
    for arm, rate in rates.items():
        factor = f"x{float(str(rate['factor'])):.3g}"
        edge = "an end of the grid: the best may lie beyond it, widen the grid" if rate["at_edge"] else "inside the grid"
        rows.append((arm, [Cell(text=factor, css="num"), Cell(text=str(rate["how"])), Cell(text=edge)]))
    axis = next(iter(rates.values()))["axis"]
    lead = f"Factors on {axis}, each arm's best in {grid}; these runs were made at them, on seeds that the grid never saw."
    return Study(key="rates", title="Rates chosen", lead=lead, first="arm", heads=["factor", "found by", "where"], rows=rows)
