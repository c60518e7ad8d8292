"""What comes out: the report, its verification, exports."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.command import takes
from harness.cli.lookup import compared, load_for_report, name_of
from harness.cli.options import RESULTS, AcceptStale, Results, Verify
from harness.errors import UserError, visible
from harness.run.plural import plural

if TYPE_CHECKING:
    from reports.inputs.experiment import Experiment

PAGES = (".html", ".htm", "")  # what a report's file may be called
UNFINISHED = ("pending", "running", "interrupted", "preempted")
WATCHED = ("metrics.jsonl", "attempts.jsonl", "result.json")  # of a run: what a page is made from


@app.command()
def report(
    experiments: Annotated[list[str], typer.Argument(metavar="EXP...")],
    out: Annotated[
        Path | None,
        typer.Option("-o", help="the page; default results/experiments/EXP/report.html"),
    ] = None,
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
    verify: Verify = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="write it again whenever a run gets further, until all have ended"
        ),
    ] = False,
    every: Annotated[
        float,
        typer.Option("--every", help="with --watch: seconds between looks into the folder"),
    ] = 5.0,
) -> None:
    """Write the HTML report from results alone; while runs are still going too."""
    if out is not None and out.suffix.lower() not in PAGES:
        raise UserError(
            f"-o {out}: a report is one HTML page, so name it {out.with_suffix('.html').name}; "
            "a browser prints it to PDF"
        )
    if every <= 0:
        raise UserError(f"--every {every:g}: must be a positive number of seconds")
    if not watch:
        loaded = load_page(experiments, results, accept_stale, verify=verify)
        print(write_loaded(loaded, results, out))
        return
    seen: object = None
    while True:
        now = watched_files(experiments, results)
        if now != seen:
            loaded = load_page(experiments, results, accept_stale, verify=verify)
            seen = now
            to_come = sum(int(e.runs["status"].isin(UNFINISHED).sum()) for e in loaded)
            if not to_come:
                print(write_loaded(loaded, results, out), flush=True)
                return
            page = write_loaded(loaded, results, out, refresh_s=every)
            print(f"{page}: {plural(to_come, 'run')} to come", flush=True)
        time.sleep(every)


def watched_files(names: Sequence[str], results: Path) -> list[tuple[str, int]]:
    """How far the runs of some experiments are: every file of theirs, with its time."""
    from harness.store.plans import read_plan

    files = []
    for name in names:
        plan = read_plan(results, name_of(name))
        if plan is None:
            continue
        for run in plan.runs:
            folder = results / "runs" / run.run_id
            files += [folder / file for file in WATCHED]
    return [(str(file), file.stat().st_mtime_ns) for file in files if file.exists()]


def write_page(
    names: Sequence[str], results: Path, *, out: Path | None = None, accept_stale: bool = False
) -> Path:
    return write_loaded(load_page(names, results, accept_stale), results, out)


def write_loaded(
    loaded: "Sequence[Experiment]",
    results: Path,
    out: Path | None,
    *,
    refresh_s: float | None = None,
) -> Path:
    """The page of experiments, at `out` or beside the first one's plan; returns where.

    refresh_s: the page loads itself again so often.
    """
    from reports.analysis.samples import usable
    from reports.page.write import write_report

    try:
        for experiment in loaded:
            usable(experiment)
    except ValueError as error:
        raise UserError(str(error)) from None
    if out is None:
        out = results / "experiments" / loaded[0].name / "report.html"
    return write_report(loaded, out, refresh_s=refresh_s, results=results)


def load_page(
    names: Sequence[str], results: Path, accept_stale: bool, *, verify: bool = False
) -> "list[Experiment]":
    """The experiments of a page, with the grids and rungs that chose their rates or points."""
    from harness.store.plans import read_plan

    load = partial(load_for_report, results=results, accept_stale=accept_stale, verify=verify)
    loaded = [load(name, look="report") for name in names]
    there = {experiment.name for experiment in loaded}
    for experiment in loaded:  # which grows: a rung was chosen by the one before it
        grid = experiment.plan.grid
        if grid and grid not in there and read_plan(results, grid):
            there.add(grid)
            loaded.append(load(grid, look="report"))
    return loaded


@app.command()
def figures(
    experiment: Annotated[str, typer.Argument(metavar="EXP")],
    out: Annotated[Path, typer.Option("-o", help="the folder to write them into")],
    narrow: Annotated[
        bool, typer.Option("--narrow", help="for a column of 3.5 inches, not for 8 inches")
    ] = False,
    results: Results = RESULTS,
    accept_stale: AcceptStale = False,
) -> None:
    """Every figure of the page as SVG, PDF and PNG."""
    from reports.paper.figures import write_figures

    if out.exists() and not out.is_dir():
        raise UserError(f"-o {out}: a file lies there; name a folder")
    loaded = load_for_report(experiment, results, accept_stale, look="figures")
    written = write_figures(loaded, compared(loaded), out, narrow=narrow, results=results)
    if len(written) == 1:
        raise UserError(f"{experiment}: nothing to draw yet, no run has finished")
    print(f"{out}: {len(written)} files, captions in {written[-1].name}")


@app.command(
    help=(
        "Recompute every number on a page from its embedded rows; exit 1 if one is not what the "
        "rows say."
    )
)
def verify(
    page: Annotated[Path, typer.Argument(metavar="REPORT")],
    results: Annotated[
        Path | None,
        typer.Option("--results", help="check every row's digest against this folder too"),
    ] = None,
) -> None:
    """Recompute every number on a page from its embedded rows."""
    from reports.verify.verify import verify as verify_page

    if not page.is_file():
        raise UserError(f"{page}: no such file; `ablate report EXP` writes one")
    try:
        problems = verify_page(page, results)
    except ValueError as error:
        raise UserError(str(error)) from None
    if not problems:
        print(
            f"{page}: every number and verdict follows from the embedded rows, and the whole page"
        )
        raise typer.Exit(0)
    for line in problems:
        print(visible(line))
    print(f"{len(problems)} problems")
    raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What `ablate export` is asked."""

    experiments: Annotated[list[str], typer.Argument(metavar="EXP...")]
    out: Annotated[Path, typer.Option("-o", help="FILE.csv or FILE.parquet")]
    curves: Annotated[
        bool, typer.Option("--curves", help="every validation point instead of every run")
    ] = False
    arms: Annotated[
        bool, typer.Option("--arms", help="every arm's statistics instead of every run")
    ] = False
    comparisons: Annotated[
        bool, typer.Option("--comparisons", help="every comparison instead of every run")
    ] = False
    results: Results = RESULTS
    accept_stale: AcceptStale = False
    verify: Verify = False


@app.command(help="Tidy table of runs, of validation points, of arms or of comparisons.")
@takes(ExportOptions)
def export(options: ExportOptions) -> None:
    """Tidy table of runs, of validation points, of arms or of comparisons."""
    from reports.analysis.tables import arm_table, comparison_table
    from reports.inputs.export import export as write_runs
    from reports.inputs.export import write_tables

    if options.curves + options.arms + options.comparisons > 1:
        raise UserError("export: --curves, --arms and --comparisons are different tables: name one")
    loaded = []
    for name in options.experiments:
        experiment = load_for_report(
            name, options.results, options.accept_stale, look="export", verify=options.verify
        )
        loaded.append(experiment)
    place, results = options.out, options.results
    try:
        if options.arms:
            tables = [arm_table(e.name, compared(e)) for e in loaded]
            out = write_tables(tables, place, results=results)
        elif options.comparisons:
            tables = [comparison_table(e.name, compared(e)) for e in loaded]
            out = write_tables(tables, place, results=results)
        else:
            out = write_runs(loaded, place, curves=options.curves, results=results)
    except ValueError as error:
        raise UserError(str(error)) from None
    print(out)
