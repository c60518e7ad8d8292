"""Logs of the public benchmark as runs of the results folder, marked as imported."""

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.errors import UserError, near
from harness.experiment.keys import check_name
from harness.foreign.log_lines import VERSIONS, LogError
from harness.foreign.logs import LogFacts, Reading, read_log
from harness.foreign.plan import SELF_REPORTED, UNKNOWN_CORPUS, plan_run
from harness.node.slots import find_cpus
from harness.run.digests import short_digest
from harness.run.document import Content
from harness.run.files import now_iso
from harness.run.plan import Plan, PlanArm, PlanRun
from harness.run.results import result_text
from harness.run.spec import Outcome, RunSpec, Status
from harness.store.attempt import result_of
from harness.store.errors import ResultsError
from harness.store.plans import read_plan, save_plan
from harness.store.store import Store

# what lies beside the logs of a record and is none; everything else in a folder is tried
NOT_LOGS = {
    *(".py", ".ipynb", ".sh", ".cu", ".cpp", ".h"),
    *(".md", ".rst", ".html", ".json", ".csv", ".yaml", ".yml", ".toml", ".cfg"),
    *(".png", ".jpg", ".jpeg", ".svg", ".gif", ".pdf", ".diff", ".patch"),
}
NOT_LOG_NAMES = ("LICENSE", "Makefile", "requirements.txt")
MANY = 32  # files: fewer are read before other processes have started
MAX_READERS = 8  # processes
FILES_AT_ONCE = 8  # of a process
MAX_ARM_NAME = 200  # characters


@dataclass(kw_only=True)
class Imported:
    """What an import came to."""

    plan: Plan | None = None
    n_added: int = 0  # runs
    n_present: int = 0  # runs that were there before
    n_with_code_lines: int = 0  # logs whose code holds lines like measurements
    copies: dict[str, str] = field(default_factory=dict)  # file -> the file it repeats
    refused: dict[str, str] = field(default_factory=dict)  # file -> why


@dataclass(frozen=True, kw_only=True)
class ReadLog:
    """A log that was read, or why it is refused."""

    reading: Reading
    code: str | None  # digest of the code at its head
    refused: str | None = None


# ---------------------------------------------------------------- logs


def logs_under(paths: Sequence[Path], arm: str | None) -> Iterator[tuple[str, Path]]:
    """(arm, file) of every log.

    A folder's own logs and each folder in it are an arm by its name, unless `arm` names it.
    Raises UserError for a path that does not exist."""
    for path in paths:
        if not os.path.lexists(path):
            raise UserError(f"{path}: no such file or folder: name a log, or a folder of logs")
        if not path.is_dir():
            yield arm or path.absolute().parent.name or "logs", path
            continue
        for file in _logs_in(path):
            inner = file.relative_to(path).parts[:-1]
            if inner:
                yield arm or inner[0], file
            else:
                yield arm or path.absolute().name, file


def _logs_in(root: Path) -> Iterator[Path]:
    """What may be a log in a folder and those under it, in the order of their names."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "__")))
        for name in sorted(names):
            is_other = Path(name).suffix in NOT_LOGS or name in NOT_LOG_NAMES
            if not is_other and not name.startswith("."):
                yield Path(folder) / name


def read_all(paths: Sequence[Path]) -> Iterator[ReadLog]:
    """Every file, in order; many files are read on all CPUs."""
    n_cpus = find_cpus()
    if len(paths) < MANY or n_cpus == 1:
        yield from map(read_one, paths)
        return
    with ProcessPoolExecutor(min(MAX_READERS, n_cpus)) as pool:
        yield from pool.map(read_one, paths, chunksize=FILES_AT_ONCE)


def read_one(path: Path) -> ReadLog:
    """A file, read or refused."""
    try:
        reading, code = read_log(path)
    except LogError as error:
        return ReadLog(reading=Reading(), code=None, refused=str(error))
    return ReadLog(reading=reading, code=code)


# ---------------------------------------------------------------- the import


def import_logs(
    paths: Sequence[Path],
    *,
    store: Store,
    experiment: str,
    arm: str | None = None,
    baseline: str | None = None,
    command: str = "",
) -> Imported:
    """Bring logs in as runs of an imported experiment, which is made or added to.

    arm: one for all logs, else each folder is one; baseline: the arm to compare with, else the
    first; command: what was typed. A log that is there already is one run."""
    check_name(experiment, "--experiment")
    before = _plan_before(store, experiment)
    logs = list(logs_under(paths, arm))
    _check_arms(logs, before, baseline)
    imported = Imported()
    rows = {run.run_id: run for run in before.runs}
    _import_runs(logs, rows, imported, store)
    arms = list(dict.fromkeys([*before.by_arm, *(row.arm for row in rows.values())]))
    if not arms:
        return imported
    chosen = baseline or before.baseline or arms[0]
    if chosen not in arms:
        reason = next(iter(imported.refused.values()), "")
        raise UserError(f"--baseline '{chosen}': none of its logs could be taken: {reason}")
    arms.remove(chosen)
    imported.plan = _plan(before, [chosen, *arms], list(rows.values()), command)
    try:
        save_plan(store.root, imported.plan)
    except OSError as error:
        raise ResultsError(store.root, error) from None
    return imported


def _plan_before(store: Store, experiment: str) -> Plan:
    """The experiment as it was imported so far, empty where it is new."""
    before = read_plan(store.root, experiment)
    if before is None:
        return Plan(name=experiment)
    if not before.imported:
        raise UserError(
            f"experiment '{experiment}' holds runs that were made here: "
            "import under another name, they are never mixed"
        )
    return before


def _check_arms(logs: Sequence[tuple[str, Path]], before: Plan, baseline: str | None) -> None:
    """Raises UserError for an arm name that cannot be printed, or a baseline that is no arm."""
    names = dict.fromkeys(name for name, _ in logs)
    for name in names:
        if not name.isprintable() or len(name) > MAX_ARM_NAME:
            raise UserError(f"arm name {name!r} must be printable and shorter: name it with --arm")
    arms = list(dict.fromkeys([*before.by_arm, *names]))
    if baseline is not None and baseline not in arms:
        raise UserError(f"--baseline '{baseline}' is none of the arms{near(baseline, arms)}")


def _import_runs(
    logs: Sequence[tuple[str, Path]], rows: dict[str, PlanRun], imported: Imported, store: Store
) -> None:
    """Write a run for every log that is none yet; what became of each is added to `imported`.

    rows: run_id -> run, those that were there before; the new ones are added."""
    first_files: dict[str, str] = {}  # run_id -> its file
    for (arm, path), log in zip(logs, read_all([path for _, path in logs])):
        file = str(path)
        if log.refused is not None:
            imported.refused[file] = log.refused
            continue
        spec = spec_of_log(log)
        if log.reading.dropped:
            imported.n_with_code_lines += 1
        first_file = first_files.setdefault(spec.run_id, file)
        if first_file != file:
            imported.copies[file] = first_file
            continue
        if spec.run_id in rows:
            imported.n_present += 1
            continue
        write_run(store, spec, log, path)
        row = plan_run(arm, spec)
        rows[spec.run_id] = replace(row, replicate=_n_runs(rows.values(), arm), imported=True)
        imported.n_added += 1


def _n_runs(runs: Iterable[PlanRun], arm: str) -> int:
    return sum(run.arm == arm for run in runs)


def _plan(before: Plan, arms: Sequence[str], runs: Sequence[PlanRun], command: str) -> Plan:
    """experiment.json of the logs so far; arms: the baseline first."""
    n_seeds = max(_n_runs(runs, arm) for arm in arms)
    return Plan(
        name=before.name,
        question=f"What do the logs imported as {before.name} say?",
        base="logs",
        scale="gpt2",
        baseline=arms[0],
        arms=tuple(PlanArm(name=arm, of=arm) for arm in arms),
        seeds=tuple(range(n_seeds)),
        protocol=SELF_REPORTED,
        corpus=UNKNOWN_CORPUS,
        command=command,
        looks=before.looks,
        looked_at=before.looked_at,
        runs=tuple(runs),
        imported=True,
    )


# ---------------------------------------------------------------- one run


def spec_of_log(log: ReadLog) -> RunSpec:
    """The identity of an imported run: what was measured, by which code, on what.

    Its number stands for the measurements."""
    reading = log.reading
    facts: Content = dict(reading.facts.versions)
    if reading.facts.gpus:
        facts["gpus"] = reading.facts.gpus
    return RunSpec(
        config={"log": {"code": log.code, "steps": reading.n_steps}},
        seed=0,
        replicate=int(reading.digest()[:12], 16),
        budget=reading.n_steps,
        data_name=UNKNOWN_CORPUS.name,
        data_fingerprint=UNKNOWN_CORPUS.fingerprint,
        source_digest=log.code or "unknown",
        environment_digest=short_digest(facts),
        device="cuda" if reading.facts.gpus else "unknown",
    )


def environment_of_log(facts: LogFacts) -> dict[str, Any]:
    """environment.json: what the log says of the machine."""
    driver = facts.versions.get("driver")
    versions = {name: facts.versions[name] for name in VERSIONS if name in facts.versions}
    return {
        "schema": 1,
        "host": None,
        "cpu": None,
        "gpus": [{"name": name, "driver_version": driver} for name in facts.gpus],
        **versions,
        "lock": versions,
    }


def write_run(store: Store, spec: RunSpec, log: ReadLog, path: Path) -> None:
    """A run's folder, made beside its place and renamed, whole or not at all."""
    run = store.directory(spec.run_id)
    if (run / "result.json").exists():
        return
    beside = store.runs / f".import-{uuid.uuid4().hex[:12]}"
    try:
        _write_files(beside, spec, log, path)
        os.rename(beside, run)
    except OSError as error:
        if not (run / "result.json").exists():
            raise ResultsError(store.root, error) from None


def _write_files(folder: Path, spec: RunSpec, log: ReadLog, path: Path) -> None:
    """Everything that a run's folder holds, its result last."""
    ended = now_iso()
    outcome = _outcome(log, path)
    environment = json.dumps(environment_of_log(log.reading.facts), indent=1)
    attempt: Mapping[str, Any] = {
        "attempt": 1,
        "ended": ended,
        "status": outcome.status,
        "reason": outcome.reason,
    }
    folder.mkdir()
    (folder / "config.yaml").write_text(spec.to_yaml(), encoding="utf-8")
    (folder / "environment.json").write_text(environment, encoding="utf-8")
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(log.reading.lines())
    (folder / "log.txt").write_text(f"imported from {path.absolute()}\n", encoding="utf-8")
    (folder / "attempts.jsonl").write_text(json.dumps(attempt) + "\n", encoding="utf-8")
    result = result_of(folder, spec, outcome, started=None, ended=ended, attempt=1)
    (folder / "result.json").write_text(result_text(result), encoding="utf-8")


def _outcome(log: ReadLog, path: Path) -> Outcome:
    reading = log.reading
    status: Status = "finished"
    reason = None
    if reading.exploded is not None:
        status = "diverged"
        reason = f"the loss was not finite or exploded at step {reading.exploded}"
    marks = {
        "imported": True,
        "self_reported": True,
        "budget": reading.n_steps,
        "log": path.name,
        "code": log.code,
    }
    return Outcome(status=status, reason=reason, final=reading.final(), marks=marks)
