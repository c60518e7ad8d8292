"""What a record pull request needs, from an arm's runs: a log per run, the statistics, a README.

A log is in the benchmark's format: the code that ran, its configuration and environment, and the
metric lines, parted by lines of `=` as the public logs are.  Every text passes `redact`: nothing
that looks like a secret leaves the results folder.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from harness.run.document import Document
from harness.run.foreign import OWN_LOG
from harness.run.guarded import IN_FOLDER, entries_in, is_file, read_bytes, read_text
from harness.run.results import Result
from reports.inputs.experiment import Experiment
from reports.inputs.recorded import float_or_nan, read_validations
from reports.stats.rules import TARGET
from reports.submission.case import Case, RuleCheck
from reports.submission.lint import lint, untimed_steps
from reports.submission.readme import DIFF, readme
from reports.submission.scripts import kept_scripts
from reports.submission.statistics import as_csv, baseline_beside, statistics

RULE = "=" * 100
RULE_LINE = re.compile(r"^={20,}\s*$", re.MULTILINE)
VALIDATION = re.compile(
    r"^(?:step:\d+/\d+ .*?val_loss:|s:\d+\s+tel:)(\d+(?:\.\d+)?(?:e[-+]\d+)?)(?=\s|$)", re.MULTILINE
)
Redact = Callable[[str], str]


def write_submission(
    experiment: Experiment,
    arm: str,
    out: Path,
    *,
    results: Path,
    redact: Redact,
    target: float = TARGET,
    systems_only: bool = False,
) -> list[RuleCheck]:
    """Write the folder `out`, whole or not at all; returns what the rules say.

    results: the folder with the runs' files; redact: what every text passes; target: the loss of
    the record's rule; systems_only: the arm leaves the learning as it is. Raises ValueError for an
    arm without a finished run and for a folder that holds something already.
    """
    case = Case.of(experiment, arm, target, results=results, systems_only=systems_only)
    if not len(case.runs):
        raise ValueError(
            f"arm '{arm}' of {experiment.name} has no finished run that counts: "
            f"{cure_of_no_run(experiment, arm)}"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(
            f"{out}: there is something already: name another folder, or empty this one"
        )
    checks = lint(case)
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        write_logs(beside / "logs", case.runs, experiment, results=results, redact=redact)
        write_logs(
            beside / "baseline", baseline_beside(case), experiment, results=results, redact=redact
        )
        table = as_csv(statistics(case))
        (beside / "statistics.csv").write_text(table, encoding="utf-8")
        (beside / "README.md").write_text(redact(readme(case, checks)), encoding="utf-8")
        if case.changes:
            (beside / DIFF).write_text(redact(case.changes), encoding="utf-8")
        if out.exists():
            out.rmdir()
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return checks


def cure_of_no_run(experiment: Experiment, arm: str) -> str:
    runs = experiment.runs
    if (runs["stale"].astype(bool) & (runs["arm"] == arm)).any():
        return "its runs are stale: run them again, or admit them with --accept-stale"
    return f"`ablate run {experiment.name}` first"


def write_logs(
    folder: Path, runs: pd.DataFrame, experiment: Experiment, *, results: Path, redact: Redact
) -> None:
    """A log of every run.

    folder: to write into. runs: of the arm. results: the folder with the runs' files.
    """
    folder.mkdir(parents=True)
    for run_id in runs["run_id"].astype(str):
        text = log_text(results, run_id, experiment)
        (folder / f"{run_id}.txt").write_text(redact(text), encoding="utf-8")


def log_text(results: Path, run_id: str, experiment: Experiment) -> str:
    """A run's log in the benchmark's format; of a script its own, with its code inside."""
    folder = results / "runs" / run_id
    config = experiment.configs.get(run_id, {})
    digest = (config.get("source") or {}).get("digest")
    if "trainer" in (config.get("config") or {}):
        return script_log(results, folder, digest, experiment.results.get(run_id))
    environment = experiment.environments.get(run_id, {})
    written = ""
    if is_file(folder / "config.yaml"):
        written = read_text(folder / "config.yaml")
    result = experiment.results.get(run_id)
    measured = metric_lines(folder, config, result)
    measured += memory_lines(result)
    parts = [
        code_text(results, digest),
        written.rstrip(),
        json.dumps(environment, indent=1, ensure_ascii=False),
        "\n".join([*measured, ""]),
    ]
    return f"\n{RULE}\n".join(parts)


def script_log(results: Path, folder: Path, digest: str | None, result: Result | None) -> str:
    """What a script wrote of its run: its own log file, else what it printed; its code before it.

    folder: the run's. digest: of its code. A log that holds the code already is left as it is."""
    text = own_log(folder, result)
    if text is None:
        text = printed_by_script(folder / "log.txt")
    elif RULE_LINE.search(text):
        return text
    return f"{code_text(results, digest)}\n{RULE}\n{text}"


def own_log(folder: Path, result: Result | None) -> str | None:
    """The log file that the script wrote of this result; None where there is none.

    One that ends at another loss is not what counted, such as that of a second evaluation."""
    if result is None:
        return None
    for name, kind in entries_in(folder, below=IN_FOLDER - 1).items():
        if kind == "file" and name.startswith(OWN_LOG):
            text = read_bytes(folder / name).decode("utf-8", "replace")
            losses = VALIDATION.findall(text)
            if losses and float(losses[-1]) == result.val_loss:
                return text
    return None


def printed_by_script(log: Path) -> str:
    """What stands in a run's log behind the command."""
    if not is_file(log):
        return ""
    text = read_bytes(log).decode("utf-8", "replace")
    _, command, printed = text.partition("\n$ ")
    if not command:
        return text
    return printed.partition("\n")[2]


def code_text(results: Path, digest: str | None) -> str:
    """Every file of the code that ran, one after the other."""
    scripts = kept_scripts(results, digest)
    if scripts is None:
        return f"# the code of this run ({digest}) is not in the results folder, or damaged"
    texts = []
    for name, text in scripts.items():
        texts.append(f"# {'-' * 10} {name}\n{text}")
    return "\n".join(texts)


def metric_lines(folder: Path, config: Document, result: Result | None) -> list[str]:
    """`step:i/N val_loss:... train_time:...ms step_avg:...ms` of every validation.

    The average is over the steps that the clock counted.
    """
    timing = (config.get("config") or {}).get("timing") or {}
    untimed = untimed_steps(timing.get("protocol"))
    n_steps = config.get("budget")
    if not n_steps and result is not None:
        n_steps = result.budget  # a script's own, or a log's
    lines = []
    for point in read_validations(folder / "metrics.jsonl"):
        step, ms = point.step, 1e3 * float_or_nan(point.train_time_s)
        loss, average = float_or_nan(point.val_loss), math.nan
        if step > untimed:
            average = ms / (step - untimed)
        place = f"step:{step}/{n_steps}"
        lines.append(f"{place} val_loss:{loss:.4f} train_time:{ms:.0f}ms step_avg:{average:.2f}ms")
    return lines


def memory_lines(result: Result | None) -> Sequence[str]:
    """The peak of the memory, where the run recorded it."""
    if result is None or result.peak_allocated_mib is None:
        return []
    allocated, reserved = result.peak_allocated_mib, result.peak_reserved_mib
    line = f"peak memory allocated: {allocated:.0f} MiB"
    if reserved is not None:
        line += f" reserved: {reserved:.0f} MiB"
    return [line]
