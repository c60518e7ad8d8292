"""The benchmark's rules on runs of foreign scripts: from their kept code and what was asked."""

import pandas as pd

from reports.submission.case import Case, Finding, passes_if
from reports.submission.scripts import compiler_flags, data_readers, validation_counts

NOT_KEPT = "the code of the runs is not kept"
SHOWN_DIGITS = 16


def script_data(case: Case) -> Finding:
    """Whether both read the same files by the same code."""
    links = {tuple(sorted(t["data"].items())) for t in case.trainers(case.runs)}
    if links == {()}:
        return "cannot be known", "the script finds its data itself: link it with --data"
    prints = set(case.runs["fingerprint"].dropna())
    named = ", ".join(sorted({name for link in links for name, _ in link}))
    if len(prints) != 1:
        return "fails", f"the runs read {len(prints)} different sets of files as {named}"
    shown = f"{named} (fingerprint {next(iter(prints))[:SHOWN_DIGITS]})"
    if not len(case.baseline):
        return "cannot be known", f"{shown}: the baseline has no finished run here"
    if set(case.baseline["fingerprint"].dropna()) != prints:
        return "fails", f"arm and baseline read different files as {named}"
    if case.scripts is None or case.baseline_scripts is None:
        return "cannot be known", f"{shown} as the baseline: {NOT_KEPT}"
    ours, theirs = data_readers(case.scripts), data_readers(case.baseline_scripts)
    changed = sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
    if not ours and not theirs:
        return "cannot be known", f"{shown} as the baseline: no function that reads it was seen"
    if changed:
        return (
            "cannot be known",
            f"{shown} as the baseline, but code that reads it changed: {', '.join(changed)}",
        )
    return "passes", f"{shown} as the baseline, read by the same code: {', '.join(sorted(ours))}"


def script_validation(case: Case, rule: int) -> Finding:
    """val_tokens as the code gives it. rule: what the benchmark asks for."""
    if case.scripts is None:
        return "cannot be known", NOT_KEPT
    counts = validation_counts(case.scripts)
    if not counts:
        return "cannot be known", "the code gives val_tokens no number"
    named = ", ".join(map(str, sorted(counts)))
    if len(counts) > 1:
        return "cannot be known", f"the code gives val_tokens several numbers: {named}"
    return passes_if(counts == {rule}), f"val_tokens is {named} in the code; the rule is {rule}"


def script_flags(case: Case, runs: pd.DataFrame) -> dict[str, str] | None:
    """Flags that the code of foreign runs, or what was asked of them, gives the compiler.

    Each with its place; None where the code is not kept."""
    scripts = case.baseline_scripts if runs is case.baseline else case.scripts
    if scripts is None:
        return None
    return compiler_flags(scripts)
