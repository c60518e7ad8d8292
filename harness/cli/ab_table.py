"""The house table of two scripts: their runs, differences, the benchmark's rules, looks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from harness.cli.foreign import JUDGED
from harness.cli.table import print_table
from harness.errors import UserError
from harness.run.document import Cells, Content

if TYPE_CHECKING:
    from harness.foreign.arm import ForeignArm
    from harness.foreign.experiment import ForeignExperiment
    from reports.analysis.types import Comparisons
    from reports.inputs.experiment import Experiment
    from reports.stats.rules import RuleResult

AB_SCHEMA = 1  # of what `ab --json` prints
SHOWN_OF_RULE = ("rule", "n", "mean", "statistic", "p", "threshold", "significant")


EDITED = (
    "{arm} was edited while ab ran: the table is of the script as it was when ab began; "
    "run the same command again for the script as it is"
)


@dataclass(frozen=True, kw_only=True)
class RuleRow:
    """What a rule of the benchmark says, or why it cannot be applied."""

    arm: str
    rule: str
    n: int | tuple[int, int] | None = None
    mean: float | tuple[float, float] | None = None
    statistic: float | None = None
    p: float | None = None
    threshold: float | None = None
    significant: bool = False
    why_not: str | None = None


@dataclass(frozen=True, kw_only=True)
class HintRow:
    """What the static look at an arm's script saw."""

    arm: str
    line: int
    text: str
    doubt: bool


@dataclass(frozen=True, kw_only=True)
class AbVerdict:
    """The house table as data."""

    experiment: str
    arms: tuple[Cells, ...]  # means, and sd where there are several runs
    comparisons: tuple[Cells, ...]  # as `ablate compare --json` prints them
    judged: tuple[str, ...]  # metrics that --fail-on looks at, the one that decides first
    rules: tuple[RuleRow, ...]  # none where no run has a validation loss
    looks: int
    notes: tuple[str, ...]
    hints: tuple[HintRow, ...]
    report: str | None  # path of the page


def judge_scripts(
    e: "ForeignExperiment", results: Path, target: float, *, no_report: bool
) -> "tuple[AbVerdict, Comparisons]":
    """The house table of an experiment's results, and the comparisons in it; writes its page, too.

    A script that was edited meanwhile is judged as it ran. target: the benchmark's loss, in nats.
    """
    from harness.cli.compare import hours_per_run, row
    from harness.cli.lookup import compared
    from harness.cli.report import write_loaded
    from harness.foreign.arm import edited_since
    from reports.analysis.samples import usable

    edited = edited_since(e.arms)
    loaded = load_as_ran(e, results, look="ab" if no_report else "report")
    page = None
    if not no_report:
        page = str(write_loaded([loaded], results, None))
    outcome, hours = compared(loaded), hours_per_run(loaded)
    rows = [row(c, hours_per_run=hours) for c in outcome.comparisons.values()]
    verdict = AbVerdict(
        experiment=e.name,
        arms=tuple(_arm_row(outcome, arm.name, edited) for arm in e.arms),
        comparisons=tuple(rows),
        judged=(*outcome.own, *JUDGED),
        rules=rules_of(outcome, usable(loaded).runs, e.arms, target),
        looks=outcome.looks,
        notes=(*(EDITED.format(arm=name) for name in edited), *outcome.notes),
        hints=_hint_rows(e.arms),
        report=page,
    )
    return verdict, outcome


def load_as_ran(e: "ForeignExperiment", results: Path, *, look: str) -> "Experiment":
    """The experiment by the code that its runs had, whatever was edited, or looked at, since.

    Raises UserError where the plan is no longer that of its runs. look: of which command."""
    from harness.cli.lookup import load_for_report
    from harness.foreign.plan import plan_foreign
    from harness.foreign.present import with_sources
    from harness.store.plans import read_plan

    plan = read_plan(results, e.name)
    if plan is not None:
        plan = with_sources(plan, {arm.name: arm.code.source for arm in e.arms})
        runs = {run.run_id for run in plan.runs}
        if runs.issuperset(run.spec.run_id for run in plan_foreign(e)):
            return load_for_report(e.name, results, plan=plan, look=look)
    raise UserError(
        f"experiment '{e.name}': another call planned other runs meanwhile: its own are kept, "
        "run the same command again"
    )


def _arm_row(outcome: "Comparisons", arm: str, edited: "Sequence[str]") -> Cells:
    """What the runs of an arm came to."""
    from reports.analysis.arm_values import ArmRow
    from reports.analysis.own_columns import arm_columns_of
    from reports.inputs.columns import json_row

    shown = [column for column in arm_columns_of(outcome) if column.in_terminal]
    row = json_row(shown, ArmRow(arm=arm, outcome=outcome))
    if edited:
        row["edited"] = arm in edited
    return row


def _hint_rows(arms: "Sequence[ForeignArm]") -> tuple[HintRow, ...]:
    rows = []
    for arm in arms:
        for hint in arm.hints:
            rows.append(HintRow(arm=arm.name, line=hint.line, text=hint.text, doubt=hint.doubt))
    return tuple(rows)


# ---------------------------------------------------------------- the benchmark's rules


@dataclass(frozen=True, kw_only=True)
class _MeasuredArm:
    """What the rules ask of an arm."""

    losses: list[float]  # of its finished runs
    steps: float | None  # their mean


def rules_of(
    outcome: "Comparisons", runs: Any, arms: "Sequence[ForeignArm]", target: float
) -> tuple[RuleRow, ...]:
    """The benchmark's rules on each new arm, and on it against the old one.

    runs: the tidy table of runs; target: the benchmark's loss, in nats."""
    old, *news = (_measured(arm.name, outcome, runs) for arm in arms)
    rows: list[RuleRow] = []
    if not any(arm.losses for arm in (old, *news)):
        return ()
    for arm, new in zip(arms[1:], news, strict=True):
        for rule, apply in BENCHMARK_RULES.items():
            if not new.losses:
                why = f"rule {rule} needs finished runs of {arm.name}"
                rows.append(RuleRow(arm=arm.name, rule=rule, why_not=why))
                continue
            try:
                rows.append(_rule_row(arm.name, apply(old, new, target)))
            except ValueError as error:
                rows.append(RuleRow(arm=arm.name, rule=rule, why_not=str(error)))
    return tuple(rows)


def _measured(arm: str, outcome: "Comparisons", runs: Any) -> _MeasuredArm:
    is_finished = (runs["arm"] == arm) & (runs["status"] == "finished")
    losses = [float(loss) for loss in runs.loc[is_finished, "val_loss"].dropna()]
    return _MeasuredArm(losses=losses, steps=outcome.cells[arm].mean.get("steps"))


def _rule_row(arm: str, result: "RuleResult") -> RuleRow:
    return RuleRow(
        arm=arm,
        rule=result.rule,
        n=result.n,
        mean=result.mean,
        statistic=result.statistic,
        p=result.p,
        threshold=result.threshold,
        significant=result.significant,
    )


def _track1(old: _MeasuredArm, new: _MeasuredArm, target: float) -> "RuleResult":
    from reports.stats import rules

    return rules.track1(new.losses, target)


def _track3(old: _MeasuredArm, new: _MeasuredArm, target: float) -> "RuleResult":
    from reports.stats import rules

    return rules.track3(new.losses, target)


def _track3_pair(old: _MeasuredArm, new: _MeasuredArm, target: float) -> "RuleResult":
    from reports.stats import rules

    if not old.losses or old.steps is None or new.steps is None:
        raise ValueError("rule track3-pair needs finished runs of both")
    return rules.track3_pair(
        old_mean=fmean(old.losses),
        old_n=len(old.losses),
        old_steps=round(old.steps),
        new_mean=fmean(new.losses),
        new_n=len(new.losses),
        new_steps=round(new.steps),
    )


BENCHMARK_RULES = {"track1": _track1, "track3": _track3, "track3-pair": _track3_pair}


# ---------------------------------------------------------------- printed


def verdict_mapping(verdict: AbVerdict) -> Content:
    """What `ab --json` prints."""
    return {"schema": AB_SCHEMA, **asdict(verdict)}


def print_verdict(verdict: AbVerdict) -> None:
    """The house table in the terminal."""
    from reports.analysis.comparison_columns import COMPARISON_COLUMNS
    from reports.inputs.columns import terminal_names

    filled = [
        name for name in verdict.arms[0] if any(arm[name] is not None for arm in verdict.arms)
    ]
    print_table(verdict.arms, filled)
    old, *news = verdict.arms
    shown = [c for c in verdict.comparisons if c["metric"] in (*verdict.judged, "step_ms")]
    of_two = [name for name in terminal_names(COMPARISON_COLUMNS) if name != "arm"]
    for new in news:
        print(f"\n{new['arm']} minus {old['arm']}:")
        print_table([c for c in shown if c["arm"] == new["arm"]], of_two)
    for note in verdict.notes:
        print(note)
    if verdict.rules:
        print("\nthe benchmark's rules:")
        columns = SHOWN_OF_RULE if len(news) == 1 else ("arm", *SHOWN_OF_RULE)
        print_table([asdict(rule) for rule in verdict.rules], columns)
    for rule in verdict.rules:
        if rule.why_not:
            print(rule.why_not)
    looks = "look" if verdict.looks == 1 else "looks"
    print(f"\n{verdict.looks} {looks} at the results; times are the scripts' own (self-reported)")
    for hint in verdict.hints:
        if hint.doubt:
            print(f"{hint.arm}:{hint.line}: {hint.text}")
    if verdict.report:
        print(f"report: {verdict.report}")
