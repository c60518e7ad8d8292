"""Columns of runs that foreign scripts add: metrics of their own, and where a plan stops them."""

from functools import partial

from harness.run.document import Cells
from harness.run.plan import Plan
from reports.inputs.columns import Column, json_row
from reports.inputs.recorded import RecordedRun, float_or_nan
from reports.inputs.run_columns import RUN_COLUMNS

RunColumn = Column[RecordedRun]


def measured_own(run: RecordedRun, *, name: str) -> float:
    """A metric of the script's own, nan where the run has none."""
    return float_or_nan((run.measured.own or {}).get(name))


def stopped_at(run: RecordedRun) -> int | None:
    """The step at which the run was stopped, as planned."""
    return run.measured.stopped_at


def own_columns(plan: Plan) -> tuple[RunColumn, ...]:
    """What the runs of this plan have beside the columns of every run."""
    columns = []
    for metric in plan.own_metrics.values():
        columns.append(
            Column(
                key=metric.name,
                json_name=metric.name,
                value=partial(measured_own, name=metric.name),
                head=metric.name,
                format="{:own}",
                is_always_shown=True,
                meaning=f"A metric of the script's own, of which {metric.better} is better: "
                "the last that it gave.",
            )
        )
    if plan.is_stopped:
        columns.append(
            Column(
                key="stopped_at",
                json_name="stopped_at",
                value=stopped_at,
                head="stopped at",
                format="{}",
                is_always_shown=True,
                meaning="The step at which the run was ended, as planned, once it was validated.",
            )
        )
    return tuple(columns)


def all_columns(plan: Plan) -> tuple[RunColumn, ...]:
    """All columns of this plan's runs."""
    return (*RUN_COLUMNS, *own_columns(plan))


def row_of(run: RecordedRun) -> Cells:
    """A run's row of the tidy table."""
    return json_row(all_columns(run.plan), run)
