"""Logs of the public benchmark brought in as runs."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.options import RESULTS, Json, Results
from harness.cli.table import print_json, print_table
from harness.foreign.log_arms import ArmBy
from harness.run.document import Cells, Content
from harness.run.plural import plural

if TYPE_CHECKING:
    from harness.foreign.imports import Imported

Logs = Annotated[
    list[Path],
    typer.Argument(metavar="LOG...|DIR", help="logs, or folders: one arm per folder"),
]
ExperimentName = Annotated[str, typer.Option("--experiment", help="the name to import under")]
OneArm = Annotated[str | None, typer.Option("--arm", help="one arm for everything")]
ArmByOption = Annotated[
    ArmBy,
    typer.Option("--arm-by", help="what makes an arm: folder and program, or the folder alone"),
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", help="the arm to compare with; default: the first one"),
]


@app.command("import")
def import_(
    logs: Logs,
    experiment: ExperimentName,
    arm: OneArm = None,
    arm_by: ArmByOption = ArmBy.CODE,
    baseline: Baseline = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Bring in logs of the public benchmark, of all eras, as runs of an arm.
    Exit 1 if a file was refused; the rest come in."""
    from harness.foreign.imports import import_logs
    from harness.provenance.redact import redact
    from harness.store.store import Store

    imported = import_logs(
        logs,
        store=Store.create(results),
        experiment=experiment,
        arm=arm,
        arm_by=arm_by,
        baseline=baseline,
        command=redact(shlex.join(["ablate", *sys.argv[1:]])),
    )
    if json:
        print_json(imported_mapping(experiment, imported))
    else:
        print_imported(experiment, imported)
    raise typer.Exit(1 if imported.refused else 0)


def imported_mapping(experiment: str, imported: "Imported") -> Content:
    """What `import --json` prints."""
    return {
        "experiment": experiment,
        "baseline": None if imported.plan is None else imported.plan.baseline,
        "arms": _arm_rows(imported),
        "imported": imported.n_added,
        "known": imported.n_present,
        "copies": imported.copies,
        "twins": imported.twins,
        "skipped": imported.skipped,
        "mixed": imported.mixed,
        "seeds_reused": imported.seeds,
        "refused": imported.refused,
    }


def print_imported(experiment: str, imported: "Imported") -> None:
    """What became of every file that is no new run, and the arms."""
    for path, other in imported.copies.items():
        print(f"{_line(path)}: the same log as {_line(other)}: one run")
    for path, other in imported.twins.items():
        print(f"{_line(path)}: a summary or a twin of {_line(other)}: one run")
    for path, what in imported.skipped.items():
        print(f"{_line(path)}: {what}: left out")
    for path, why in imported.refused.items():
        print(f"{_line(path)}: refused: {why}")
    print_table(_arm_rows(imported))
    for arm, what in imported.mixed.items():
        print(f"{_line(arm)}: mixes {what}: --arm-by code tells them apart")
    for arm, seeds in imported.seeds.items():
        for seed, files in seeds.items():
            print(f"{_line(arm)}: seed {seed} was used by {len(files)} logs: {_files(files)}")
    if imported.n_with_code_lines:
        n_logs = imported.n_with_code_lines
        print(f"{plural(n_logs, 'log')} with code that has lines like measurements: not counted")
    n_copies = len(imported.copies) + len(imported.twins)
    counts = (
        f"{plural(imported.n_added, 'run')} imported",
        f"{imported.n_present} there already",
        f"{n_copies} {'copy' if n_copies == 1 else 'copies'}",
        f"{plural(len(imported.refused), 'file')} refused",
    )
    print(f"{experiment}: {', '.join(counts)}")


def _arm_rows(imported: "Imported") -> Sequence[Cells]:
    if imported.plan is None:
        return []
    rows = []
    for arm in imported.plan.arms:
        n_runs = sum(run.arm == arm.name for run in imported.plan.runs)
        rows.append({"arm": arm.name, "runs": n_runs})
    return rows


def _files(paths: list[str]) -> str:
    return ", ".join(map(_line, paths))


def _line(path: str) -> str:
    """A file's name as one printable line."""
    line = ""
    for character in path:
        line += character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
    return line
