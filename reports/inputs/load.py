"""A results directory as tables: reports.inputs.load.load("quickstart") gives an Experiment.

Reads files, computes nothing but first crossings. One row per planned run; a run without a result
has its status and empty numbers. Raises ValueError in one line for what cannot be read.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from harness.run.archive import unpacked
from harness.run.code import CODE_LIMIT, code_digest
from harness.run.document import Cells, Document
from harness.run.guarded import IN_ROOT, KEPT, experiments_in, is_file, is_name, read_bytes
from harness.run.ledger import read_ledger
from harness.run.plan import Plan
from harness.run.plan_file import read_plan_file
from harness.run.remembered import Remembered
from harness.run.results import result_in
from harness.run.retired import read_retired
from reports.inputs.experiment import Experiment
from reports.inputs.memory import Memory, Value, remember
from reports.inputs.own_columns import all_columns, row_of
from reports.inputs.recorded import POINT, TOKENS, RecordedRun, read_run
from reports.inputs.step_times import StepTimes, of_points
from reports.inputs.targets import decided

CURVE_COLUMNS = ("run_id", "arm", "seed", "budget", "role", *POINT)


def load(
    name_or_dir: str | Path,
    results: str | Path = "results",
    *,
    accept_stale: bool = False,
    verify: bool = False,
) -> Experiment:
    """An experiment by name in R/experiments, or by its folder there.

    verify: every file is looked at, whatever was found sound before.
    """
    folder = experiment_folder(Path(name_or_dir), Path(results))
    path = folder / "experiment.json"
    try:
        plan = read_plan_file(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}: run the experiment again") from None
    root = folder.parent.parent / "runs"
    verified = Remembered(root.parent, forget=verify)
    runs = [read_run(root, plan, planned, verified) for planned in plan.runs]
    plan = decided(plan, runs, accept_stale=accept_stale)
    runs = [replace(run, plan=plan) for run in runs]
    memory, plan, more = remembered(plan, root, runs, verified)
    runs += more
    verified.save()
    rows = [row_of(run) for run in runs]
    configs = {run.run_id: run.config for run in runs if run.config}
    name_stale_files(rows, configs, plan)
    return Experiment(
        name=plan.name,
        plan=plan,
        runs=pd.DataFrame(rows, columns=[column.key for column in all_columns(plan)]),
        curves=curves_of(runs),
        environments={run.run_id: run.environment for run in runs if run.environment},
        configs=configs,
        results={run.run_id: run.result for run in runs if run.result},
        step_times=single_steps(runs),
        accept_stale=accept_stale,
        plugins=plugin_sources(configs.values(), folder.parent.parent / "code"),
        retired=tuple(retired.words for retired in read_retired(folder)),
        unsound=tuple(unsound_words(run) for run in runs if run.status == "damaged"),
        memory=memory.of_plan(plan),
        confirmations=confirmations_in(folder.parent.parent, memory.confirmed_by, accept_stale),
    )


def confirmations_in(
    results: Path, names: Sequence[str], accept_stale: bool
) -> tuple[Experiment, ...]:
    """The experiments of these names that are in a folder of results."""
    there = []
    for name in names:
        with suppress(ValueError):  # whose plan is gone or cannot be read
            there.append(load(name, results, accept_stale=accept_stale))
    return tuple(other for other in there if other.plan.confirm)


def remembered(
    plan: Plan, root: Path, runs: Sequence[RecordedRun], verified: Remembered
) -> tuple[Memory, Plan, list[RecordedRun]]:
    """(what the folder remembers of the question, the plan by that, runs that count beside it).

    root: the folder of all runs. verified: which results were found sound before.
    """
    read = {run.run_id: run.result for run in runs}

    def value_of(run_id: str) -> Value | None:
        result = read[run_id] if run_id in read else result_in(f"{root}/{run_id}", run_id)
        if result is None:
            return None
        return (result.val_loss if result.status == "finished" else None,)

    memory, whole = remember(plan, read_ledger(root.parent), root, value_of)
    more = [read_run(root, whole, planned, verified) for planned in whole.runs[len(plan.runs) :]]
    return memory, whole, more


def unsound_words(run: RecordedRun) -> str:
    """Which run does not count, and why, by its folder in the results folder."""
    where = f"{run.planned.arm}, seed {run.planned.seed}"
    what = str(run.reason).partition(f"{run.run_id}/")[2] or run.reason
    return f"{where}: run {run.run_id} is left out: {what}"


def experiment_folder(given: Path, results: Path) -> Path:
    """The folder given, or that of an experiment so named; raises ValueError with what there is."""
    if is_file(given / "experiment.json", below=IN_ROOT):
        return given
    folder = results / "experiments" / given
    if is_file(folder / "experiment.json"):
        return folder
    names = experiments_in(results)
    hint = "run one first: ablate run EXP"
    if names:
        hint = f"there are {', '.join(names)}"
    raise ValueError(f"{folder}: no experiment '{given.name}' here; {hint}")


def curves_of(runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """Every validation point of every run: CURVE_COLUMNS, with TOKENS where batches grow."""
    grow = any(point.tokens is not None for run in runs for point in run.validations[-1:])
    points = (*POINT, TOKENS) if grow else POINT
    columns = dict.fromkeys((*CURVE_COLUMNS, *points))
    curves: dict[str, list[Any]] = {column: [] for column in columns}
    for run in runs:
        n_points = len(run.validations)
        planned = run.planned
        facts = (run.run_id, planned.arm, planned.seed, planned.budget, planned.role)
        for column, fact in zip(CURVE_COLUMNS, facts, strict=False):
            curves[column] += [fact] * n_points
        for column in points:
            curves[column] += run.points(column)
        if run.stood_still and n_points:
            curves["train_time_s"][-n_points:] = [math.nan] * n_points
    return pd.DataFrame(curves)


def single_steps(runs: Sequence[RecordedRun]) -> dict[str, StepTimes]:
    """run_id -> the times of single steps, of runs with a result that recorded them."""
    of_runs = {}
    for run in runs:
        if run.result and not run.stood_still:
            times = of_points(run.validations)
            if times is not None:
                of_runs[run.run_id] = times
    return of_runs


def name_stale_files(rows: Sequence[Cells], configs: Mapping[str, Document], plan: Plan) -> None:
    """Fill `stale_files`: those by which a stale run's code differs from the code as it is.

    Where the plan does not know that, the code of the runs that are not stale stands for it; where
    every arm is a trainer of its own, the arm's.
    """
    of_arms = {arm.name: arm.source for arm in plan.arms if arm.source}
    everywhere = plan.source or fresh_source(rows, configs)
    for row in rows:
        files = of_arms.get(row["arm"], everywhere)
        if row["stale"] and files:
            made_by = source_files(configs.get(row["run_id"]))
            names = sorted({*files, *made_by})
            changed = [name for name in names if files.get(name) != made_by.get(name)]
            row["stale_files"] = ", ".join(changed)


def plugin_sources(configs: Iterable[Document], kept: Path) -> dict[str, str]:
    """File of a plug-in and digest of its code -> its source; kept: the folder of kept code.

    Without those whose kept code is gone, cannot be read, is another or longer than what is parsed.
    """
    wanted: dict[str, dict[str, str]] = {}  # digest of all code -> file, the plug-in's name
    for config in configs:
        source = config.get("source") or {}
        for name, digest in (source.get("files") or {}).items():
            if name.startswith("plugin/") and is_name(source.get("digest")):
                wanted.setdefault(source["digest"], {})[name] = f"{name} {digest}"
    sources: dict[str, str] = {}
    for digest, files in wanted.items():
        try:
            archive = unpacked(read_bytes(kept / f"{digest}.zip", below=KEPT))
            if sum(len(archive[file]) for file in files) > CODE_LIMIT:
                continue
            for file, name in files.items():
                text = archive[file].decode()
                if name == f"{file} {code_digest(text)}":
                    sources.setdefault(name, text)
        except (OSError, KeyError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return sources


def fresh_source(rows: Sequence[Cells], configs: Mapping[str, Document]) -> Mapping[str, str]:
    """The files of the first run that is not stale, with their digests."""
    for row in rows:
        if not row["stale"] and row["run_id"] in configs:
            return source_files(configs[row["run_id"]])
    return {}


def source_files(config: Document | None) -> Mapping[str, str]:
    """File -> digest, of the code that a run recorded."""
    source = (config or {}).get("source") or {}
    return source.get("files") or {}
