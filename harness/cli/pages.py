"""What comes out: the report, its verification, the verdicts as a table, exports, the benchmark's rules."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import app
from harness.cli.catalogue import Json
from harness.cli.table import print_json, print_table
from harness.errors import UserError

if TYPE_CHECKING:
    from reports.types import Comparison, Experiment

Results = Annotated[Path, typer.Option("--results", help="the results folder")]
AcceptStale = Annotated[bool, typer.Option("--accept-stale", help="count runs of an older source; the page says so")]
RESULTS, PUBLISHED = Path("results"), "published/"
UNFINISHED = ("pending", "running", "interrupted", "preempted")
COMPARE_SCHEMA = 1


def load_for_report(name: str, results: Path, accept_stale: bool = False, *, look: bool = False) -> "Experiment":
    """The experiment as the results folder holds it, stale runs known as such; `look` counts this as a look at its results.

    published/NAME is the benchmark's own evidence, which needs no results folder."""
    if name.startswith(PUBLISHED):
        from reports.published_pages import published_experiment

        try:
            return published_experiment(name.removeprefix(PUBLISHED))
        except ValueError as error:
            raise UserError(str(error)) from None
    from harness.cli.runs import plan_of
    from harness.plan import count_look, save_plan
    from harness.store import Store
    from reports import load

    plan = plan_of(name, results)
    try:
        save_plan(results, count_look(results, plan) if look else plan)
    except OSError:
        if not (results / "experiments" / plan["name"]).is_dir():
            raise  # else a read-only folder can still be read
    try:
        experiment = load(plan["name"], results=results, accept_stale=accept_stale)
    except ValueError as error:
        raise UserError(str(error)) from None
    runs, store = experiment.runs, Store(results)
    going = runs["status"] == "running"  # as the run's files say; whether its process lives the store knows
    runs.loc[going, "status"] = [store.state(str(r))["status"] for r in runs.loc[going, "run_id"]]
    return experiment


@app.command()
def report(
    experiments: Annotated[list[str], typer.Argument(metavar="EXP...")],
    out: Annotated[Path | None, typer.Option("-o", help="the page; default results/experiments/EXP/report.html")] = None,
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="write it again whenever a run gets further, until all have ended")
    ] = False,
    every: Annotated[float, typer.Option("--every", help="with --watch: seconds between looks into the folder")] = 5.0,
) -> None:
    """Write the HTML report from results alone; while runs are still going too."""
    if every <= 0:
        raise UserError(f"--every {every:g}: must be a positive number of seconds")
    if not watch:
        print(write_page(experiments, results, out=out, accept_stale=accept_stale))
        return
    seen: object = None
    while True:
        if (now := progress(experiments, results)) != seen:
            loaded, seen = load_page(experiments, results, accept_stale), now
            to_come = sum(int(e.runs["status"].isin(UNFINISHED).sum()) for e in loaded)
            page = write_loaded(loaded, results, out, refresh_s=every if to_come else None)
            print(f"{page}: {to_come} runs to come" if to_come else page, flush=True)
            if not to_come:
                return
        time.sleep(every)


def progress(names: Sequence[str], results: Path) -> list[tuple[str, int]]:
    """How far the runs of some experiments are: every file of theirs that a page is made from, with its time."""
    from harness.plan import read_plan

    plans = [read_plan(results, Path(name).stem if name.endswith((".yaml", ".yml")) else name) for name in names]
    folders = [results / "runs" / r["run_id"] for plan in plans for r in (plan or {"runs": []})["runs"]]
    files = [folder / name for folder in folders for name in ("metrics.jsonl", "attempts.jsonl", "result.json")]
    return [(str(f), f.stat().st_mtime_ns) for f in files if f.exists()]


def write_page(names: Sequence[str], results: Path, *, out: Path | None = None, accept_stale: bool = False) -> Path:
    return write_loaded(load_page(names, results, accept_stale), results, out)


def write_loaded(loaded: "Sequence[Experiment]", results: Path, out: Path | None, *, refresh_s: float | None = None) -> Path:
    from reports.page import write_report

    return write_report(loaded, out or results / "experiments" / loaded[0].name / "report.html", refresh_s=refresh_s)


def load_page(names: Sequence[str], results: Path, accept_stale: bool) -> "list[Experiment]":
    """The experiments of a page, with the rate grids that retuned ones were chosen from."""
    from harness.plan import read_plan

    loaded = [load_for_report(name, results, accept_stale, look=True) for name in names]
    there = {e.name for e in loaded}
    grids = [g for e in loaded if (g := e.plan.get("grid")) and g not in there and read_plan(results, g)]
    return loaded + [load_for_report(grid, results, accept_stale, look=True) for grid in grids]


@app.command()
def verify(
    page: Annotated[Path, typer.Argument(metavar="REPORT")],
    results: Annotated[Path | None, typer.Option("--results", help="check every row's digest against this folder too")] = None,
) -> None:
    """Recompute every number on a page from its embedded rows; exit 1 if one is not what the rows say."""
    from reports.verify import verify as verify_page

    if not page.is_file():
        raise UserError(f"{page}: no such file; `ablate report EXP` writes one")
    try:
        problems = verify_page(page, results)
    except ValueError as error:
        raise UserError(str(error)) from None
    for line in problems:
        print(line)
    print(f"{len(problems)} problems" if problems else f"{page}: every number and verdict follows from the embedded rows")
    raise typer.Exit(1 if problems else 0)


@app.command()
def compare(
    experiment: Annotated[str, typer.Argument(metavar="EXP")],
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", help="exit 1 if any arm's primary verdict is this, e.g. slower")
    ] = None,
    json: Json = False,
) -> None:
    """The verdicts as a table."""
    known = load_for_report(experiment, results, accept_stale, look=True)
    outcome = known.comparisons()
    rows = [row(c) for c in outcome.comparisons.values()]
    if json:
        print_json(
            {
                "schema": COMPARE_SCHEMA,
                "experiment": known.name,
                "baseline": outcome.baseline,
                "primary": outcome.primary,
                "notes": list(outcome.notes),
                "comparisons": rows,
            }
        )
    else:
        print_table(rows, ["arm", "metric", "delta", "low", "high", "p", "n", "verdict", "next_action"])
        for note in outcome.notes:
            print(note)
    words = [r["verdict"] for r in rows if r["metric"] == outcome.primary]
    if fail_on is not None and any(w.startswith(fail_on) for w in words):
        raise typer.Exit(1)


def row(c: "Comparison") -> dict[str, Any]:
    """One comparison as scripts read it."""
    return {
        "arm": c.arm,
        "baseline": c.baseline,
        "metric": c.metric,
        "unit": c.unit,
        "estimand": c.estimand,
        "delta": c.delta,
        "low": c.low,
        "high": c.high,
        "ratio": c.ratio,
        "p": c.p,
        "n": c.n_arm,
        "n_baseline": c.n_baseline,
        "looks": c.looks,
        "exploratory": c.exploratory,
        "method": c.method,
        "verdict": c.verdict,
        "next_action": c.next_action,
        "more_seeds": c.more_seeds,
        "warnings": [w.name.lower() for w in c.warnings],
    }


@app.command()
def export(
    experiments: Annotated[list[str], typer.Argument(metavar="EXP...")],
    out: Annotated[Path, typer.Option("-o", help="FILE.csv or FILE.parquet")],
    curves: Annotated[bool, typer.Option("--curves", help="every validation point instead of every run")] = False,
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
) -> None:
    """Tidy table of runs, or of validation points."""
    from reports.export import export as write_table

    try:
        print(write_table([load_for_report(e, results, accept_stale) for e in experiments], out, curves=curves))
    except ValueError as error:
        raise UserError(str(error)) from None


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
    from reports import rules

    try:
        if rule == "track3-pair":
            pair = {
                "old_mean": old_mean,
                "old_n": old_n,
                "old_steps": old_steps,
                "new_mean": new_mean,
                "new_n": new_n,
                "new_steps": new_steps,
            }
            missing = [f"--{k.replace('_', '-')}" for k, v in pair.items() if v is None]
            if missing:
                raise UserError(f"significance --rule track3-pair: needs {', '.join(missing)}")
            outcome = rules.track3_pair(**pair, slope=rules.parse_slope(slope) if slope is not None else rules.SLOPE_PER_STEP)  # type: ignore[arg-type]
        elif rule in ("track1", "track3"):
            losses = (
                arm_losses(values, arm, results)
                if arm is not None
                else rules.parse_numbers(" ".join(values) if values else sys.stdin.read())
            )
            outcome = {"track1": rules.track1, "track3": rules.track3}[rule](losses, target)
        else:
            raise UserError(f"unknown rule '{rule}': there is track1, track3 and track3-pair")
    except ValueError as error:
        raise UserError(f"significance: {error}") from None
    keys = ("rule", "n", "mean", "sd", "statistic", "p", "threshold", "significant")
    facts = {k: getattr(outcome, k) for k in keys}
    if json:
        print_json(facts)
    else:
        print_table([facts])


def arm_losses(values: list[str] | None, arm: str, results: Path) -> list[float]:
    """Final losses of an arm's finished runs."""
    if not values or len(values) != 1:
        raise UserError("significance --arm: name one experiment: ablate significance EXP --arm ARM")
    runs = load_for_report(values[0], results).runs
    if arm not in set(runs["arm"]):
        raise UserError(f"experiment '{values[0]}' has no arm '{arm}'; there is: {', '.join(dict.fromkeys(runs['arm']))}")
    chosen = runs[(runs["arm"] == arm) & (runs["status"] == "finished")]
    return [float(v) for v in chosen["val_loss"]]
