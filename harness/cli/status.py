"""How runs stand: once, or watched from another terminal; and how to stop them."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.looks import note_looks, remember_look
from harness.cli.lookup import plan_of
from harness.cli.options import RESULTS, Exp, Json, Results, Verify
from harness.cli.progress import duration, wall_words
from harness.cli.table import print_json, print_table, text_table
from harness.errors import UserError
from harness.run.disturbed import disturbed_words
from harness.run.document import Content
from harness.run.plural import plural

if TYPE_CHECKING:
    from harness.store.state import RunState

COLUMNS = (
    "run",
    "status",
    "step",
    "steps",
    "val_loss",
    "train_time_s",
    "host",
    "attempt",
    "reason",
)
CANCEL_WAIT_S, CANCEL_LOOK_S = 60.0, 0.5  # a runner looks for the request a few times a second


@dataclass(frozen=True, kw_only=True)
class StateRow:
    """A run with its place in an experiment, where one was named, and its state."""

    run: str
    state: "RunState"
    arm: str | None = None
    seed: int | None = None
    role: str | None = None

    def cells(self) -> Content:
        place = {"arm": self.arm, "seed": self.seed, "role": self.role, "run": self.run}
        return {**place, **vars(self.state)}


def state_rows(experiment: str | None, results: Path) -> list[StateRow]:
    """Every run of an experiment, or of the folder, with its state."""
    from harness.store.plans import stale_runs
    from harness.store.store import Store

    if not (results / "runs").is_dir():
        raise UserError(
            f"results folder {results}: no runs here; `ablate run EXP` makes some, or name another"
            " with --results"
        )
    store = Store(results)
    if experiment is None:
        states = dict(store.states())
        note_looks(results, states)
        return [StateRow(run=run_id, state=in_words(state)) for run_id, state in states.items()]
    plan = plan_of(experiment, results)
    remember_look(plan, results, "status")
    stale, why = stale_runs(results, plan)
    rows = []
    for run in plan.runs:
        state = in_words(store.state(run.run_id))
        if run.run_id in stale and state.status == "pending":
            state = replace(state, reason=why)
        row = StateRow(run=run.run_id, state=state, arm=run.arm, seed=run.seed, role=run.role)
        rows.append(row)
    return rows


def in_words(state: "RunState") -> "RunState":
    """The state with what disturbed the run's time as its reason, where it has no other."""
    return replace(state, reason=state.reason or disturbed_words(state.disturbed))


def cells_of(rows: Sequence[StateRow]) -> list[Content]:
    return [row.cells() for row in rows]


def summary(rows: Sequence[StateRow]) -> str:
    """How many runs are in which state, and how long the rest takes.

    Then where the wall time of finished ones went.
    """
    counts = Counter(row.state.status for row in rows)
    walls = [row.state.wall for row in rows if row.state.wall]
    n_left = counts["running"] + counts["pending"]
    totals_s = [wall["total_s"] for wall in walls if wall.get("total_s")]
    line = ", ".join(f"{n} {status}" for status, n in counts.most_common()) or "no runs"
    if n_left and totals_s:
        mean_s = sum(totals_s) / len(totals_s)
        line += f"; about {duration(mean_s * n_left / max(1, counts['running']))} left"
    if walls:
        line += f"\nwall time: {wall_words(walls)}"
    return line


@app.command()
def status(
    experiment: Annotated[str | None, typer.Argument(metavar="[EXP]")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="look again and again, until every run has ended")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="S", help="seconds between two looks of --watch")
    ] = 2.0,
    results: Results = RESULTS,
    json: Json = False,
    verify: Verify = False,
) -> None:
    """Every run: state, step, loss, time, host, attempts."""
    if every <= 0:
        raise UserError(f"--every {every:g}: must be a positive number of seconds")
    rows, shown = state_rows(experiment, results), ""
    if verify:
        name_unsound(experiment, results)
    columns = list(COLUMNS)
    if experiment:
        columns = ["arm", "seed", "role", *COLUMNS]
    while watch:
        if sys.stdout.isatty():
            print(
                f"\033[H\033[2J{text_table(cells_of(rows), columns)}\n{summary(rows)}", flush=True
            )
        elif summary(rows) != shown:  # a log: a line when something changed
            shown = summary(rows)
            print(shown.splitlines()[0], flush=True)
        if all(row.state.status not in ("running", "pending") for row in rows):
            return
        time.sleep(every)
        rows = state_rows(experiment, results)
    if json:
        print_json([{c: cells[c] for c in (*columns, "wall")} for cells in cells_of(rows)])
    else:
        print_table(cells_of(rows), columns)
        print(summary(rows))
        for line in retired_words(experiment, results):
            print(line)


def name_unsound(experiment: str | None, results: Path) -> None:
    """Say on standard error what is not sound of an experiment, or of all of the folder's."""
    from harness.store.deep import wrong_in
    from harness.store.plans import readable_plans

    lines: list[str] = []
    if experiment is not None:
        lines += wrong_in(results, plan_of(experiment, results))
    else:
        for _, plan, wrong in readable_plans(results):
            lines += [wrong] if plan is None else wrong_in(results, plan)
    for line in dict.fromkeys(lines):
        print(line, file=sys.stderr)


def retired_words(experiment: str | None, results: Path) -> list[str]:
    """The places that were given no more runs of an experiment, in words."""
    from harness.run.retired import read_retired
    from harness.store.plans import folder

    if experiment is None:
        return []
    place = folder(results, plan_of(experiment, results).name)
    return [retired.words for retired in read_retired(place)]


@app.command()
def cancel(experiment: Exp, results: Results = RESULTS) -> None:
    """Stop whoever runs an experiment, on this machine or another one; what is finished stays."""
    from harness.cli.executors import cancel_everywhere
    from harness.store import plans

    name = plan_of(experiment, results).name
    if plans.read_plan(results, name) is None:
        raise UserError(f"experiment '{name}' was never launched in {results}: nothing to cancel")
    plans.cancel(results, name)
    n_jobs = cancel_everywhere(results, name)
    if n_jobs:
        print(f"{n_jobs} jobs taken out of the queue")
    waited = time.monotonic() + CANCEL_WAIT_S
    n_running = count_running(name, results)
    while n_running and time.monotonic() < waited:
        time.sleep(CANCEL_LOOK_S)
        n_running = count_running(name, results)
    outcome = f"{plural(n_running, 'run')} not stopped yet" if n_running else "stopped"
    print(f"{name}: {outcome}: {summary(state_rows(name, results)).splitlines()[0]}")
    raise typer.Exit(1 if n_running else 0)


def count_running(experiment: str, results: Path) -> int:
    """How many of an experiment's runs are in progress."""
    return sum(row.state.status == "running" for row in state_rows(experiment, results))
