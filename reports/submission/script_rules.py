"""The benchmark's rules on runs of foreign scripts: from their kept code and what was asked."""

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from reports.submission.case import Case, RuleAnswer, passes_if
from reports.submission.compiler_flags import compiler_flags, compiler_variables, is_variable
from reports.submission.scripts import COUNT, Scripts, data_readers, unread, validation_counts

NOT_KEPT = "the code of the runs is not kept"
SHOWN_DIGITS = 16


def script_data(case: Case) -> RuleAnswer:
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
    unseen = not_read(case.scripts, case.baseline_scripts)
    if _asked(case, case.runs) != _asked(case, case.baseline):
        unseen.insert(0, "its runs were given other arguments or variables")
    if changed:
        unseen.insert(0, f"code that reads it changed: {', '.join(changed)}")
    if unseen:
        return "cannot be known", f"{shown} as the baseline, but {'; '.join(unseen)}"
    return "passes", f"{shown} as the baseline, read by the same code: {', '.join(sorted(ours))}"


def script_validation(case: Case, rule: int) -> RuleAnswer:
    """val_tokens as the code gives it. rule: what the benchmark asks for."""
    if case.scripts is None:
        return "cannot be known", NOT_KEPT
    counts, unseen = validation_counts(case.scripts), not_read(case.scripts)
    if not counts:
        return "cannot be known", "; ".join(["the code gives val_tokens no number", *unseen])
    named = ", ".join(map(str, sorted(counts)))
    if len(counts) > 1:
        return "cannot be known", f"the code gives val_tokens several numbers: {named}"
    reason = f"val_tokens is {named} in the code; the rule is {rule}"
    if any(COUNT in asked.replace("-", "_").lower() for asked in _asked(case, case.runs)):
        return "cannot be known", f"{reason}; its runs were given one beside the code"
    if unseen and counts == {rule}:
        return "cannot be known", "; ".join([reason, *unseen])
    return passes_if(counts == {rule}), reason


def _asked(case: Case, runs: pd.DataFrame) -> set[str]:
    """All that runs were given by which a script may do another thing, but for flags."""
    asked = set()
    for trainer in case.trainers(runs):
        env = trainer.get("env") or {}
        given = [str(trainer.get("command")), *map(str, trainer.get("args") or ())]
        given += sorted(f"{name}={value}" for name, value in env.items() if not is_variable(name))
        asked.add("\0".join(given).replace(str(trainer.get("script")), ""))
    return asked


def script_flags(case: Case) -> RuleAnswer:
    """Flags of the compiler in the code, and in the variables that it was given, of each alone."""
    ours, theirs = case.scripts, case.baseline_scripts
    if ours is None:
        return "cannot be known", NOT_KEPT
    flags = {**compiler_flags(ours), **_variables_given(case, case.runs)}
    if theirs is None:
        if flags:
            return "cannot be known", f"set: {_placed(flags)}; the baseline's code is not kept"
        theirs = {}
    before = {**compiler_flags(theirs), **_variables_given(case, case.baseline)}
    extra = {flag: place for flag, place in flags.items() if flag not in before}
    unseen = not_read(ours, theirs)
    if extra:
        reasons = [f"set here and not in the baseline: {_placed(extra)}", *unseen]
        return "fails", "; ".join(reasons)
    if unseen:
        return "cannot be known", "; ".join(unseen)
    if not flags:
        return "passes", "none in the code or the variables that it is given"
    return "passes", f"none beyond the baseline's own: {', '.join(sorted(flags))}"


def _variables_given(case: Case, runs: pd.DataFrame) -> dict[str, str]:
    """Compiler variables that foreign runs were given -> where; their own before the machine's."""
    flags: set[str] = set()
    for run_id in runs["run_id"]:
        trainer = (case.config(run_id).get("config") or {}).get("trainer") or {}
        of_machine = case.experiment.environments.get(run_id, {}).get("variables")
        flags |= compiler_variables({**(of_machine or {}), **(trainer.get("env") or {})})
    return dict.fromkeys(flags, "environment")


def _placed(flags: Mapping[str, str]) -> str:
    return ", ".join(f"{flag} ({flags[flag]})" for flag in sorted(flags))


def not_read(ours: Scripts, theirs: Scripts = MappingProxyType({})) -> list[str]:
    """Which files of the code were not read, and why; those that theirs has too are the same."""
    texts = set(theirs.values())
    lines = []
    for name, reason in unread(ours).items():
        if ours[name] not in texts:
            lines.append(f"{name} was not read: {reason}")
    return lines
