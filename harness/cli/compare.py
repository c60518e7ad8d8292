"""The verdicts in the terminal: our own comparisons, and the benchmark's rules."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.command import takes
from harness.cli.complete import say_bits
from harness.cli.lookup import compared, load_for_report
from harness.cli.options import RESULTS, AcceptStale, Json, Results, Verify
from harness.cli.table import print_json, print_table
from harness.errors import UserError, near
from harness.run.document import Cells, Content, Document

if TYPE_CHECKING:
    from reports.analysis.cautions import Caution
    from reports.analysis.types import Comparison, Comparisons
    from reports.inputs.experiment import Experiment
    from reports.stats.rules import RuleResult

COMPARE_SCHEMA = 1  # of what `compare --json` prints
PAIR_RULE = "track3-pair"
PAIR = ("old_mean", "old_n", "old_steps", "new_mean", "new_n", "new_steps")
RULE_KEYS = ("rule", "n", "mean", "sd", "statistic", "p", "threshold", "significant")
NAMED = 8  # arms that a line on many of them names


@app.command()
def compare(
    experiment: Annotated[str, typer.Argument(metavar="EXP")],
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
    verify: Verify = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on", help="exit 1 if any arm's verdict is this, e.g. slower", metavar="WORD"
        ),
    ] = None,
    json: Json = False,
    written: Annotated[
        str | None,
        typer.Option("--format", help="the page's table: markdown, latex or csv"),
    ] = None,
) -> None:
    """The verdicts as a table."""
    from reports.analysis.comparison_columns import COMPARISON_COLUMNS
    from reports.analysis.optimum import optima
    from reports.analysis.recipe import Recipe
    from reports.analysis.recipe_columns import RECIPE_COLUMNS
    from reports.inputs.columns import json_row, terminal_names
    from reports.page.by_design import Confirmation
    from reports.page.confirmed import asked_again
    from reports.page.selection import halving_answer

    check_word(fail_on)
    check_format(written, json=json)
    loaded = load_for_report(experiment, results, accept_stale, look="compare", verify=verify)
    outcome = compared(loaded)
    selected = halving_answer(loaded, outcome)
    if selected:
        outcome = replace(outcome, notes=(selected, *outcome.notes))
    confirmed = [Confirmation.of(other) for other in loaded.confirmations]
    again = [said.sentence for said in asked_again(loaded, confirmed)]
    hours = hours_per_run(loaded)
    rows = [row(c, hours_per_run=hours) for c in outcome.comparisons.values()]
    if json:
        recipe = json_row(RECIPE_COLUMNS, Recipe.of(loaded, outcome.budget))
        lowest = [optimum.to_mapping() for optimum in optima(loaded)]
        told = comparisons_json(loaded.name, outcome, rows, recipe)
        print_json({**told, "asked_again": again, "lowest": lowest})
    elif written is not None:
        print(in_format(written, loaded, outcome))
    else:
        print_table(rows, terminal_names(COMPARISON_COLUMNS))
        if outcome.increments:
            naming = outcome.own_words
            print(f"each {naming.arm} against {naming.before}:")
            rungs = [row(c, hours_per_run=hours) for c in outcome.increments.values()]
            print_table(rungs, [*terminal_names(COMPARISON_COLUMNS), "baseline"])
        say_bits(loaded, outcome)
        for note in (*again, *outcome.notes, *doubts(outcome)):
            print(note)
    if fail_on is not None and is_said(fail_on, outcome):
        raise typer.Exit(1)


def check_format(written: str | None, *, json: bool) -> None:
    """Refuse a --format that there is not, and one beside --json."""
    from reports.paper.table import PAPER_FORMATS

    if written is None:
        return
    if json:
        raise UserError("compare: --json and --format are different outputs: name one")
    if written not in PAPER_FORMATS:
        names = [*PAPER_FORMATS]
        raise UserError(f"--format {written}: there is {', '.join(names)}{near(written, names)}")


def in_format(written: str, loaded: "Experiment", outcome: "Comparisons") -> str:
    """The page's table for a paper."""
    from reports.paper.table import PAPER_FORMATS, PaperTable

    return PAPER_FORMATS[written](PaperTable.of(loaded, outcome))


def comparisons_json(
    name: str,
    outcome: "Comparisons",
    rows: Sequence[Cells],
    recipe: Document,
) -> Content:
    """What --json prints of an experiment; recipe: what was trained."""
    from reports.analysis.tables import tokens_rows

    warnings = dict.fromkeys([*outcome.warnings, *of_times(outcome)])
    in_tokens = tokens_rows(outcome)
    return {
        "schema": COMPARE_SCHEMA,
        "experiment": name,
        "baseline": outcome.baseline,
        "primary": outcome.primary,
        "looks": outcome.looks,
        "anytime": outcome.anytime,
        "budget": outcome.budget,
        "recipe": recipe,
        "notes": list(outcome.notes),
        "warnings": [warning.name.lower() for warning in warnings],
        "comparisons": rows,
        "increments": [row(c) for c in outcome.increments.values()],
        **({"in_tokens": in_tokens} if in_tokens else {}),
    }


def of_times(outcome: "Comparisons") -> dict["Caution", list[str]]:
    """What is doubtful about an arm's time to target, with the arms.

    A comparison of that time may be missing for that very reason.
    """
    arms_of: dict[Caution, list[str]] = {}
    for arm, time in outcome.times.items():
        for warning in time.warnings:
            arms_of.setdefault(warning, []).append(arm)
    return arms_of


def few_of(names: "Sequence[str]") -> str:
    """Names in a line that can be read, however many there are."""
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def doubts(outcome: "Comparisons") -> list[str]:
    """Every warning as a sentence; one that is not about the whole experiment names its arms."""
    arms_of = of_times(outcome)
    for c in outcome.comparisons.values():
        for warning in c.warnings:
            arms_of.setdefault(warning, []).append(c.arm)
    sentences = [warning.text for warning in outcome.warnings]
    for warning, arms in arms_of.items():
        if warning not in outcome.warnings:
            named = few_of(list(dict.fromkeys(arms)))
            sentences.append(f"{named}: {warning.text}")
    return sentences


def row(c: "Comparison", *, hours_per_run: float | None = None) -> Cells:
    """One comparison as scripts read it."""
    from reports.analysis.comparison_columns import COMPARISON_COLUMNS, next_cost
    from reports.inputs.columns import json_row

    return json_row(COMPARISON_COLUMNS, c) | {"next_cost": next_cost(c, hours_per_run)}


def hours_per_run(experiment: "Experiment") -> float | None:
    """Mean wall time of the finished runs, in hours of the slot they had; None before one is."""
    from statistics import fmean

    seconds = []
    for result in experiment.results.values():
        taken = (result.wall or {}).get("total_s")
        if result.status == "finished" and taken:
            seconds.append(float(taken))
    if not seconds:
        return None
    return fmean(seconds) / 3600


def check_word(word: str | None) -> None:
    """Refuse a --fail-on that no verdict begins with."""
    from reports.stats.verdicts import VERDICTS

    if word is None or any(verdict.startswith(word) for verdict in VERDICTS):
        return
    raise UserError(
        f"--fail-on {word}: no verdict begins so; there is: "
        f"{', '.join(VERDICTS)}{near(word, VERDICTS)}"
    )


def is_said(word: str, outcome: "Comparisons") -> bool:
    """Whether a verdict that --fail-on looks at begins with the word.

    It looks at the primary metric's, or where that never says `word`, at those that can say it.
    """
    from reports.stats.verdicts import WORDS, words_of

    metrics = [outcome.primary]
    if word not in words_of(outcome.primary):
        every_metric = (*outcome.own, *WORDS)
        metrics = [metric for metric in every_metric if word in words_of(metric)] or metrics
    judged = [c for c in outcome.comparisons.values() if c.metric in metrics]
    return any(c.verdict.startswith(word) for c in judged)


@dataclass(frozen=True, kw_only=True)
class SignificanceOptions:
    """What `ablate significance` is asked."""

    values: Annotated[
        list[str] | None,
        typer.Argument(
            help="final losses, EXP with --arm, or a folder of logs; none: from standard input"
        ),
    ] = None
    rule: Annotated[str, typer.Option(help="track1, track3 or track3-pair")] = "track1"
    target: Annotated[float, typer.Option(help="the benchmark's loss")] = 3.28
    arm: Annotated[str | None, typer.Option(help="take the final losses of this arm of EXP")] = None
    old_mean: float | None = None
    old_n: int | None = None
    old_steps: int | None = None
    new_mean: float | None = None
    new_n: int | None = None
    new_steps: int | None = None
    slope: Annotated[
        str | None, typer.Option(help="loss per step, or as 0.0045/100; default that")
    ] = None
    results: Results = RESULTS
    json: Json = False


@app.command(
    help=(
        "The benchmark's rules on numbers given as arguments, on standard input, or taken from an "
        "experiment's arm."
    )
)
@takes(SignificanceOptions)
def significance(options: SignificanceOptions) -> None:
    """The benchmark's rules on numbers that were given, or on those of an experiment's arm."""
    from reports.stats import rules

    folder = folder_of(options)
    if folder is not None and options.rule in rules.SINGLE:
        judge_folder(folder, options)
    try:
        if options.rule == PAIR_RULE:
            outcome = judge_pair(options)
        elif options.rule in rules.SINGLE:
            outcome = rules.SINGLE[options.rule](losses_of(options), options.target)
        else:
            names = [*rules.SINGLE, PAIR_RULE]
            raise UserError(
                f"unknown rule '{options.rule}': there is {', '.join(names)}"
                f"{near(options.rule, names)}"
            )
    except ValueError as error:
        raise UserError(f"significance: {error}") from None
    facts = {key: getattr(outcome, key) for key in RULE_KEYS}
    if options.json:
        print_json(facts)
    else:
        print_table([facts], digits=6)


def folder_of(options: SignificanceOptions) -> Path | None:
    """The folder of logs that is asked about, None where losses or an arm are."""
    if options.arm is not None or options.values is None or len(options.values) != 1:
        return None
    path = Path(options.values[0])
    return path if path.is_dir() else None


def judge_folder(folder: Path, options: SignificanceOptions) -> None:
    """The rule on every arm of a folder of logs, and the p values that its page claims.

    Exit 1 where a claim is borne out by none."""
    from harness.cli.significance_folder import check_folder
    from reports.stats import rules

    samples, missing = check_folder(folder, rules.SINGLE[options.rule], options.target)
    rows = list(map(asdict, samples))
    if options.json:
        print_json({"samples": rows, "not_borne_out": missing})
    else:
        print_table(rows, digits=6)
        for line in missing:
            print(line)
    raise typer.Exit(1 if missing else 0)


def judge_pair(options: SignificanceOptions) -> "RuleResult":
    """The rule on means and numbers of runs; raises UserError where one is missing."""
    from reports.stats import rules

    pair = {name: getattr(options, name) for name in PAIR}
    missing = [f"--{name.replace('_', '-')}" for name in PAIR if pair[name] is None]
    if missing:
        raise UserError(f"significance --rule {PAIR_RULE}: needs {', '.join(missing)}")
    if options.values or options.arm is not None:
        raise UserError(
            f"significance --rule {PAIR_RULE}: takes means and numbers of runs, no single losses"
        )
    slope = rules.SLOPE_PER_STEP
    if options.slope is not None:
        slope = rules.parse_slope(options.slope)
    return rules.track3_pair(**pair, slope=slope)


def losses_of(options: SignificanceOptions) -> list[float]:
    """The losses given, read from standard input, or those of an experiment's arm."""
    from reports.analysis.samples import final_losses
    from reports.stats import rules

    values = options.values or []
    if options.arm is None:
        if values:
            return rules.parse_numbers(" ".join(values))
        return rules.parse_numbers(sys.stdin.read())
    if len(values) != 1:
        raise UserError(
            "significance --arm: name one experiment: ablate significance EXP --arm ARM"
        )
    losses, warnings = final_losses(load_for_report(values[0], options.results), options.arm)
    for warning in warnings:
        print(warning.text, file=sys.stderr)
    return losses
