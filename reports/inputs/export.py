"""Tidy tables for other tools as CSV or Parquet.

One row is one run (planned ones without a result too, with their status) or, with `curves`, one
validation point; reports/analysis/tables.py has those of arms and of comparisons. Columns and units
are those of docs/columns.md.  Values are written as they are:
floats with the digits that give the same float back. In CSV alone a text that a spreadsheet would
take for a formula has an apostrophe in front (OWASP, CSV injection).
"""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import pandas as pd

from reports.inputs.experiment import Experiment
from reports.inputs.files import write_out

FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",  # the first four in full width
)


def as_text(value: Any) -> Any:
    """A cell of a CSV file: a text that begins as a formula does gets an apostrophe in front."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


def write_csv(table: pd.DataFrame, file: IO[bytes]) -> None:
    texts = table.select_dtypes(["object", "str"]).columns
    safe = {column: table[column].map(as_text) for column in texts}
    table.assign(**safe).to_csv(file, index=False, lineterminator="\n")


def write_parquet(table: pd.DataFrame, file: IO[bytes]) -> None:
    if importlib.util.find_spec("pyarrow") is None:  # an optional dependency: 40 MB that few need
        raise ValueError(
            "Parquet needs pyarrow, which is not installed: pip install pyarrow, or name a .csv "
            "file"
        )
    table.to_parquet(file, engine="pyarrow", index=False)


WRITERS: dict[str, Callable[[pd.DataFrame, IO[bytes]], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
}


def export(
    experiments: Sequence[Experiment],
    out: Path,
    *,
    curves: bool = False,
    results: Path | None = None,
) -> Path:
    """Write the tidy table to `out` (.csv or .parquet), whole or not at all; returns out.

    Raises ValueError for another file name, for no experiment, and for .parquet without pyarrow.
    """
    tables = [e.runs for e in experiments]
    if curves:
        tables = [curve_points(e) for e in experiments]
    return write_tables(tables, out, results=results)


def write_tables(tables: Sequence[pd.DataFrame], out: Path, *, results: Path | None = None) -> Path:
    """Write tables, one of each experiment, below each other; raises and returns as `export`.

    results: the folder of results."""
    writer = WRITERS.get(out.suffix.lower())
    if writer is None:
        kind = out.suffix or "a file without a suffix"
        raise ValueError(f"{out}: cannot write {kind}; name a {' or '.join(WRITERS)} file")
    if not tables:
        raise ValueError(f"{out}: no experiment was given to export")
    table = pd.concat(tables, ignore_index=True)
    return write_out(out, lambda file: writer(table, file), results=results)


def curve_points(experiment: Experiment) -> pd.DataFrame:
    """Every validation point with the experiment's name in front, so that several stack."""
    points = experiment.curves.copy()
    points.insert(0, "experiment", experiment.name)
    return points
