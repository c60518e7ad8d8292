"""The benchmark's rules for a record, held against an arm's runs."""

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

import pandas as pd

from harness.run.plural import plural
from reports.stats import rules
from reports.submission.case import Case, RuleAnswer, RuleCheck, passes_if
from reports.submission.compiler_flags import compiler_variables
from reports.submission.script_rules import script_data, script_flags, script_validation

VAL_TOKENS = 10_485_760  # that the benchmark validates on
CLOCK_TOLERANCE = 0.02  # of the clock, between it and the sum of its step times
COORDINATE_DESCENT = "coordinate_descent_tuning (system.coordinate_descent)"
UNTIMED = {"skip10": 10}  # timing protocol -> first steps that the clock does not count


def data_untouched(case: Case) -> RuleAnswer:
    if case.is_imported:
        return "cannot be known", "a log does not say which data it read"
    if case.is_foreign:
        return script_data(case)
    prints = set(case.runs["fingerprint"].dropna())
    if not prints:
        return "cannot be known", "no fingerprint was recorded"
    if len(prints) > 1:
        return "fails", f"the runs read {len(prints)} different corpora"
    name = corpus_of(case)
    if not name.lower().startswith("fineweb"):
        return "fails", f"the runs were trained on '{name}', the benchmark's data are fineweb10B"
    if case.field("data.order") - {"sequential", None}:
        return "fails", "data.order is not sequential: the stream of tokens is another one"
    if len(case.baseline) and set(case.baseline["fingerprint"].dropna()) != prints:
        return "fails", "arm and baseline read different tokens"
    fingerprint = next(iter(prints))[:16]
    return (
        "cannot be known",
        f"fingerprint {fingerprint}: there is none of the official shards to compare with",
    )


def corpus_of(case: Case) -> str:
    """The corpus that the runs name, else the plan's."""
    for corpus in case.field("data.corpus"):
        if corpus:
            return str(corpus)
    return str(case.experiment.plan.corpus.name)


def validation_tokens(case: Case) -> RuleAnswer:
    if case.is_foreign:
        return script_validation(case, VAL_TOKENS)
    seen = case.field("data.val_tokens")
    if None in seen or not seen:
        return "cannot be known", "the number of validation tokens was not recorded"
    counts = ", ".join(map(str, sorted(seen)))
    reason = f"validated on {counts} tokens; the rule is {VAL_TOKENS}"
    return passes_if(seen == {VAL_TOKENS}), reason


def flags_of_run(case: Case, run_id: str) -> frozenset[str] | None:
    """The compiler's flags of a run of ours; None where some were not recorded."""
    system = (case.config(run_id).get("config") or {}).get("system") or {}
    variables = case.experiment.environments.get(run_id, {}).get("variables")
    if system.get("coordinate_descent") is None or variables is None:
        return None
    flags = compiler_variables(variables)
    if system["coordinate_descent"]:
        flags.add(COORDINATE_DESCENT)
    return frozenset(flags)


def flags_of(case: Case, runs: pd.DataFrame) -> list[frozenset[str]] | None:
    """The compiler's flags of each run; None where some were not recorded, or there is no run."""
    flags = []
    for run_id in runs["run_id"]:
        of_run = flags_of_run(case, run_id)
        if of_run is None:
            return None
        flags.append(of_run)
    return flags or None


def compile_flags(case: Case) -> RuleAnswer:
    """The rule forbids flags that the record built on does not have.

    Records 2 to 17 themselves set coordinate_descent_tuning, so every run's flags are held against
    those of the baseline's runs.
    """
    if case.is_foreign:
        return script_flags(case)
    flags, base_flags = flags_of(case, case.runs), flags_of(case, case.baseline)
    if flags is None:
        return (
            "cannot be known",
            "the compiler's settings or the environment variables of some runs were not recorded",
        )
    seen = frozenset().union(*flags)
    if not seen:
        return "passes", "none in the configuration or the environment"
    named = ", ".join(sorted(seen))
    if base_flags is None:
        return (
            "cannot be known",
            f"set: {named}; whether the baseline's runs had the same was not recorded",
        )
    extra = sorted(seen - frozenset.intersection(*base_flags))
    if extra:
        return "fails", f"set here and not in every run of the baseline: {', '.join(extra)}"
    return "passes", f"none beyond the baseline's own: {named} is set in all its runs too"


def significance(case: Case) -> RuleAnswer:
    diverged = int((case.planned["status"] == "diverged").sum())
    if diverged:
        n_planned = len(case.planned)
        return "fails", f"{diverged} of {n_planned} runs diverged: the t test has no place for them"
    try:
        result = rules.track1(case.runs["val_loss"].tolist(), case.target)
    except ValueError as error:
        return "fails", str(error)
    reason = f"p = {result.p:.2g} for a mean below {case.target:g}, n = {len(case.runs)}"
    reason += f", loss buffer {buffer_of(case):.4f}"
    looks = int(case.experiment.plan.looks or 1)
    if looks > 1:
        reason += f", at {looks} looks: each further look adds false passes"
    if case.systems_only and not result.significant:
        return waiver(case, reason)
    return passes_if(result.significant), reason


def buffer_of(case: Case) -> float:
    """How far the mean loss lies below the target."""
    return case.target - float(case.runs["val_loss"].mean())


def _listed(runs: pd.DataFrame, metric: str) -> list[float]:
    return [float(value) for value in runs[metric].dropna()]


def waiver(case: Case, reason: str) -> RuleAnswer:
    """The rule on the loss is waived for what changes systems alone; its loss must not be worse."""
    try:
        worse = rules.lower(
            _listed(case.baseline, "val_loss"), _listed(case.runs, "val_loss"), "losses"
        )
    except ValueError as error:
        return "cannot be known", f"claimed as systems only, {error}; {reason}"
    gap = f"its loss is {-worse.gap:+.4f} against the baseline's (p = {worse.p:.2g})"
    if worse.p < rules.TRACK1_P:
        return "fails", f"claimed as systems only, but {gap}; {reason}"
    return "waived", f"claimed as systems only: {gap}; {reason}"


def hardware_of(case: Case, runs: pd.DataFrame) -> set[tuple[Any, Any, Any]]:
    """(device, its name, how many) of every run; of a log the GPUs that it lists."""
    machines = set()
    has_gpus = bool(runs["gpu"].notna().any())
    for run_id, device, gpu in zip(runs["run_id"], runs["device"], runs["gpu"]):
        environment = case.experiment.environments.get(run_id, {})
        size, name = case.config(run_id).get("world_size"), gpu
        if case.is_imported:
            size = len(environment.get("gpus") or ()) or None
        if device == "cpu" and not has_gpus:
            name = environment.get("cpu")
        machines.add((device, name, size))
    return machines


def hardware_as_baseline(case: Case) -> RuleAnswer:
    if not len(case.baseline):
        return "cannot be known", "the baseline has no finished run here"
    machines, base = hardware_of(case, case.runs), hardware_of(case, case.baseline)
    if any(pd.isna(gpu) or size is None for _, gpu, size in machines | base):
        return "cannot be known", "the hardware of some runs was not recorded"
    named = "; ".join(sorted(f"{size or 1} x {gpu}" for _, gpu, size in machines))
    shared = set(case.runs["node"].dropna()) & set(case.baseline["node"].dropna())
    where = "no shared node: times also differ by node (up to 8 %)"
    if shared:
        where = plural(len(shared), "shared node")
    return passes_if(machines == base and len(machines) == 1), f"{named}, {where}"


def faster_than_baseline(case: Case) -> RuleAnswer:
    """Rule 4 of the benchmark: faster than the record before, on the same hardware."""
    said, machines = hardware_as_baseline(case)
    if said != "passes":
        return "cannot be known", f"times are compared on the same hardware alone: {machines}"
    counted = [hint for hint in case.plan_arm.hints if hint.compared]
    if counted:
        lines = ", ".join(str(hint.line) for hint in counted)
        return "cannot be known", f"its clock counts other things than the baseline's: line {lines}"
    times, before = (_listed(runs, "train_time_s") for runs in (case.runs, case.baseline))
    try:
        faster = rules.lower(times, before, "times")
    except ValueError as error:
        return "cannot be known", str(error)
    share = 100 * faster.gap / fmean(before)
    reason = (
        f"{faster.gap:+.3f} s ({share:+.2f} %), p = {faster.p:.2g} (Welch, one-sided), "
        f"n = {faster.n[0]} and {faster.n[1]}"
    )
    return passes_if(faster.p < rules.TRACK1_P), reason


def independent_seeds(case: Case) -> RuleAnswer:
    waiting = int((~case.planned["status"].isin(("finished", "diverged"))).sum())
    if waiting:
        return (
            "cannot be known",
            f"{waiting} of {len(case.planned)} planned runs have no outcome: the list could have "
            "been chosen",
        )
    if case.runs["metrics_digest"].dropna().duplicated().any():
        return "fails", "two runs have the same metrics file"
    if case.runs["seed"].isna().any():
        return "cannot be known", "runs have no recorded seed"
    if case.runs[["seed", "replicate"]].duplicated().any():
        return "fails", "a seed was used twice"
    return "passes", f"{len(case.runs)} different seeds, every planned run counted"


def untimed_steps(protocol: Any) -> int:
    """First steps that the clock of a timing protocol does not count."""
    return UNTIMED.get(str(protocol), 0)


def clock_covers(case: Case) -> RuleAnswer:
    runs = case.runs
    if runs["self_reported"].astype(bool).any() or runs["imported"].astype(bool).any():
        doubts = [f"line {hint.line}: {hint.text}" for hint in case.plan_arm.hints if hint.doubt]
        reason = "; ".join(["the clock is the script's own (self-reported)", *doubts])
        return "cannot be known", reason
    protocols = case.field("timing.protocol")
    untimed = 0
    if len(protocols) == 1:
        untimed = untimed_steps(*protocols)
    summed = runs["step_ms"] * (runs["steps"] - untimed) / 1e3
    off = float((summed / runs["train_time_s"] - 1.0).abs().max())
    if not math.isfinite(off):
        return "cannot be known", "step times were not recorded"
    named = ", ".join(map(str, protocols))
    reason = (
        f"training steps alone ({named}); the sum of the step times is within {100 * off:.1f} % of "
        "the clock"
    )
    return passes_if(off <= CLOCK_TOLERANCE), reason


def one_code(case: Case) -> RuleAnswer:
    digests = {(source or {}).get("digest") for source in case.facts("source")}
    if not digests or None in digests:
        return "cannot be known", "the code of the runs was not recorded"
    if len(digests) > 1:
        return "fails", f"the runs executed {len(digests)} versions of the code"
    return "passes", f"all runs executed {next(iter(digests))}"


RULES: Mapping[str, Callable[[Case], RuleAnswer]] = {
    "data untouched": data_untouched,
    f"{VAL_TOKENS} validation tokens": validation_tokens,
    "no extra compile flags": compile_flags,
    "p < 0.01": significance,
    "same hardware as the baseline": hardware_as_baseline,
    "faster than the baseline": faster_than_baseline,
    "seeds independent": independent_seeds,
    "the clock covers what it must": clock_covers,
    "one code": one_code,
}


def lint(case: Case) -> list[RuleCheck]:
    """Every rule on this arm."""
    checks = []
    for name, rule in RULES.items():
        said, reason = rule(case)
        checks.append(RuleCheck(rule=name, said=said, reason=reason))
    return checks
