"""Figures of the verdicts: which effects and waterfalls there are to draw."""

from collections.abc import Sequence

from harness.run.plan import Plan
from reports.analysis.increments import rungs_of
from reports.analysis.types import COMPARED_TIMES, Comparisons, effect
from reports.figures.base import Figure
from reports.figures.forest import forest
from reports.figures.gains import gains
from reports.figures.palette import Palette
from reports.figures.waterfall import levels_of, mean_of, waterfall

FORESTS = ("val_loss", "heldout_loss", "step_ms", "time_to_target")


def same_steps(arms: Sequence[str], outcome: Comparisons) -> bool:
    """Whether all arms trained as many steps."""
    return len({mean_of("steps", arm, outcome) for arm in arms}) == 1


def waterfalls(plan: Plan, outcome: Comparisons, palette: Palette) -> list[Figure]:
    """Those of a ladder: its time (to the target, where that is resolved), and its loss.

    Published rows that were tuned to one loss differ in time, rows of equal steps in loss.
    """
    rungs = list(palette.arms)
    if plan.is_bundle:
        rungs = [arm for arm in palette.arms if arm in rungs_of(plan)]
    metrics = ["train_time_s", "val_loss"]
    if len(levels_of("time_to_target", rungs, outcome)) >= 3:
        metrics = ["time_to_target", "val_loss"]
    if plan.evidence:
        metrics = ["train_time_s", "step_ms"]
        if same_steps(rungs, outcome):
            metrics = ["val_loss", "step_ms"]
    figures = []
    for metric in metrics:
        figure = waterfall(metric, rungs, outcome, palette, plan.corpus.unit)
        if figure is not None:
            figures.append(figure)
    return figures


def forests(plan: Plan, outcome: Comparisons, palette: Palette) -> list[Figure]:
    """A forest plot of every compared metric, the primary one first, arms by size of effect.

    A ladder's begin with the rungs' own parts, and all are in its order: what stands against the
    baseline is then of all parts up to an arm.
    """
    drawn = (*FORESTS, *outcome.own)
    others = [metric for metric in drawn if metric != outcome.primary]
    metrics = others
    if outcome.primary in drawn:
        metrics = [outcome.primary, *others]
    figures = []
    margin = None if outcome.primary in COMPARED_TIMES else plan.margin  # of the primary metric
    parts = {arm: c for (arm, metric), c in outcome.increments.items() if metric == outcome.primary}
    if parts and outcome.primary in drawn:
        figures.append(forest(outcome.primary, parts, palette, margin, naming=outcome.own_words))
    for metric in metrics:
        of_arms = [c for arm in outcome.arms if (c := outcome.of(arm, metric)) is not None]
        if not outcome.increments:
            of_arms.sort(key=lambda c: effect(c)[0])
        comparisons = {c.arm: c for c in of_arms}
        if comparisons:
            of_metric = margin if metric == outcome.primary else None
            all_parts = bool(outcome.increments)
            figures.append(forest(metric, comparisons, palette, of_metric, all_parts=all_parts))
    return figures


def effect_figures(plan: Plan, outcome: Comparisons, palette: Palette) -> list[Figure]:
    """Waterfalls for a ladder, the two gains, forest plots; of published rows waterfalls alone.

    Published rows are compared one by one, in their table.
    """
    figures = []
    if plan.design == "ladder" and not plan.axes:
        figures += waterfalls(plan, outcome, palette)
    if plan.evidence:
        return figures
    gain_figure = gains(outcome, palette)
    if gain_figure is not None:
        figures.append(gain_figure)
    return figures + forests(plan, outcome, palette)
