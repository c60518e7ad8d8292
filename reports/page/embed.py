"""The data inside a page: an Experiment as JSON and back, to check a page without its folder.

Run rows keep every digit (verdicts come from them); curve points are rounded to 1e-6 of loss and
0.1 ms, far below what any printed number shows.  A table's columns that never change,
configurations and environments are stored once.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.run.digests import text_digest
from harness.run.document import Content, Document
from harness.run.plan import Plan
from harness.run.results import Result
from reports.inputs.experiment import Experiment
from reports.inputs.memory import Memory
from reports.inputs.recorded import TOKENS
from reports.inputs.step_times import StepTimes
from reports.page.command_words import whole_paths, without_folders, without_paths
from reports.page.thin import thinned

LOSS_DIGITS, TIME_DIGITS = 6, 4
# Of a result, beside its row; the whole file is known by its digest.
SHOWN = ("status", "reason", "started", "wall", "parameters", "tokens")
WHOLE = "digest_of_file"  # what a result restored from a page has beside SHOWN
OF_RUN = ("arm", "seed", "budget", "role")  # of a point of a curve: its run's
OF_POINT = ("step", "val_loss", "train_time_s")
OWN_KEYS = ("seed", "replicate")  # of a config: what differs between the runs of one arm
TURNING = (
    "\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # line ends, directions
)
IN_JSON_TOO = (str, int, bool, type(None))  # types of which most data are
UNSAFE = {ord(c): f"\\u{ord(c):04x}" for c in f"<>&{TURNING}"}


def page_json(value: Any) -> str:
    """What a page's digests are made of: numbers that are not finite are null."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def page_digest(value: Any) -> str:
    return text_digest(page_json(value))


def plain(value: Any) -> Any:
    """The value in JSON's types: numpy scalars become Python's, numbers not finite null."""
    if type(value) in IN_JSON_TOO:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float)):
        return value
    if value is pd.NaT or value is pd.NA:
        return None
    return str(value)


def script_json(value: Any) -> str:
    """Plain values as JSON that may stand inside a <script> element.

    No text in it can end the element or open a comment.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.translate(UNSAFE)


def embed_table(table: pd.DataFrame) -> Content:
    """A table as rows; a column with one value throughout is kept once, in `same`.

    The rows hold the other columns in order.
    """
    same, varied = {}, []
    for column in table.columns:
        values = plain(table[column].tolist())
        if len(values) > 1 and all(value == values[0] for value in values):
            same[column] = values[0]
        else:
            varied.append(values)
    return {
        "columns": list(table.columns),
        "dtypes": [str(dtype) for dtype in table.dtypes],
        "same": same,
        "rows": [list(row) for row in zip(*varied)],
    }


def table_rows(data: Document) -> list[Content]:
    """The rows of an embedded table, every column in its place."""
    varied = [column for column in data["columns"] if column not in data["same"]]
    whole = dict.fromkeys(data["columns"]) | data["same"]
    return [whole | dict(zip(varied, row, strict=True)) for row in data["rows"]]


def restore_table(data: Document) -> pd.DataFrame:
    rows = table_rows(data)
    columns = {}
    for name, dtype in zip(data["columns"], data["dtypes"], strict=True):
        columns[name] = pd.Series([row[name] for row in rows], dtype=dtype)
    return pd.DataFrame(columns)


def embed_curves(curves: pd.DataFrame) -> Content:
    """Every run's validation points, rounded, and the courses of steps that occur.

    {run_id: {step, val_loss, train_time_s}}, where `step` is a place in the list of courses; with
    the tokens of a run whose batches grow.
    """
    rounded = curves.round({"val_loss": LOSS_DIGITS, "train_time_s": TIME_DIGITS})
    out: Content = {}
    places: dict[tuple[int, ...], int] = {}
    for run_id, rows in rounded.groupby("run_id", sort=False):
        steps = tuple(int(s) for s in rows["step"])
        out[str(run_id)] = {
            "step": places.setdefault(steps, len(places)),
            "val_loss": plain(rows["val_loss"].tolist()),
            "train_time_s": plain(rows["train_time_s"].tolist()),
        }
        if TOKENS in rows and rows[TOKENS].notna().all():
            out[str(run_id)][TOKENS] = [int(tokens) for tokens in rows[TOKENS]]
    return {"curves": out, "steps": [list(steps) for steps in places]}


def pooled(mappings: Mapping[str, Document]) -> Content:
    """Mappings most of which are equal but for OWN_KEYS: each kept once, and per run which one.

    Beside that stand the run's own keys.
    """
    pool: Content = {}
    of: Content = {}
    for run_id, mapping in mappings.items():
        shared = {k: v for k, v in mapping.items() if k not in OWN_KEYS}
        name = page_digest(shared)
        pool.setdefault(name, shared)
        of[run_id] = [name, {k: mapping[k] for k in OWN_KEYS if k in mapping}]
    return {"pool": pool, "of": of}


def unpooled(data: Document) -> dict[str, Content]:
    mappings = {}
    for run_id, (name, of_run) in data["of"].items():
        mappings[run_id] = {**data["pool"][name], **of_run}
    return mappings


def embed_experiment(experiment: Experiment) -> Content:
    """An Experiment as plain JSON types; restore_experiment gives it back."""
    whole = known_paths(experiment)
    step_times, results, digests = {}, {}, {}
    for run_id, times in experiment.step_times.items():
        step_times[run_id] = [times.n, *times.quantiles]
    for run_id, result in experiment.results.items():
        content = result.to_json()
        results[run_id] = shown(content)
        digests[run_id] = content.get(WHOLE) or page_digest(content)
    return {
        "name": experiment.name,
        "plan": named_plan(experiment.plan, whole),
        "accept_stale": experiment.accept_stale,
        "retired": list(experiment.retired),
        "memory": experiment.memory.to_mapping(),
        "pages": dict(experiment.pages),
        "unsound": list(experiment.unsound),
        "confirmations": [lean(embed_experiment(c)) for c in experiment.confirmations],
        "plugins": dict(experiment.plugins),
        "runs": embed_table(experiment.runs),
        **embed_curves(thinned(experiment.curves)),
        "configs": pooled(named_configs(experiment.configs, whole)),
        "environments": pooled(named_environments(experiment.environments, whole)),
        "step_times": step_times,
        "results": results,
        "result_digests": digests,
    }


def lean(data: Content) -> Content:
    """An experiment's data without what no comparison of losses needs, for another's page."""
    kept = {key: value for key, value in data.items() if key != "figures"}
    nothing = pooled({})
    return {**kept, "curves": {}, "steps": [], "environments": nothing, "step_times": {}}


def known_paths(experiment: Experiment) -> list[str]:
    """The whole paths that its plan and its runs recorded beside commands."""
    recorded = [*experiment.configs.values(), *map(uncalled, experiment.environments.values())]
    plan = experiment.plan.to_mapping()
    sides = [arm.get("side", {}) for arm in plan["arms"]]
    return sorted(set(whole_paths([recorded, sides, plan["locks"]])))


def uncalled(environment: Document) -> Content:
    """What a run recorded of its machine, without the command."""
    return {key: value for key, value in environment.items() if key != "command"}


def named_plan(plan: Plan, whole: Sequence[str]) -> Content:
    """The plan without the folders of the machine where it was made, which no page prints."""
    content: Content = plain(plan.to_mapping())
    content["command"] = without_folders(content["command"])
    content["plugins"] = without_paths(content["plugins"])
    content["locks"] = without_paths(content["locks"], whole)
    for arm in content["arms"]:
        for key in arm.get("side", {}).keys() - {"readings"}:  # patterns are no paths
            arm["side"][key] = without_paths(arm["side"][key], whole)
    return content


def named_configs(configs: Mapping[str, Document], whole: Sequence[str]) -> dict[str, Content]:
    """What runs were configured with; of a path as much as tells it from the others."""
    return {run_id: without_paths(config, whole) for run_id, config in configs.items()}


def named_environments(
    environments: Mapping[str, Document], whole: Sequence[str]
) -> dict[str, Content]:
    """What runs recorded of their machines, each command as another reader types it."""
    named = {}
    for run_id, environment in environments.items():
        named[run_id] = without_paths(uncalled(environment), whole)
        if environment.get("command"):
            named[run_id]["command"] = without_folders(str(environment["command"]))
    return named


def shown(content: Document) -> Content:
    """What a page keeps of a result beside its row; seconds of the wall clock to 0.1 ms."""
    kept = {k: plain(content[k]) for k in SHOWN if k in content}
    wall = kept.get("wall")
    if not wall:
        return kept
    for phase, seconds in wall.items():
        if seconds is not None:
            wall[phase] = round(seconds, TIME_DIGITS)
    return kept


def restore_experiment(data: Document) -> Experiment:
    """The Experiment that a page was made from, rebuilt from the page's data alone."""
    step_times, results = {}, {}
    for run_id, (n, *quantiles) in (data.get("step_times") or {}).items():
        step_times[run_id] = StepTimes(n=n, quantiles=tuple(quantiles))
    for run_id, result in data["results"].items():
        content = {**result, WHOLE: data["result_digests"].get(run_id)}
        results[run_id] = Result.from_json(content)
    plan = Plan.from_mapping(data["plan"])
    return Experiment(
        name=data["name"],
        plan=plan,
        runs=restore_table(data["runs"]),
        curves=restore_curves(data),
        environments=unpooled(data["environments"]),
        configs=unpooled(data["configs"]),
        results=results,
        step_times=step_times,
        accept_stale=data["accept_stale"],
        retired=tuple(data.get("retired") or ()),
        memory=Memory.from_mapping(data.get("memory") or {}).of_plan(plan),
        pages=data.get("pages") or {},
        unsound=tuple(data.get("unsound") or ()),
        confirmations=tuple(map(restore_experiment, data.get("confirmations") or ())),
        plugins=data.get("plugins") or {},
    )


def restore_curves(data: Document) -> pd.DataFrame:
    """The validation points of the runs that the page's table has, one row each."""
    runs = {str(row["run_id"]): row for row in table_rows(data["runs"])}
    of_point: tuple[str, ...] = (*OF_POINT, TOKENS)
    if not any(TOKENS in curve for curve in data["curves"].values()):
        of_point = OF_POINT
    columns: dict[str, list[Any]] = {name: [] for name in ("run_id", *OF_RUN, *of_point)}
    for run_id, curve in data["curves"].items():
        if run_id not in runs:
            continue
        steps = data["steps"][curve["step"]]
        columns["run_id"] += [run_id] * len(steps)
        for name in OF_RUN:
            columns[name] += [runs[run_id][name]] * len(steps)
        columns["step"] += steps
        columns["val_loss"] += curve["val_loss"]
        columns["train_time_s"] += curve["train_time_s"]
        if TOKENS in columns:
            columns[TOKENS] += curve.get(TOKENS) or [None] * len(steps)
    return pd.DataFrame(columns).astype(dict.fromkeys(of_point, float))
