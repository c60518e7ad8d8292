"""Two trainer scripts against each other, as they are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import typer

from harness.cli import app
from harness.cli.ab_experiment import ab_experiment
from harness.cli.ab_name import NameTakenError
from harness.cli.ab_options import AbOptions, check_options
from harness.cli.ab_pool import borrowing, where_fresh_agree
from harness.cli.ab_table import judge_scripts, print_verdict, verdict_mapping
from harness.cli.ab_until import EXIT, Until, print_decision
from harness.cli.command import takes
from harness.cli.foreign import run_foreign, stop_if_stopped, tell_failed
from harness.cli.push import bring_in, sending
from harness.cli.table import print_json
from harness.cli.track import asked_trackers, track_beside
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.spec import PlannedRun
    from harness.runner.executor import Summary
    from harness.store.store import Store
    from reports.analysis.types import Comparisons

BLOCKS = 10  # without -n
HELP = (
    "Two trainer scripts or more as they are, interleaved on this node, "
    "judged by the house table and the benchmark's rules."
)


@app.command(help=HELP)
@takes(AbOptions)
def ab(options: AbOptions) -> None:
    """Check, run what is missing, judge, print; exits with 1 where that is no pass."""
    check_options(options)
    bring_in(options.push, options.results, pull=options.pull, quiet=options.json)
    if options.until is not None:
        judge_until(options)
    with sending(options.push, options.results, quiet=options.json):
        experiment, summary, planned, store = run_blocks(options)
    verdict, outcome = judge_scripts(
        experiment, options.results, options.target, no_report=options.no_report
    )
    n_failed = tell_failed(summary, planned, store, quiet=options.json)
    if options.json:
        print_json(verdict_mapping(verdict))
    else:
        print_verdict(verdict)
    if n_failed or _fails_on(outcome, verdict.judged, options.fail_on):
        raise typer.Exit(1)


def run_blocks(
    options: AbOptions,
) -> "tuple[ForeignExperiment, Summary, list[PlannedRun], Store]":
    """-n blocks of both scripts, under the next name where another call takes theirs."""
    try:
        return _run_blocks(options, ab_experiment(options))
    except NameTakenError:
        return run_blocks(options)


def _run_blocks(
    options: AbOptions, experiment: "ForeignExperiment"
) -> "tuple[ForeignExperiment, Summary, list[PlannedRun], Store]":
    from harness.foreign.turns import with_blocks

    n = options.n or BLOCKS
    if options.pool:
        experiment, _ = where_fresh_agree(borrowing(experiment, options), options, n=n)
    experiment = with_blocks(experiment, options.results, n=n, fresh=options.fresh)
    trackers = asked_trackers(options.log_to)
    track_beside(trackers, experiment.name, options.results, quiet=options.json)
    summary, planned, store = run_foreign(experiment, options.call())
    stop_if_stopped(summary, experiment, planned, store)
    return experiment, summary, planned, store


def judge_until(options: AbOptions) -> NoReturn:
    """`--until decided`: exits as it ended."""
    if len(options.new) > 1:
        raise UserError(f"--until {options.until}: judges one NEW, not {len(options.new)}: name it")
    until = Until.of(options, ab_experiment(options))
    try:
        with sending(options.push, options.results, quiet=options.json):
            experiment, summary, planned, store = until.run()
    except NameTakenError:
        judge_until(options)
    verdict, outcomes = judge_scripts(
        experiment, options.results, options.target, no_report=options.no_report
    )
    n_failed = tell_failed(summary, planned, store, quiet=options.json)
    decision = until.decision(experiment, planned, outcomes, n_failed)
    if options.json:
        print_json({**verdict_mapping(verdict), "decision": decision.to_mapping()})
    else:
        print_verdict(verdict)
        print_decision(decision)
    raise typer.Exit(EXIT[decision.outcome])


def _fails_on(outcome: "Comparisons", metrics: Sequence[str], word: str | None) -> bool:
    """Whether one of the metrics is judged so; nothing to judge is no pass."""
    if word is None:
        return False
    judged = [c for c in outcome.comparisons.values() if c.metric in metrics]
    return not judged or any(c.verdict.startswith(word) for c in judged)
