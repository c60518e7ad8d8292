"""Tools around the training core: parity with recorded trajectories, what this machine can run."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app
from harness.cli.options import Json
from harness.cli.table import print_json, print_table


@app.command("new-change")
def new_change(
    name: Annotated[str, typer.Argument(help="of the idea; NAME.py is its file")],
    kind: Annotated[
        str,
        typer.Option("--kind", help="what it changes: model, loss, optimizer, schedule or data"),
    ] = "model",
) -> None:
    """Write a plug-in, its experiment and its law test into the working directory.

    They run as they are.
    """
    from harness.experiment.scaffold import new_change as write

    for path in write(name, Path.cwd(), kind):
        print(path.relative_to(Path.cwd()))
    print(
        f"next: make {name}.py your own (docs/your-idea.md), pytest -x test_{name}.py, "
        f"ablate plan {name}; then ablate run {name}"
    )
    if find_spec("pytest") is None:
        print("the law test needs pytest: pip install pytest")


@app.command()
def parity(
    folder: Annotated[
        Path, typer.Argument(help="recorded trajectories (NAME.json, NAME.npz), or units")
    ],
    json: Json = False,
) -> None:
    """Check the core against recorded trajectories and units; exit 1 beyond tolerance."""
    import torch

    from harness.bench.parity import BOUNDS, ORTHOGONAL_BOUND, VALUES, check_directory
    from harness.bench.units import UNITS

    torch.set_num_threads(1)  # recordings are tiny: threads only wait for each other
    results = check_directory(folder)
    rows, records = [], []
    for result in results:
        row = {"record": result.record}
        for name, deviation in result.deviations.items():
            row[name] = f"{deviation:.1e}"
        missed = "FAIL" if result.deviations else "unknown"
        row["result"] = "pass" if result.passed else missed
        rows.append(row)
        records.append({"record": result.record, **result.deviations, "passed": result.passed})
    if json:
        of_units = {name: unit.bound for name, unit in UNITS.items()}
        bounds = {**BOUNDS, "orthogonalize": ORTHOGONAL_BOUND, "units": of_units}
        print_json({"bounds": bounds, "records": records})
    else:
        print_table(rows, ["record", *BOUNDS, VALUES, "result"])
    if not all(result.passed for result in results):
        raise typer.Exit(1)


@app.command()
def doctor(json: Json = False) -> None:
    """What this machine can run, what is missing, and how to get it."""
    from dataclasses import asdict

    from harness.bench.doctor import examine

    rows = [asdict(row) for row in examine()]
    if json:
        print_json(rows)
    else:
        print_table(rows, ["what", "found", "advice"])
