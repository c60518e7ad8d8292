"""The verdicts in the terminal: our own comparisons, and the benchmark's rules."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import app
from harness.cli.lookup import compared, load_for_report
from harness.cli.options import RESULTS, AcceptStale, Json, Results
from harness.cli.table import print_json, print_table
from harness.errors import UserError

if TYPE_CHECKING:
    from reports.analysis.types import Caution, Comparison, Comparisons
    from reports.inputs.experiment import Experiment

COMPARE_SCHEMA = 1
COLUMNS = ["arm", "metric", "delta", "low", "high", "p", "n", "verdict", "next_action"]
PAIR = ("old_mean", "old_n", "old_steps", "new_mean", "new_n", "new_steps")
RULE_KEYS = ("rule", "n", "mean", "sd", "statistic", "p", "threshold", "significant")


@app.command()
def compare(
    experiment: Annotated[str, typer.Argument(metavar="EXP")],
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", help="exit 1 if any arm's verdict is this, e.g. slower", metavar="WORD")
    ] = None,
    json: Json = False,
) -> None:
    """The verdicts as a table."""
    check_word(fail_on)
    known = load_for_report(experiment, results, accept_stale, look=True)
    outcome = compared(known)
    hours = hours_per_run(known)
    rows = [row(c, hours_per_run=hours) for c in outcome.comparisons.values()]
    if json:
        print_json(
            {
                "schema": COMPARE_SCHEMA,
                "experiment": known.name,
                "baseline": outcome.baseline,
                "primary": outcome.primary,
                "looks": outcome.looks,
                "anytime": outcome.anytime,
                "notes": list(outcome.notes),
                "warnings": [w.name.lower() for w in dict.fromkeys([*outcome.warnings, *of_times(outcome)])],
                "comparisons": rows,
            }
        )
    else:
        print_table(rows, COLUMNS)
        for note in (*outcome.notes, *doubts(outcome)):
            print(note)
    if fail_on is not None and any(c.verdict.startswith(fail_on) for c in judged(outcome, fail_on)):
        raise typer.Exit(1)


def of_times(outcome: "Comparisons") -> dict["Caution", list[str]]:
    """What is doubtful about an arm's time to target, with the arms; a comparison of it may be missing for that very reason."""
    found: dict[Caution, list[str]] = {}
    for arm, time in outcome.times.items():
        for warning in time.warnings:
            found.setdefault(warning, []).append(arm)
    return found


def doubts(outcome: "Comparisons") -> list[str]:
    """Every warning as one sentence; one that is not about the whole experiment has its arms in front."""
    arms = of_times(outcome)
    for c in outcome.comparisons.values():
        for warning in c.warnings:
            arms.setdefault(warning, []).append(c.arm)
    own = {w: dict.fromkeys(names) for w, names in arms.items() if w not in outcome.warnings}
    return [*(w.text for w in outcome.warnings), *(f"{', '.join(names)}: {w.text}" for w, names in own.items())]


def row(c: "Comparison", *, hours_per_run: float | None = None) -> dict[str, Any]:
    """One comparison as scripts read it."""
    runs = None if c.next_runs is None else c.next_runs
    return {
        "arm": c.arm,
        "baseline": c.baseline,
        "metric": c.metric,
        "unit": c.unit,
        "estimand": c.estimand,
        "delta": c.delta,
        "interval": None if c.low is None or c.high is None else [c.low, c.high],
        "low": c.low,
        "high": c.high,
        "level": c.level,
        "ratio": c.ratio,
        "p": c.p,
        "p_attainable": c.p_attainable,
        "n": c.n_arm,
        "n_baseline": c.n_baseline,
        "looks": c.looks,
        "exploratory": c.exploratory,
        "method": c.method,
        "verdict": c.verdict,
        "next_action": c.next_action,
        "next_cost": {
            "runs": runs or 0,
            "hours": None if runs and hours_per_run is None else (runs or 0) * (hours_per_run or 0.0),
        },
        "more_seeds": c.more_seeds,
        "warnings": [w.name.lower() for w in c.warnings],
    }


def hours_per_run(experiment: "Experiment") -> float | None:
    """Mean wall time of the finished runs, in hours of the slot that they had; None before one is."""
    from statistics import fmean

    walls = [(r.get("wall") or {}).get("total_s") for r in experiment.results.values() if r.get("status") == "finished"]
    known = [float(w) for w in walls if w]
    return fmean(known) / 3600 if known else None


def check_word(word: str | None) -> None:
    """Refuse a --fail-on that no verdict begins with."""
    from harness.errors import near
    from reports.stats.verdicts import VERDICTS

    if word is not None and not any(v.startswith(word) for v in VERDICTS):
        raise UserError(f"--fail-on {word}: no verdict begins so; there is: {', '.join(VERDICTS)}{near(word, VERDICTS)}")


def judged(outcome: "Comparisons", word: str) -> list["Comparison"]:
    """The comparisons that --fail-on looks at: the primary metric's, or where that never says `word`, those that can say it."""
    from reports.stats.verdicts import WORDS, words_of

    metrics = [outcome.primary] if word in words_of(outcome.primary) else [m for m in WORDS if word in words_of(m)]
    return [c for c in outcome.comparisons.values() if c.metric in (metrics or [outcome.primary])]


@app.command()
def significance(
    values: Annotated[
        list[str] | None, typer.Argument(help="final losses, or EXP with --arm; none: read from standard input")
    ] = None,
    rule: Annotated[str, typer.Option(help="track1, track3 or track3-pair")] = "track1",
    target: Annotated[float, typer.Option(help="the benchmark's loss")] = 3.28,
    arm: Annotated[str | None, typer.Option(help="take the final losses of this arm of EXP")] = None,
    old_mean: float | None = None,
    old_n: int | None = None,
    old_steps: int | None = None,
    new_mean: float | None = None,
    new_n: int | None = None,
    new_steps: int | None = None,
    slope: Annotated[str | None, typer.Option(help="loss per step, or as 0.0045/100; default that")] = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """The benchmark's rules on numbers given as arguments, on standard input, or taken from an experiment's arm."""
    from harness.errors import near
    from reports.stats import rules

    try:
        if rule == "track3-pair":
            pair = dict(zip(PAIR, (old_mean, old_n, old_steps, new_mean, new_n, new_steps), strict=True))
            missing = [f"--{k.replace('_', '-')}" for k, v in pair.items() if v is None]
            if missing:
                raise UserError(f"significance --rule track3-pair: needs {', '.join(missing)}")
            if values or arm is not None:
                raise UserError("significance --rule track3-pair: takes means and numbers of runs, no single losses")
            outcome = rules.track3_pair(**pair, slope=rules.parse_slope(slope) if slope is not None else rules.SLOPE_PER_STEP)  # type: ignore[arg-type]
        elif rule in rules.SINGLE:
            outcome = rules.SINGLE[rule](_losses(values, arm, results), target)
        else:
            known = [*rules.SINGLE, "track3-pair"]
            raise UserError(f"unknown rule '{rule}': there is {', '.join(known)}{near(rule, known)}")
    except ValueError as error:
        raise UserError(f"significance: {error}") from None
    facts = {k: getattr(outcome, k) for k in RULE_KEYS}
    if json:
        print_json(facts)
    else:
        print_table([facts], digits=6)


def _losses(values: list[str] | None, arm: str | None, results: Path) -> list[float]:
    from reports.analysis.samples import final_losses
    from reports.stats import rules

    if arm is None:
        return rules.parse_numbers(" ".join(values) if values else sys.stdin.read())
    if not values or len(values) != 1:
        raise UserError("significance --arm: name one experiment: ablate significance EXP --arm ARM")
    losses, warnings = final_losses(load_for_report(values[0], results), arm)
    for warning in warnings:
        print(warning.text, file=sys.stderr)
    return losses
