"""What comes out: the report, its verification, the verdicts as a table, exports, the benchmark's rules."""

import sys
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
    from reports import load

    plan = plan_of(name, results)
    try:
        save_plan(results, count_look(results, plan) if look else plan)
    except OSError:
        if not (results / "experiments" / plan["name"]).is_dir():
            raise  # else a read-only folder can still be read
    try:
        return load(plan["name"], results=results, accept_stale=accept_stale)
    except ValueError as error:
        raise UserError(str(error)) from None


@app.command()
def report(
    experiments: Annotated[list[str], typer.Argument(metavar="EXP...")],
    out: Annotated[Path | None, typer.Option("-o", help="the page; default results/experiments/EXP/report.html")] = None,
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
) -> None:
    """Write the HTML report from results alone; while runs are still going too."""
    print(write_page(experiments, results, out=out, accept_stale=accept_stale))


def write_page(names: Sequence[str], results: Path, *, out: Path | None = None, accept_stale: bool = False) -> Path:
    from harness.plan import read_plan
    from reports.page import write_report

    loaded = [load_for_report(name, results, accept_stale, look=True) for name in names]
    there = {e.name for e in loaded}
    grids = [g for e in loaded if (g := e.plan.get("grid")) and g not in there and read_plan(results, g)]
    loaded += [load_for_report(grid, results, accept_stale, look=True) for grid in grids]
    return write_report(loaded, out or results / "experiments" / loaded[0].name / "report.html")


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
