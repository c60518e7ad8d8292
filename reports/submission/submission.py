"""What a record pull request needs, from an arm's runs: one log per run in the benchmark's format, the statistics, a README.

A log holds the code that ran, its configuration and environment, and the metric lines, parted by lines of `=` as the public
logs are.  Every text passes `redact`: nothing that looks like a secret leaves the results folder.
"""

import csv
import io
import json
import math
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.run.read import read_lines
from reports.format import plural
from reports.inputs.experiment import Experiment
from reports.inputs.export import as_text
from reports.stats.rules import TARGET, track1
from reports.submission.lint import UNTIMED, Case, Check, lint

RULE = "=" * 100
Redact = Callable[[str], str]


def write_submission(
    experiment: Experiment, arm: str, out: Path, *, results: Path, redact: Redact, target: float = TARGET
) -> list[Check]:
    """Write the folder `out`, whole or not at all; returns what the rules say.

    Raises ValueError for an arm without a finished run and for a folder that holds something already."""
    case = Case.of(experiment, arm, target)
    if not len(case.runs):
        stale = bool(len(experiment.runs[(experiment.runs["arm"] == arm) & experiment.runs["stale"].astype(bool)]))
        cure = (
            "its runs are stale: run them again, or admit them with --accept-stale"
            if stale
            else f"`ablate run {experiment.name}` first"
        )
        raise ValueError(f"arm '{arm}' of {experiment.name} has no finished run that counts: {cure}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: there is something already: name another folder, or empty this one")
    checks = lint(case)
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        for folder, runs in (("logs", case.runs), ("baseline", near(case))):
            (beside / folder).mkdir(parents=True)
            for run_id in runs["run_id"]:
                text = log_text(results, str(run_id), experiment)
                (beside / folder / f"{run_id}.txt").write_text(redact(text), encoding="utf-8")
        (beside / "statistics.csv").write_text(as_csv(statistics(case)), encoding="utf-8")
        (beside / "README.md").write_text(redact(readme(case, checks)), encoding="utf-8")
        if out.exists():
            out.rmdir()
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return checks


def near(case: Case) -> pd.DataFrame:
    """The baseline's runs on nodes where the arm ran, or all of them where none is shared."""
    same = case.baseline[case.baseline["node"].isin(set(case.runs["node"].dropna()))]
    return same if len(same) else case.baseline


def log_text(results: Path, run_id: str, experiment: Experiment) -> str:
    """A run's log in the benchmark's format."""
    folder = results / "runs" / run_id
    config = experiment.configs.get(run_id, {})
    environment = experiment.environments.get(run_id, {})
    code = code_text(results / "code" / f"{(config.get('source') or {}).get('digest')}.zip")
    written = (folder / "config.yaml").read_text(encoding="utf-8") if (folder / "config.yaml").is_file() else ""
    account = json.dumps(environment, indent=1, ensure_ascii=False)
    return "\n".join([code, RULE, written.rstrip(), RULE, account, RULE, *metric_lines(folder, config, experiment, run_id), ""])


def code_text(archive: Path) -> str:
    """Every file of the code that ran, one after the other."""
    if not archive.is_file():
        return f"# the code of this run ({archive.name}) is not in the results folder"
    with zipfile.ZipFile(archive) as files:
        return "\n".join(f"# {'-' * 10} {name}\n{files.read(name).decode()}" for name in files.namelist())


def metric_lines(folder: Path, config: Mapping[str, Any], experiment: Experiment, run_id: str) -> list[str]:
    """`step:i/N val_loss:... train_time:...ms step_avg:...ms`; the average is over the steps that the clock counted."""
    untimed = UNTIMED.get(str(((config.get("config") or {}).get("timing") or {}).get("protocol")), 0)
    lines = []
    for row in read_lines(folder / "metrics.jsonl"):
        if row.get("kind") != "val":
            continue
        step, ms = int(row["step"]), 1e3 * float(row["train_time_s"])
        loss = math.nan if row["val_loss"] is None else row["val_loss"]
        average = ms / (step - untimed) if step > untimed else math.nan
        lines.append(f"step:{step}/{config.get('budget')} val_loss:{loss:.4f} train_time:{ms:.0f}ms step_avg:{average:.2f}ms")
    result = experiment.results.get(run_id, {})
    peak, reserved = (result.get(f"peak_{kind}_mib") for kind in ("allocated", "reserved"))
    if peak is not None:
        more = "" if reserved is None else f" reserved: {reserved:.0f} MiB"
        lines.append(f"peak memory allocated: {peak:.0f} MiB{more}")
    return lines


def statistics(case: Case) -> list[dict[str, Any]]:
    """The house table: runs, steps, time and loss with their deviations, p of the one-sided t test against the target."""
    return [row(case.arm, case.runs, case.target), row(f"{case.experiment.plan['baseline']} (baseline)", near(case), case.target)]


def row(name: str, runs: pd.DataFrame, target: float) -> dict[str, Any]:
    losses, times = runs["val_loss"].dropna(), runs["train_time_s"].dropna()
    try:
        p = track1(losses.tolist(), target).p
    except ValueError:
        p = None
    return {
        "arm": name,
        "runs": len(runs),
        "steps": int(runs["steps"].iloc[0]) if len(runs) else None,
        "time mean, s": number(times.mean(), 3),
        "time sd, s": number(times.std(ddof=1), 3),
        "loss mean": number(losses.mean(), 5),
        "loss sd": number(losses.std(ddof=1), 5),
        f"p (mean < {target:g})": None if p is None else f"{p:.2g}",
    }


def number(value: float, digits: int) -> str | None:
    return f"{value:.{digits}f}" if math.isfinite(value) else None


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: as_text(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    def line(cells: Sequence[Any]) -> str:
        return "| " + " | ".join("–" if c is None else str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"

    head = list(rows[0])
    return "\n".join([line(head), line(["---"] * len(head)), *(line([r[h] for h in head]) for r in rows)])


def readme(case: Case, checks: Sequence[Check]) -> str:
    plan, runs = case.experiment.plan, case.runs
    arm = next(a for a in plan["arms"] if a["name"] == case.arm)
    fields = "\n".join(f"* `{k}` = `{v}`" for k, v in (arm.get("fields") or {}).items()) or "* nothing: this is the baseline"
    losses = ", ".join(f"{v:.4f}" for v in runs["val_loss"])
    looked, lock = plural(plan.get("looks", 1), "look"), (plan.get("locks") or [{}])[-1].get("digest")
    standing = "confirmed on fresh seeds" if plan.get("confirm") else "exploratory: the same runs may have suggested the question"
    shared = set(runs["node"].dropna()) & set(near(case)["node"].dropna())
    where = (
        f"on the same node ({', '.join(sorted(shared))})" if shared else "on other nodes than the arm: times also differ by node"
    )
    command = plan.get("command") or f"ablate run {case.experiment.name}"
    return f"""# {case.arm}

{plan.get("question") or ""}

## What changed against {plan["baseline"]}

{fields}

## Statistics

{as_markdown(statistics(case))}

The baseline was run {where}. {standing[:1].upper()}{standing[1:]}. {looked} at the results, plan.lock {lock or "none"}.

## Losses

```python
losses = [{losses}]

import scipy.stats

print("p =", scipy.stats.ttest_1samp(losses, {case.target:g}, alternative="less").pvalue)
```

## Rules

{as_markdown([{"rule": c.rule, "": c.said, "reason": c.reason} for c in checks])}

## Files

`logs/` holds one log per run, `baseline/` those of the baseline: the code that ran, its configuration, its environment, its
validations. `statistics.csv` is the table above. To run it again: `{command}`.
"""
