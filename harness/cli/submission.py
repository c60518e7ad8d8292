"""What leaves the house: a record's pull request from an arm's runs."""

import difflib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app
from harness.cli.lookup import PUBLISHED, load_for_report
from harness.cli.options import RESULTS, AcceptStale, Json, Results
from harness.cli.table import print_json, print_table
from harness.errors import UserError


@app.command(
    help=(
        "Write what a record pull request needs, and say which of the benchmark's rules the runs "
        "meet."
    )
)
def submission(
    experiment: Annotated[str, typer.Argument(metavar="EXP")],
    arm: Annotated[str, typer.Option(help="the arm to submit")],
    out: Annotated[Path, typer.Option("-o", help="the folder to write; it must be empty or new")],
    target: Annotated[float, typer.Option(help="the benchmark's loss")] = 3.28,
    systems_only: Annotated[
        bool,
        typer.Option("--systems-only", help="the arm leaves the learning as it is: waives the p"),
    ] = False,
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
    json: Json = False,
) -> None:
    """Write what a record pull request needs, and say which rules the runs meet."""
    from harness.provenance.redact import redact
    from reports.submission.submission import write_submission

    if experiment.startswith(PUBLISHED):
        raise UserError(
            f"submission {experiment}: published runs are others' own; name an experiment of yours"
        )
    loaded = load_for_report(experiment, results, accept_stale)
    check_arm(arm, loaded.plan.by_arm, experiment)
    try:
        checks = write_submission(
            loaded,
            arm,
            out,
            results=results,
            redact=redact,
            target=target,
            systems_only=systems_only,
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    rows = [{"rule": c.rule, "verdict": c.said, "reason": c.reason} for c in checks]
    if json:
        print_json({"folder": str(out), "rules": rows})
    else:
        print_table(rows)
        print(out)


def check_arm(arm: str, arms: Collection[str], experiment: str) -> None:
    """Refuse an arm that the experiment has not."""
    if arm in arms:
        return
    hint = f"there is: {', '.join(arms)}"
    near = difflib.get_close_matches(arm, arms, 1)
    if near:
        hint = f"did you mean '{near[0]}'?"
    raise UserError(f"experiment '{experiment}' has no arm '{arm}'; {hint}")
