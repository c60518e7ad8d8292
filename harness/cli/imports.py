"""Logs of the public benchmark brought in as runs."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app
from harness.cli.options import Json
from harness.cli.table import print_json, print_table

RESULTS = Path("results")


@app.command("import")
def import_(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...|DIR", help="logs, or folders: one arm per folder")],
    experiment: Annotated[str, typer.Option("--experiment", help="the name to import under")],
    arm: Annotated[str | None, typer.Option("--arm", help="one arm for everything instead of one per folder")] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", help="the arm to compare with; default: the first one")] = None,
    results: Annotated[Path, typer.Option("--results", help="the results folder")] = RESULTS,
    json: Json = False,
) -> None:
    """Bring in logs of the public benchmark, of all eras, as runs of an arm. Exit 1 if a file was refused; the rest come in."""
    from harness.foreign.imports import import_logs
    from harness.provenance.redact import redact
    from harness.store.store import Store

    command = redact(shlex.join(["ablate", *sys.argv[1:]]))
    done = import_logs(logs, store=Store.create(results), experiment=experiment, arm=arm, baseline=baseline, command=command)
    rows = done.plan.runs if done.plan else ()
    names = [arm.name for arm in done.plan.arms] if done.plan else []
    arms = [{"arm": name, "runs": sum(r.arm == name for r in rows)} for name in names]
    if json:
        facts = {
            "experiment": experiment,
            "baseline": done.plan.baseline if done.plan else None,
            "arms": arms,
            "imported": done.added,
        }
        print_json({**facts, "known": done.known, "copies": done.copies, "refused": done.refused})
    else:
        for path, other in done.copies.items():
            print(f"{_line(path)}: the same log as {_line(other)}: one run")
        for path, why in done.refused.items():
            print(f"{_line(path)}: refused: {why}")
        print_table(arms)
        if done.in_heads:
            print(f"{done.in_heads} logs hold code with lines that look like measurements: not counted")
        there = f"{done.known} there already, {len(done.copies)} copies, "
        print(f"{experiment}: {done.added} runs imported, {there}{len(done.refused)} files refused")
    raise typer.Exit(1 if done.refused else 0)


def _line(path: str) -> str:
    """A file's name as one printable line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in path)
