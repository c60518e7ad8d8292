"""Logs of the public benchmark as runs of the results folder, marked as imported."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import UserError, near
from harness.experiment.keys import check_name
from harness.foreign.imported_run import origin, seed_of, spec_of_log, write_run
from harness.foreign.log_arms import ArmBy, LogPlace, Program, mixed_words, name_arms
from harness.foreign.log_files import FoundFile, ReadLog, files_under, read_all
from harness.foreign.plan import SELF_REPORTED, UNKNOWN_CORPUS, plan_run
from harness.run.plan import Plan, PlanArm, PlanRun
from harness.run.spec import RunSpec
from harness.store.errors import ResultsError
from harness.store.plans import read_plan, save_plan
from harness.store.store import Store

MAX_ARM_NAME = 200  # characters


@dataclass(kw_only=True)
class Imported:
    """What an import came to."""

    plan: Plan | None = None
    n_added: int = 0  # runs
    n_present: int = 0  # runs that were there before
    n_with_code_lines: int = 0  # logs whose code holds lines like measurements
    copies: dict[str, str] = field(default_factory=dict)  # file -> the file it repeats
    twins: dict[str, str] = field(default_factory=dict)  # file -> the log of the same run
    skipped: dict[str, str] = field(default_factory=dict)  # file -> what it is
    refused: dict[str, str] = field(default_factory=dict)  # file -> why
    mixed: dict[str, str] = field(default_factory=dict)  # arm -> what it mixes
    seeds: dict[str, dict[int, list[str]]] = field(default_factory=dict)  # arm -> seed -> its logs


@dataclass(frozen=True, kw_only=True)
class _Log:
    """A run that was taken, before its arm has a name."""

    file: str  # the path as given, and which run of it
    place: LogPlace
    program: Program
    seed: int | None
    spec: RunSpec
    points: frozenset[tuple[object, ...]]
    memory: Mapping[str, int]


# ---------------------------------------------------------------- the import


def import_logs(
    paths: Sequence[Path],
    *,
    store: Store,
    experiment: str,
    arm: str | None = None,
    arm_by: ArmBy = ArmBy.CODE,
    baseline: str | None = None,
    command: str = "",
) -> Imported:
    """Bring logs in as runs of an imported experiment, which is made or added to.

    arm: one for all logs, else arm_by says what makes one; baseline: the arm to compare with, else
    the first; command: what was typed. A log that is there already is one run.
    paths: files and folders.
    """
    check_name(experiment, "--experiment")
    before = _plan_before(store, experiment)
    files = list(files_under(paths))
    _check_names(files, arm)
    imported = Imported()
    logs = list(_taken(files, imported, store))
    names = _names_of_arms(logs, arm, arm_by, before)
    rows = {run.run_id: run for run in before.runs}
    _add_rows(logs, names, rows, imported)
    arms = list(dict.fromkeys([*before.by_arm, *(row.arm for row in rows.values())]))
    if baseline is not None and baseline not in arms:
        raise _no_baseline(baseline, arms, imported)
    if not arms:
        return imported
    _find_doubts(logs, names, imported)
    chosen = baseline or before.baseline or arms[0]
    arms.remove(chosen)
    codes = _codes(logs, names, before)
    planned = []
    for name in (chosen, *arms):
        planned.append(PlanArm(name=name, of=name, code=codes[name]))
    imported.plan = _plan(before, planned, list(rows.values()), command)
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


def _check_names(files: Iterable[FoundFile], arm: str | None) -> None:
    """Raises UserError for an arm name that cannot be printed."""
    names = dict.fromkeys(arm or file.place.folder for file in files)
    for name in names:
        if not name.isprintable() or len(name) > MAX_ARM_NAME:
            raise UserError(f"arm name {name!r} must be printable and shorter: name it with --arm")


def _no_baseline(baseline: str, arms: Sequence[str], imported: Imported) -> UserError:
    if not arms:
        reason = next(iter(imported.refused.values()), "there is none")
        return UserError(f"--baseline '{baseline}': none of its logs could be taken: {reason}")
    return UserError(f"--baseline '{baseline}' is none of the arms{near(baseline, arms)}")


# ---------------------------------------------------------------- the logs


def _taken(files: Sequence[FoundFile], imported: Imported, store: Store) -> Iterator[_Log]:
    """Every run once, written where it is none yet; what became of the rest goes to `imported`."""
    taken = _Taken(imported, store)
    bare = []
    logs = []
    for file in files:
        if file.is_trace:
            imported.skipped[str(file.path)] = "a profiler's trace, no log"
        else:
            logs.append(file)
    for file, runs in zip(logs, read_all([file.path for file in logs]), strict=True):
        for log in runs:
            if log.refused is not None:
                imported.refused[str(file.path)] = log.refused
            elif log.is_bare:  # its whole log may come later
                bare.append((file, log))
            else:
                yield from taken.take(file, log)
    bare.sort(key=_n_points, reverse=True)
    for file, log in bare:
        yield from taken.take(file, log)


def _n_points(file_and_log: tuple[FoundFile, ReadLog]) -> int:
    """The whole logs before their summaries."""
    _, log = file_and_log
    return log.reading.n_points


class _Taken:
    """The runs that were taken so far, by what tells twins."""

    def __init__(self, imported: Imported, store: Store) -> None:
        self.imported = imported
        self.store = store
        self.first_files: dict[str, str] = {}  # run_id -> its file
        self.by_end: dict[object, list[_Log]] = defaultdict(list)  # last validation -> runs

    def take(self, file: FoundFile, log: ReadLog) -> Iterator[_Log]:
        """The run of a log, written where it is none yet; nothing where it was taken before."""
        name = origin(log, file)
        spec = spec_of_log(log)
        first_file = self.first_files.setdefault(spec.run_id, name)
        if first_file != name:
            self.imported.copies[name] = first_file
            return
        twin = self._twin(file.place, log)
        if twin is not None:
            self.imported.twins[name] = twin.file
            return
        if log.reading.dropped:
            self.imported.n_with_code_lines += 1
        write_run(self.store, spec, log, file)
        taken = _Log(
            file=name,
            place=file.place,
            program=log.ran(),
            seed=seed_of(log, file),
            spec=spec,
            points=log.points,
            memory=log.reading.facts.memory,
        )
        self.by_end[_end(log)].append(taken)
        yield taken

    def _twin(self, place: LogPlace, log: ReadLog) -> _Log | None:
        """The run taken before whose log this one repeats, in part or with more around it."""
        for other in self.by_end[_end(log)]:
            is_part = log.points <= other.points or other.points <= log.points
            n_shared = min(len(log.points), len(other.points))
            memory = log.reading.facts.memory
            if any(other.memory.get(key, memory[key]) != memory[key] for key in memory):
                continue
            # without a validation nothing is the same: such a log is another run, a cut one too
            fewest = 1 if other.place.folder == place.folder else 2
            if is_part and n_shared >= fewest:
                return other
        return None


def _end(log: ReadLog) -> object:
    """A run's last validation: (steps, loss, seconds)."""
    reading = log.reading
    if not reading.losses["val"]:
        return None
    return reading.n_steps, repr(reading.losses["val"][-1]), repr(round(reading.times[-1], 6))


# ---------------------------------------------------------------- the arms


def _names_of_arms(logs: Sequence[_Log], arm: str | None, arm_by: ArmBy, before: Plan) -> list[str]:
    """The arm of every log; one that would join another program of its name is told apart."""
    if arm is not None:
        return [arm] * len(logs)
    given = name_arms([(log.place, log.program) for log in logs], arm_by)
    if arm_by is not ArmBy.CODE:
        return given
    arm_of = {run.run_id: run.arm for run in before.runs}
    steps = {run.arm: run.budget for run in before.runs}
    names = []
    for log, name in zip(logs, given, strict=True):
        arm_before = before.by_arm.get(name)
        if log.spec.run_id in arm_of:
            name = arm_of[log.spec.run_id]
        elif arm_before is not None and log.program.code != arm_before.code:
            name = f"{name} (code {log.program.code or 'unknown'})"
        elif arm_before is not None and log.program.steps != steps.get(name):
            name = f"{name} ({log.program.steps} steps)"
        names.append(name)
    return names


def _codes(logs: Sequence[_Log], names: Sequence[str], before: Plan) -> dict[str, str | None]:
    """Arm -> the program of all its runs, None where there is none or several."""
    codes: dict[str, set[str | None]] = defaultdict(set)
    for arm in before.arms:
        codes[arm.name].add(arm.code)
    for log, name in zip(logs, names, strict=True):
        codes[name].add(log.program.code)
    one = {}
    for name, of_arm in codes.items():
        one[name] = of_arm.copy().pop() if len(of_arm) == 1 else None
    return one


def _add_rows(
    logs: Sequence[_Log], names: Sequence[str], rows: dict[str, PlanRun], imported: Imported
) -> None:
    """Add the runs that are new to the rows by run_id."""
    n_runs = Counter(row.arm for row in rows.values())
    for log, name in zip(logs, names, strict=True):
        if log.spec.run_id in rows:
            imported.n_present += 1
            continue
        row = plan_run(name, log.spec)
        rows[log.spec.run_id] = replace(row, replicate=n_runs[name], imported=True)
        n_runs[name] += 1
        imported.n_added += 1


def _find_doubts(logs: Sequence[_Log], names: Sequence[str], imported: Imported) -> None:
    """Arms that mix programs, as they were named, and seeds that several logs of an arm used."""
    of_arm: dict[str, list[_Log]] = defaultdict(list)
    for log, name in zip(logs, names, strict=True):
        of_arm[name].append(log)
    for name, members in of_arm.items():
        mixture = mixed_words(log.program for log in members)
        if mixture is not None:
            imported.mixed[name] = mixture
        reused = _reused_seeds(members)
        if reused:
            imported.seeds[name] = reused


def _reused_seeds(logs: Sequence[_Log]) -> dict[int, list[str]]:
    """Seed -> the logs that used it, of those that several did."""
    files: dict[int, list[str]] = defaultdict(list)
    for log in logs:
        if log.seed is not None:
            files[log.seed].append(log.file)
    return {seed: names for seed, names in files.items() if len(names) > 1}


def _plan(before: Plan, arms: Sequence[PlanArm], runs: Sequence[PlanRun], command: str) -> Plan:
    """experiment.json of the logs so far; arms: the baseline first."""
    n_seeds = max(Counter(run.arm for run in runs).values())
    return Plan(
        name=before.name,
        question=f"What do the logs imported as {before.name} say?",
        base="logs",
        scale="gpt2",
        baseline=arms[0].name,
        arms=tuple(arms),
        seeds=tuple(range(n_seeds)),
        protocol=SELF_REPORTED,
        corpus=UNKNOWN_CORPUS,
        command=command,
        looks=before.looks,
        looked_at=before.looked_at,
        runs=tuple(runs),
        imported=True,
    )
