"""The README of a record's pull request."""

from collections.abc import Sequence

from harness.run.plan import Plan
from harness.run.plural import plural
from reports.submission.case import Case, RuleCheck
from reports.submission.scripts import lines_of
from reports.submission.statistics import as_markdown, baseline_beside, statistics

README = """# {arm}

{question}

## What changed against {baseline}

{fields}

## Statistics

{statistics}

The baseline was run {where}. {standing}. {looks} at the results, plan.lock {lock}.

## Losses

```python
losses = [{losses}]

import scipy.stats

print("p =", scipy.stats.ttest_1samp(losses, {target}, alternative="less").pvalue)
```

## Rules

{rules}

## Files

`logs/` holds one log per run, `baseline/` those of the baseline: {logs}. \
`statistics.csv` is the table above. To run it again: `{command}`.
"""
OUR_LOGS = "the code that ran, its configuration, its environment, its validations"
SCRIPT_LOGS = "the code that ran, and what the script wrote"
DIFF = "changes.diff"
MAX_DIFF = 200  # lines of it in the README


def readme(case: Case, checks: Sequence[RuleCheck]) -> str:
    plan = case.experiment.plan
    lock = "none"
    if plan.locks:
        lock = plan.locks[-1].digest or "none"
    rules = [{"rule": c.rule, "": c.said, "reason": c.reason} for c in checks]
    return README.format(
        arm=case.arm,
        question=plan.question or "",
        baseline=plan.baseline,
        fields=fields_of(plan, case.arm) + diff_in_words(case),
        logs=SCRIPT_LOGS if case.is_foreign else OUR_LOGS,
        statistics=as_markdown(statistics(case)),
        where=where_the_baseline_ran(case),
        standing=standing_words(plan),
        looks=plural(plan.looks, "look"),
        lock=lock,
        losses=", ".join(f"{loss:.4f}" for loss in case.runs["val_loss"]),
        target=f"{case.target:g}",
        rules=as_markdown(rules),
        command=plan.command or f"ablate run {case.experiment.name}",
    )


def fields_of(plan: Plan, arm: str) -> str:
    """What the arm sets otherwise than the baseline, as a list."""
    fields = plan.by_arm[arm].fields
    if not fields:
        return "* nothing: this is the baseline"
    return "\n".join(f"* `{name}` = `{value}`" for name, value in fields.items())


def diff_in_words(case: Case) -> str:
    """What changed in the script: how many lines, and the first of them."""
    lines = lines_of(case.changes)
    if not lines:
        return ""
    n_new = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    n_old = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    said = f"\n\nLines of code: {n_new} new, {n_old} gone (`{DIFF}`):\n\n"
    shown = "\n".join(lines[:MAX_DIFF])
    rest = ""
    if len(lines) > MAX_DIFF:
        rest = f"\n... {plural(len(lines) - MAX_DIFF, 'line')} more"
    return f"{said}````diff\n{shown}{rest}\n````"


def standing_words(plan: Plan) -> str:
    if plan.confirm:
        return "Confirmed on fresh seeds"
    return "Exploratory: the same runs may have suggested the question"


def where_the_baseline_ran(case: Case) -> str:
    shared = set(case.runs["node"].dropna()) & set(baseline_beside(case)["node"].dropna())
    if not shared:
        return "on other nodes than the arm: times also differ by node"
    return f"on the same node ({', '.join(sorted(shared))})"
