"""Every figure of a page, in the order of printing."""

from collections.abc import Sequence

from harness.run.plan import Plan
from reports.analysis.samples import at_budget
from reports.analysis.types import Comparisons
from reports.figures.base import Figure
from reports.figures.budgets import budget_figure
from reports.figures.curves import curve_figures
from reports.figures.drawn import drawn_points
from reports.figures.effects import effect_figures
from reports.figures.heat import heat_map
from reports.figures.interactions import interaction_figure
from reports.figures.palette import Palette
from reports.figures.runs import run_figures
from reports.figures.seeds import seeds
from reports.figures.steps import step_distribution
from reports.inputs.experiment import Experiment, target_loss
from reports.page.by_design import ByDesign
from reports.page.cells import TONES
from reports.page.interactions import counted

LEADING = ("heat", "drawn", "interactions", "seeds", "loss_by_step", "scatter", "budgets")
EVIDENCE_LEADING = ("loss_by_step", "loss_by_time")  # where there is no waterfall
UNTIMED_PROTOCOL = "skip10"  # its clock does not count the first steps


def palette_of(experiment: Experiment, outcome: Comparisons) -> Palette:
    """The colours of an experiment's arms."""
    plan, tones = experiment.plan, {}
    for arm in outcome.arms:
        c = outcome.judged(arm)
        if c is not None:
            tones[arm] = TONES[c.kind]
    arms = tuple(arm.name for arm in plan.arms)
    return Palette(arms=arms, baseline=plan.baseline, tones=tones)


def leading(figures: Sequence[Figure], outcome: Comparisons, plan: Plan) -> list[Figure]:
    """The figures that carry the answer; the rest stands in an appendix."""
    by_key = {figure.key: figure for figure in figures}
    if plan.evidence:  # the step times of a ladder would make records look slower than they were
        falls = [figure for figure in figures if figure.key.startswith("waterfall")]
        return falls[:1] or [by_key[key] for key in EVIDENCE_LEADING if key in by_key]
    keys = (f"increments_{outcome.primary}", f"forest_{outcome.primary}", *LEADING)
    return [by_key[key] for key in keys if key in by_key]


def draw_all(experiment: Experiment, outcome: Comparisons, by_design: ByDesign) -> list[Figure]:
    plan, runs, curves = experiment.plan, counted(experiment), experiment.curves
    palette, unit, target = palette_of(experiment, outcome), plan.corpus.unit, target_loss(plan)
    budgets = every_seed = None
    if not plan.evidence:
        budgets = budget_figure(runs, outcome, palette, unit=unit, target=target)
        compared = at_budget(runs, outcome.budget)
        every_seed = seeds(compared, palette, unit=unit, budget=outcome.budget)
    skip_first = (plan.protocol or "").startswith(UNTIMED_PROTOCOL)
    steps = step_distribution(curves, runs, experiment.step_times, palette, skip_first=skip_first)
    figures = [
        *effect_figures(plan, outcome, palette),
        heat_map(at_budget(runs, outcome.budget), plan, unit=unit),
        drawn_points(at_budget(runs, outcome.budget), plan, by_design.lowest, unit=unit),
        interaction_figure(by_design.interactions, unit),
        every_seed,
        budgets,
        *curve_figures(
            curves,
            runs,
            palette,
            unit=unit,
            target=target,
            budget=outcome.budget,
            step_tokens=outcome.step_tokens,
        ),
        *run_figures(runs, experiment.results, palette, unit=unit, target=target, steps=steps),
    ]
    return [figure for figure in figures if figure is not None]
