"""The benchmark's own evidence as experiments, which page, export and verification serve alike.

Every run of results/published/ is a run here: imported, its clock self-reported, nothing of it made
on this machine.
"""

import collections
import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.run.document import Cells
from harness.run.plan import Plan, PlanArm, PlanCorpus, PlanRun, Target
from harness.run.results import Result
from reports.inputs.experiment import Experiment
from reports.inputs.load import CURVE_COLUMNS
from reports.inputs.noise import PUBLISHED
from reports.inputs.published import RUNS, era_sd, read_table, short_track_subjects, summaries
from reports.inputs.run_columns import RUN_KEYS
from reports.stats.rules import TARGET

BATCH_TOKENS = 524_288  # per step, records 4 to 18
HARDWARE = "8 x H100"
HOSTS = (
    "Hosts and drivers differ between logs: step times of different records are no controlled "
    "comparison."
)
UNKNOWN_NUMBERS = (  # of a published run; the other columns that it lacks are None
    "step_ms_median",
    "step_ms_p95",
    "tokens_per_s",
    "mfu",
    "peak_reserved_mib",
    "first_crossing_s",
)
LogRow = Mapping[str, str]  # a row of official_runs.csv: one line of a log


@dataclass(frozen=True, kw_only=True)
class PublishedArm:
    """One row of a published table: where its runs are in official_runs.csv, what it changed."""

    name: str
    record: str  # column `record` of official_runs.csv
    log_arm: str  # column `arm`
    changes: tuple[str, ...] = ()
    fields: tuple[tuple[str, Any], ...] = ()  # dotted
    note: str = ""  # what it changed, in words, where its name does not tell


def ladder() -> list[PublishedArm]:
    arms = []
    subjects = short_track_subjects()
    for row in read_table(PUBLISHED / "records.csv"):
        record = row["record"]
        if record < "r04":
            continue
        log_arm = record
        if record == "r09":
            log_arm = "+ tanh logit softcap (= r09)"
        fields = (("schedule.steps", int(row["steps"])),)
        note = subjects[int(record[1:])]
        arms.append(
            PublishedArm(name=record, record=record, log_arm=log_arm, fields=fields, note=note)
        )
    return arms


def r09_ladder() -> list[PublishedArm]:
    arms = []
    changes: tuple[str, ...] = ()
    rows = read_table(PUBLISHED / "r09_ladder.csv")
    rungs = [row["change"] for row in rows if row["change"] != "schedule"]
    for row in rows:
        change = row["change"]
        if change != "schedule":
            changes = (*changes, change)
        arms.append(
            PublishedArm(
                name=row["arm"],
                record="r09",
                log_arm=row["log_arm"],
                changes=changes,
                fields=tuple((f"r09.{rung}", rung in changes) for rung in rungs),
            )
        )
    return arms


def optimizers() -> list[PublishedArm]:
    arms = []
    for row in read_table(PUBLISHED / "optimizers_on_r07.csv"):
        record = "optimizers-on-r07"
        if row["log_arm"] == "r07":
            record = "r07"
        name, log_arm, note = row["arm"], row["log_arm"], row["description"]
        fields = (("optimizer", note),)
        arms.append(
            PublishedArm(name=name, record=record, log_arm=log_arm, fields=fields, note=note)
        )
    return arms


@dataclass(frozen=True, kw_only=True)
class PublishedEvidence:
    """A published page: its question, its arms in order, how a row is read, what to know of it."""

    question: str
    arms: Callable[[], list[PublishedArm]]
    against: str  # 'above': every row against the row above it; 'first': against the first
    remarks: tuple[str, ...]
    here: str = ""  # the experiment that asks the same here


EVIDENCE: Mapping[str, PublishedEvidence] = {
    "ladder": PublishedEvidence(
        question="How did the benchmark get from record 4 to record 18?",
        arms=ladder,
        against="above",
        remarks=(
            "Every record was tuned until its loss just met 3.28, so a step count, and with it a "
            "time, is as uncertain as the loss it was tuned on: intervals are the noise of one run "
            "of its era, turned into time by its slope over steps.",
            "Records 14 and 16 are the means of 38 and 40 logs that are not in the file: each "
            "stands as one run.",
            HOSTS,
        ),
    ),
    "r09_ladder": PublishedEvidence(
        question="Which part of record 9 made it better?",
        arms=r09_ladder,
        against="above",
        remarks=(
            "One run per row, published with record 9: an interval is one run's noise of its era "
            "(sd 0.004) on both sides.",
            "The first row is record 8 cut to 3200 steps; record 8 itself takes 4578 steps and "
            "648.1 s to a loss of 3.2762, a row of `published/ladder`.",
        ),
        here="r09_ladder",
    ),
    "optimizers_on_r07": PublishedEvidence(
        question="Which optimizer trains record 7's model best?",
        arms=optimizers,
        against="first",
        remarks=(
            "One run per row, each with its own tuned rate: an interval is one run's noise of its "
            "era (sd 0.004).",
            HOSTS,
        ),
        here="experiments/claims/muon_against_adamw.yaml",
    ),
}


def published_experiment(name: str) -> Experiment:
    """`ladder`, `r09_ladder` or `optimizers_on_r07` as an Experiment; ValueError for another."""
    evidence = evidence_named(name)
    arms = evidence.arms()
    experiment = f"published/{name}"
    rows: list[Cells] = []
    curves: list[Cells] = []
    logs = logs_by_arm()
    for arm in arms:
        of_arm = logs.get((arm.record, arm.log_arm), {})
        for run, points in of_arm.items():
            rows.append(published_row(experiment, arm, logged_run(arm, run, points[-1])))
            curves += [curve_row(arm, run, point) for point in points]
        if not of_arm:
            rows.append(published_row(experiment, arm, mean_run(arm)))
    return Experiment(
        name=experiment,
        plan=published_plan(experiment, evidence, arms, rows),
        runs=pd.DataFrame(rows, columns=list(RUN_KEYS)),
        curves=pd.DataFrame(curves, columns=list(CURVE_COLUMNS)),
        environments={},
        configs={},
        results={row["run_id"]: Result.from_json({"status": "finished"}) for row in rows},
    )


def evidence_named(name: str) -> PublishedEvidence:
    evidence = EVIDENCE.get(name)
    if evidence is not None:
        return evidence
    near = difflib.get_close_matches(name, EVIDENCE, 1)
    if near:
        hint = f"did you mean 'published/{near[0]}'?"
    else:
        hint = f"there are {', '.join(f'published/{k}' for k in EVIDENCE)}"
    raise ValueError(f"unknown published evidence 'published/{name}'; {hint}")


def logs_by_arm() -> dict[tuple[str, str], dict[str, list[LogRow]]]:
    """(record, arm) of official_runs.csv -> run -> its lines."""
    logs: dict[tuple[str, str], dict[str, list[LogRow]]] = {}
    for point in read_table(RUNS):
        of_arm = logs.setdefault((point["record"], point["arm"]), {})
        of_arm.setdefault(point["run"], []).append(point)
    return logs


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """A published run, or the mean of several, in numbers."""

    run_id: str
    steps: int
    val_loss: float
    time_s: float
    step_ms: float
    peak_mib: float


def logged_run(arm: PublishedArm, run: str, last: LogRow) -> LoggedRun:
    """The run of a log, from its last line.

    The first 10 steps are untimed, so its mean step is over the rest.
    """
    return LoggedRun(
        run_id=f"{arm.record}-{run}",
        steps=int(last["step"]),
        val_loss=float(last["val_loss"]),
        time_s=float(last["train_time_ms"]) / 1e3,
        step_ms=float(last["step_avg_ms"]),
        peak_mib=float(last["peak_memory_mib"] or math.nan),
    )


def mean_run(arm: PublishedArm) -> LoggedRun:
    """What stands for a record of which only the means of its logs are known."""
    means = summaries()[arm.record]
    return LoggedRun(
        run_id=f"{arm.record}-mean-of-{means['n_runs']}",
        steps=int(means["steps"]),
        val_loss=float(means["val_loss"]),
        time_s=float(means["train_time_s"]),
        step_ms=float(means["step_ms"]),
        peak_mib=float(means["peak_allocated_mib"] or math.nan),
    )


def published_row(experiment: str, arm: PublishedArm, run: LoggedRun) -> Cells:
    """A row of the tidy table of runs."""
    row: Cells = dict.fromkeys(RUN_KEYS)
    row |= dict.fromkeys(UNKNOWN_NUMBERS, math.nan)
    return row | {
        "experiment": experiment,
        "arm": arm.name,
        "replicate": 0,
        "budget": run.steps,
        "role": "loss",
        "status": "finished",
        "val_loss": run.val_loss,
        "train_time_s": run.time_s,
        "step_ms": run.step_ms,
        "steps": float(run.steps),
        "tokens": float(run.steps * BATCH_TOKENS),
        "peak_allocated_mib": run.peak_mib,
        "censored": run.val_loss > TARGET,
        "device": "cuda",
        "gpu": HARDWARE,
        "fingerprint": "fineweb10B",
        "stale": False,
        "stale_files": "",
        "imported": True,
        "self_reported": True,
        "run_id": run.run_id,
    }


def curve_row(arm: PublishedArm, run: str, point: LogRow) -> Cells:
    return {
        "run_id": f"{arm.record}-{run}",
        "arm": arm.name,
        "seed": None,
        "budget": int(point["total_steps"]),
        "role": "loss",
        "step": float(point["step"]),
        "val_loss": float(point["val_loss"]),
        "train_time_s": float(point["train_time_ms"]) / 1e3,
    }


def published_plan(
    experiment: str,
    evidence: PublishedEvidence,
    arms: Sequence[PublishedArm],
    rows: Sequence[Cells],
) -> Plan:
    """What a page asks of a plan; nothing was planned here."""
    design = "explicit"
    if evidence.against == "above":
        design = "ladder"
    return Plan(
        name=experiment,
        question=evidence.question,
        base=arms[0].name,
        scale="gpt2",
        baseline=arms[0].name,
        design=design,
        arms=planned_arms(arms, rows),
        target=Target(val_loss=TARGET, reason="the benchmark's"),
        protocol="skip10: the first 10 steps run untimed",
        corpus=PlanCorpus(name="FineWeb", fingerprint="the benchmark's", unit="nats per token"),
        command=f"ablate report {experiment}",
        looks=1,
        runs=tuple(planned_run(row) for row in rows),
        imported=True,
        evidence=evidence.against,
        remarks=evidence.remarks,
    )


def planned_arms(arms: Sequence[PublishedArm], rows: Sequence[Cells]) -> tuple[PlanArm, ...]:
    """The arms with the number of logs behind each and the noise of one."""
    means = summaries()
    n_rows = collections.Counter(row["arm"] for row in rows)
    planned = []
    for arm in arms:
        n_logs = 1
        if arm.record in means:
            n_logs = int(means[arm.record]["n_runs"])
        planned.append(
            PlanArm(
                name=arm.name,
                of=arm.name,
                changes=arm.changes,
                fields=dict(arm.fields),
                n_logs=max(n_rows[arm.name], n_logs),
                noise_sd=era_sd(arm.record),
                note=arm.note,
            )
        )
    return tuple(planned)


def planned_run(row: Cells) -> PlanRun:
    return PlanRun(
        arm=row["arm"],
        seed=row["seed"],
        replicate=row["replicate"],
        budget=row["budget"],
        role=row["role"],
        block=row["block"],
        run_id=row["run_id"],
    )
