"""The data inside a page.

An Experiment as JSON and back, so that a page can be checked without the folder it came from.

Run rows keep every digit (verdicts come from them); curve points are rounded to 1e-6 of loss and
0.1 ms, far below what any printed number shows. A table's columns that never change,
configurations and environments are stored once.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.run.plan import Plan
from reports.inputs.experiment import Experiment
from reports.inputs.step_times import StepTimes

LOSS_DIGITS, TIME_DIGITS = 6, 4
SHOWN = (
    "status",
    "reason",
    "started",
    "wall",
)  # of a result, beside its row; the whole file is known by its digest
WHOLE = "digest_of_file"  # what a result restored from a page has beside SHOWN
OWN_KEYS = ("seed", "replicate")  # of a config: what differs between the runs of one arm
UNSAFE = {
    ord(c): f"\\u{ord(c):04x}"
    for c in "<>&\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
}


def canonical(value: Any) -> str:
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def short_digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def plain(value: Any) -> Any:
    """The value in JSON's types.

    Numpy scalars become Python's, what is not a finite number becomes null.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    return None if value is pd.NaT or value is pd.NA else str(value)


def script_json(value: Any) -> str:
    """Plain values as JSON that may stand inside a <script> element.

    No text in it can end the element or open a comment.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).translate(
        UNSAFE
    )


def embed_table(table: pd.DataFrame) -> dict[str, Any]:
    """A table as rows.

    A column with one value throughout is kept once, in `same`, and the rows hold the others in
    order.
    """
    columns = {c: [plain(v) for v in table[c].tolist()] for c in table.columns}
    same = {
        c: values[0]
        for c, values in columns.items()
        if len(values) > 1 and all(v == values[0] for v in values)
    }
    return {
        "columns": list(columns),
        "dtypes": [str(d) for d in table.dtypes],
        "same": same,
        "rows": [
            list(row) for row in zip(*(values for c, values in columns.items() if c not in same))
        ],
    }


def table_rows(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of an embedded table, every column in its place."""
    own = [c for c in data["columns"] if c not in data["same"]]
    whole = dict.fromkeys(data["columns"]) | data["same"]
    return [whole | dict(zip(own, row, strict=True)) for row in data["rows"]]


def restore_table(data: Mapping[str, Any]) -> pd.DataFrame:
    rows = table_rows(data)
    pairs = zip(data["columns"], data["dtypes"], strict=True)
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in pairs}
    )


def embed_curves(curves: pd.DataFrame) -> dict[str, Any]:
    """Every run's validation points, rounded.

    {run_id: {step, val_loss, train_time_s}}, and the steps, where `step` is a place in a list of
    the courses of steps that occur.
    """
    rounded = curves.round({"val_loss": LOSS_DIGITS, "train_time_s": TIME_DIGITS})
    out: dict[str, Any] = {}
    places: dict[tuple[int, ...], int] = {}
    for run_id, rows in rounded.groupby("run_id", sort=False):
        numbers = {k: rows[k].tolist() for k in ("val_loss", "train_time_s")}
        steps = tuple(int(s) for s in rows["step"])
        out[str(run_id)] = {"step": places.setdefault(steps, len(places))} | {
            k: [v if math.isfinite(v) else None for v in values] for k, values in numbers.items()
        }
    return {"curves": out, "steps": [list(steps) for steps in places]}


def pooled(mappings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Many mappings of which most are equal but for OWN_KEYS.

    Each kept once, and per run which one and its own keys.
    """
    pool: dict[str, Any] = {}
    of: dict[str, Any] = {}
    for run_id, mapping in mappings.items():
        shared = {k: v for k, v in mapping.items() if k not in OWN_KEYS}
        name = short_digest(shared)
        pool.setdefault(name, shared)
        of[run_id] = [name, {k: mapping[k] for k in OWN_KEYS if k in mapping}]
    return {"pool": pool, "of": of}


def unpooled(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {run_id: {**data["pool"][name], **own} for run_id, (name, own) in data["of"].items()}


def embed_experiment(experiment: Experiment) -> dict[str, Any]:
    """An Experiment as plain JSON types; restore_experiment gives it back."""
    return {
        "name": experiment.name,
        "plan": plain(experiment.plan.to_mapping()),
        "accept_stale": experiment.accept_stale,
        "runs": embed_table(experiment.runs),
        **embed_curves(experiment.curves),
        "configs": pooled(experiment.configs),
        "environments": pooled(experiment.environments),
        "step_times": {run_id: [t.n, *t.quantiles] for run_id, t in experiment.step_times.items()},
        "results": {r: shown(result) for r, result in experiment.results.items()},
        "result_digests": {
            r: result.get(WHOLE) or short_digest(result) for r, result in experiment.results.items()
        },
    }


def shown(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a page keeps of a result beside its row; seconds of the wall clock to 0.1 ms."""
    kept = {k: plain(result[k]) for k in SHOWN if k in result}
    wall = {
        k: v if v is None else round(v, TIME_DIGITS) for k, v in (kept.get("wall") or {}).items()
    }
    return {**kept, "wall": wall} if wall else kept


def spread(values: list[Any], lengths: list[int]) -> list[Any]:
    """Each value as often as its curve has points."""
    return [value for value, n in zip(values, lengths, strict=True) for _ in range(n)]


def restore_experiment(data: Mapping[str, Any]) -> Experiment:
    """The Experiment that a page was made from, rebuilt from the page's data alone."""
    runs = restore_table(data["runs"])
    by_id = {str(r["run_id"]): r for r in table_rows(data["runs"])}
    found = [
        (run_id, c | {"step": data["steps"][c["step"]]})
        for run_id, c in data["curves"].items()
        if run_id in by_id
    ]
    lengths = [len(c["step"]) for _, c in found]
    curves = pd.DataFrame(
        {"run_id": spread([run_id for run_id, _ in found], lengths)}
        | {
            k: spread([by_id[run_id][k] for run_id, _ in found], lengths)
            for k in ("arm", "seed", "budget", "role")
        }
        | {k: [v for _, c in found for v in c[k]] for k in ("step", "val_loss", "train_time_s")}
    )
    return Experiment(
        name=data["name"],
        plan=Plan.from_mapping(data["plan"]),
        runs=runs,
        curves=curves.astype({"step": float, "val_loss": float, "train_time_s": float}),
        environments=unpooled(data["environments"]),
        configs=unpooled(data["configs"]),
        results={
            r: {**result, WHOLE: data["result_digests"].get(r)}
            for r, result in data["results"].items()
        },
        step_times={
            run_id: StepTimes(n=n, quantiles=tuple(q))
            for run_id, (n, *q) in (data.get("step_times") or {}).items()
        },
        accept_stale=data["accept_stale"],
    )
