"""What a table of arms shows of metrics that foreign scripts measure of their own."""

from functools import partial

from harness.run.readings import OwnMetric
from reports.analysis.arm_columns import ARM_COLUMNS, ArmColumn, effect_columns, own_part
from reports.analysis.arm_values import mean, sd
from reports.analysis.headings import HEADINGS, Heading
from reports.analysis.types import Comparisons


def columns_of_metric(metric: OwnMetric) -> list[ArmColumn]:
    """Mean, deviation and effect of one metric."""
    name = metric.name
    return [
        ArmColumn(
            key=f"{name}.mean",
            head=name,
            value=partial(mean, metric=name),
            format="{:own}",
            json_name=name,
            in_terminal=True,
            meaning=f"Mean {name} of the finished runs.",
        ),
        ArmColumn(
            key=f"{name}.sd",
            head=name,
            value=partial(sd, metric=name),
            format="sd {:sd}",
            json_name=f"{name}_sd",
            in_terminal=True,
            meaning="Its standard deviation over runs; none for one run.",
        ),
        *effect_columns("own part", name, of=own_part, key=f"own_{name}"),
        *effect_columns(f"Δ {name}", name),
    ]


def headings_of_metric(metric: OwnMetric) -> list[Heading]:
    """Its headings in the table of verdicts."""
    side = "above" if metric.is_higher_better else "below"
    return [
        Heading(
            text=metric.name,
            meaning=f"Mean {metric.name} of the arm's finished runs, the last that each gave, and "
            f"the standard deviation over its runs; {metric.better} is better.",
        ),
        Heading(
            text=f"Δ {metric.name}",
            meaning=f"{metric.name}, arm minus {{base}}, so {side} zero is better; the interval "
            "holds for all arms at once, p is adjusted for their number.",
        ),
    ]


def arm_columns_of(outcome: Comparisons) -> tuple[ArmColumn, ...]:
    """The statistics of an arm in this outcome."""
    of_metrics: list[ArmColumn] = []
    for metric in outcome.own.values():
        of_metrics += columns_of_metric(metric)
    return (*ARM_COLUMNS, *of_metrics)


def headings_of(outcome: Comparisons) -> list[Heading]:
    """The headings after the verdict, but for those that this experiment cannot fill."""
    own_part_first, *others = HEADINGS
    of_metrics: list[Heading] = []
    for metric in outcome.own.values():
        of_metrics += headings_of_metric(metric)
    headings = []
    for heading in (own_part_first, *of_metrics, *others):
        if heading.is_filled is None or heading.is_filled(outcome):
            headings.append(heading)
    return headings
