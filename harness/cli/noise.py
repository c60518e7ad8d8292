"""The constants of noise, fitted again from imported runs."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.options import RESULTS, Results
from harness.cli.table import print_table
from harness.errors import UserError
from harness.run.document import Cells

if TYPE_CHECKING:
    from reports.analysis.noise_fit import NoiseFit
    from reports.inputs.noise import BenchmarkNoise, HistorySlope


@app.command()
def noise(
    experiment: Annotated[
        str | None,
        typer.Argument(metavar="[EXP]", help="imported logs; default: the published figures"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="the tables of figures that `atlas --data` wrote"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", help="write the constants; default: print them")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="DATE", help="the slope is of pairs up to here; default: as now"
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="what the runs are, in words")
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Fit the noise of losses by era, the slope of steps, and the noise between nodes."""
    from reports.analysis.noise_fit import fit_noise
    from reports.inputs.files import write_page
    from reports.inputs.history import HISTORY, published_runs
    from reports.inputs.noise import TRACK, benchmark_noise, noise_text

    was = benchmark_noise()
    try:
        if until is not None:
            date.fromisoformat(until)
        if experiment is not None:
            rows = _imported(experiment, results)
            said = source or f"{len(rows)} imported logs of {experiment}"
        else:
            rows = [row for row in published_runs(data or HISTORY) if row["track"] == TRACK]
            said = source or was.source
            if data is not None and source is None:  # the file's words are of the published figures
                said = f"{len(rows)} runs of the tables of figures in {data}"
        fit = fit_noise(
            rows,
            was,
            slope_until=until or was.slope_until,
            date=datetime.now(UTC).date().isoformat(),
            source=said,
        )
    except KeyError as error:
        raise UserError(
            f"{data or HISTORY}: its tables have no {error}: `ablate atlas CHECKOUT --data DIR`"
            " writes them anew"
        ) from None
    except ValueError as error:
        raise UserError(f"{experiment or data or HISTORY}: {error}") from None
    print_table(_pairs(fit))
    print()
    print_table(_changes(was, fit.noise), digits=5)
    if out is not None:
        print(write_page(out, noise_text(fit.noise)))


def _pairs(fit: "NoiseFit") -> list[Cells]:
    """The pairs of arms that were found; the slope is made of those that are used."""
    pairs: list[Cells] = []
    for one in fit.pairs:
        slope = one.pair.slope
        pairs.append(
            {
                "date": one.date,
                "shorter": one.shorter,
                "longer": one.longer,
                "slope": slope.value,
                "se": slope.se,
                "used": one.date <= fit.noise.slope_until,
            }
        )
    return pairs


def _imported(experiment: str, results: Path) -> list[Mapping[str, str]]:
    """The runs of imported logs as rows of figures."""
    from harness.foreign.history import runs_as_figures
    from harness.run.results import examine
    from harness.store.plans import read_plan

    plan = read_plan(results, experiment)
    if plan is None or not plan.imported:
        raise UserError(
            f"{experiment}: no imported logs of this name in {results}: "
            f"`ablate import DIR --experiment {experiment}`"
        )
    sound = []
    for run in plan.runs:
        result, wrong = examine(results / "runs" / run.run_id, run.run_id)
        if result is None or wrong:
            why = wrong or "it has no result"
            print(f"{run.arm}: run {run.run_id} is left out: {why}", file=sys.stderr)
        else:
            sound.append(run)
    rows: list[Mapping[str, str]] = []
    for row in runs_as_figures(experiment, results, replace(plan, runs=tuple(sound))):
        rows.append({name: str(value) for name, value in asdict(row).items()})
    return rows


def _changes(was: "BenchmarkNoise", now: "BenchmarkNoise") -> list[Cells]:
    """Every constant as it was and as it is now, with what it rests on."""
    rows: list[Cells] = []
    before = {era.name: era.sd for era in was.eras}
    priors = {era.name: era.prior_sd for era in was.eras}
    for era in now.eras:
        basis = f"{era.df} df, {era.n_runs} runs"
        rows.append(_change(f"sd of a loss, {era.name}", before.get(era.name), era.sd, basis))
        if era.prior_sd is not None:
            what, basis = f"sd of prior_noise, {era.name}", f"counts for {era.prior_df:g} df"
            rows.append(_change(what, priors.get(era.name), era.prior_sd, basis))
    slopes: list[tuple[str, HistorySlope | None, HistorySlope | None]] = [
        (f"slope up to {now.slope_until}", was.slope, now.slope),
        ("slope since then", was.slope_later, now.slope_later),
    ]
    for what, old, new in slopes:
        if new is not None:
            before_it = None if old is None else old.nats_per_log_step
            basis = f"se {new.se}, {new.n_pairs} pairs"
            rows.append(_change(what, before_it, new.nats_per_log_step, basis))
    nodes = now.nodes
    basis = f"{nodes.df} df, {nodes.n_programs} programs"
    rows.append(_change("sd of log time between nodes", was.nodes.sd, nodes.sd, basis))
    return rows


def _change(what: str, was: float | None, now: float, basis: str) -> Cells:
    return {"constant": what, "was": was, "now": now, "from": basis}
