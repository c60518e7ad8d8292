"""The results folder as a whole.

Bring results of another one in, see what it weighs, let go what is not needed.
"""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app
from harness.cli.options import RESULTS, Json, Results
from harness.cli.table import print_json, print_table
from harness.errors import UserError, visible
from harness.run.document import Cells
from harness.run.guarded import MIB


@app.command()
def merge(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="results folders, HOST:FOLDER and URLs too"),
    ],
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Bring results of other folders in, every digest verified.

    Exit 1 if something there was not sound.
    """
    from harness.cli.push import bring
    from harness.push.place import is_elsewhere
    from harness.store.merge import check_source
    from harness.store.merge import merge as bring_in
    from harness.store.store import Store

    for folder in folders:
        if not is_elsewhere(folder):
            check_source(Path(folder), results)
    store, merged = Store.create(results), {}
    for folder in folders:
        if is_elsewhere(folder):
            merged[folder] = bring(folder, store)
        else:
            merged[folder] = bring_in(Path(folder), store)
    rows: list[Cells] = []
    counts: list[Cells] = []
    problems: list[str] = []
    for name, brought in merged.items():
        rows.append({"folder": name, **vars(brought)})
        counts.append({"folder": name, **{k: len(v) for k, v in vars(brought).items()}})
        problems += brought.problems
    if json:
        print_json(rows)
    else:
        print_table(counts)
        for problem in problems:
            print(f"left where it is: {visible(problem)}")
    raise typer.Exit(1 if problems else 0)


def note_gone(results: Path, run_ids: list[str], by: str) -> None:
    """Note in the ledger what is taken away."""
    from harness.run.ledger import add_rows, gone_row

    if run_ids:
        add_rows(results, [gone_row(by, run_ids)])


def note_renamed(results: Path, experiment: str, name: str) -> None:
    """Note in the ledger that an experiment has another name: its looks stay its own."""
    from harness.run.ledger import add_rows, read_ledger, renamed_row

    if any(look.experiment == experiment for look in read_ledger(results).looks):
        add_rows(results, [renamed_row(experiment, name)])


@app.command()
def clean(
    kinds: Annotated[
        list[str] | None, typer.Argument(metavar="[KIND]...", help="which kinds; default: all")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would go, remove nothing")
    ] = False,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Disk use, and remove what may go.

    Stale runs, trunks, what failed attempts left, damaged runs set aside, caches.
    """
    from harness.errors import near
    from harness.run.guarded import remove
    from harness.store.clean import KINDS, weight
    from harness.store.store import Store

    names = [kind.name for kind in KINDS]
    for name in kinds or ():
        if name not in names:
            raise UserError(f"unknown kind '{name}'{near(name, names)}")
    if not (results / "runs").is_dir():
        raise UserError(f"results folder {results}: no runs here; name another with --results")
    store, before = Store(results), weight(results)
    rows: list[Cells] = []
    for kind in KINDS:
        if kinds and kind.name not in kinds:
            continue
        paths = [p for p in kind.find(store) if p.exists() or p.is_symlink()]
        size = sum(map(weight, paths))
        if not dry_run:
            note_gone(results, [p.name for p in paths if p.parent == results / "runs"], "clean")
            for path in paths:
                remove(path, below=len(path.relative_to(results).parts))
        rows.append({"kind": kind.name, "n": len(paths), "mib": size / MIB, "what": kind.meaning})
    after = before - sum(row["mib"] for row in rows) * MIB if dry_run else weight(results)
    if json:
        print_json(
            {
                "results": str(results),
                "mib": before / MIB,
                "mib_after": after / MIB,
                "removed": not dry_run,
                "kinds": rows,
            }
        )
        return
    print_table(rows, ["kind", "n", "mib", "what"])
    verb = "would leave" if dry_run else "left"
    print(f"{results}: {before / MIB:.1f} MiB, {verb} {after / MIB:.1f} MiB")
