"""Two trainer scripts against each other, as they are."""

import typer

from harness.cli import app
from harness.cli.ab_experiment import ab_experiment
from harness.cli.ab_options import AbOptions, check_options
from harness.cli.ab_table import AbVerdict, judge_scripts, print_verdict, verdict_mapping
from harness.cli.command import takes
from harness.cli.foreign import JUDGED, run_foreign, stop_if_stopped, tell_failed
from harness.cli.table import print_json

HELP = (
    "Two trainer scripts as they are, interleaved on this node, "
    "judged by the house table and the benchmark's rules."
)


@app.command(help=HELP)
@takes(AbOptions)
def ab(options: AbOptions) -> None:
    """Check, run what is missing, judge, print; exits with 1 where that is no pass."""
    check_options(options)
    experiment = ab_experiment(options)
    summary, planned, store = run_foreign(
        experiment,
        options.results,
        max_parallel=options.max_parallel,
        max_gpu_hours=options.max_gpu_hours,
        quiet=options.json,
    )
    stop_if_stopped(summary, experiment, planned, store)
    verdict = judge_scripts(
        experiment, options.results, options.target, no_report=options.no_report
    )
    n_failed = tell_failed(summary, planned, store, quiet=options.json)
    if options.json:
        print_json(verdict_mapping(verdict))
    else:
        print_verdict(verdict)
    if n_failed or _fails_on(verdict, options.fail_on):
        raise typer.Exit(1)


def _fails_on(verdict: AbVerdict, fail_on: str | None) -> bool:
    """Whether the loss or the time is judged so; nothing to judge is no pass."""
    if fail_on is None:
        return False
    verdicts = [c["verdict"] for c in verdict.comparisons if c["metric"] in JUDGED]
    return not verdicts or any(said.startswith(fail_on) for said in verdicts)
