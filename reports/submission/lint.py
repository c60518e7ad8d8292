"""The benchmark's rules for a record, held against an arm's runs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from harness.run.document import Document
from reports.format import plural
from reports.inputs.experiment import Experiment
from reports.stats import rules

VAL_TOKENS = 10_485_760
CLOCK_TOLERANCE = 0.02  # of the clock, between it and the sum of its step times
COMPILER_VARIABLES = ("TORCHINDUCTOR_", "TORCH_COMPILE", "TORCHDYNAMO_")
HARMLESS_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR",)  # where compiled kernels are kept
COORDINATE_DESCENT = "coordinate_descent_tuning (system.coordinate_descent)"
UNTIMED = {"skip10": 10}  # timing protocol -> first steps that the clock does not count
Said = Literal["passes", "fails", "cannot be known"]
Finding = tuple[Said, str]  # what a rule says, and why


@dataclass(frozen=True, kw_only=True)
class RuleCheck:
    """One rule, what it says of this arm, and why."""

    rule: str
    said: Said
    reason: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the rules look at: the arm's runs and the baseline's."""

    experiment: Experiment
    arm: str
    planned: pd.DataFrame
    runs: pd.DataFrame  # finished runs of the arm
    baseline: pd.DataFrame  # finished runs of the baseline
    target: float

    @classmethod
    def of(cls, experiment: Experiment, arm: str, target: float) -> "Case":
        counted = experiment.runs
        if not experiment.accept_stale:
            counted = counted[~counted["stale"].astype(bool)]
        done = counted[counted["status"] == "finished"]
        longest = done[done["budget"] == done.groupby("arm")["budget"].transform("max")]
        runs = longest[longest["arm"] == arm]
        of_arm = counted[counted["arm"] == arm]
        return cls(
            experiment=experiment,
            arm=arm,
            planned=of_arm[of_arm["budget"].isin(runs["budget"])],
            runs=runs,
            baseline=longest[longest["arm"] == experiment.plan.baseline],
            target=target,
        )

    def config(self, run_id: str) -> Document:
        """A run's config.yaml; empty where there is none."""
        return self.experiment.configs.get(run_id, {})

    def field(self, dotted: str) -> set[Any]:
        """The distinct values of a configuration field over the arm's runs, None if unrecorded."""
        section, _, name = dotted.partition(".")
        values = set()
        for config in self.facts("config"):
            fields = (config or {}).get(section) or {}
            values.add(fields.get(name))
        return values

    def facts(self, key: str) -> list[Any]:
        """A part of each run's record; None where a run has none."""
        return [self.config(run_id).get(key) for run_id in self.runs["run_id"]]


def passes_if(holds: bool) -> Said:
    if holds:
        return "passes"
    return "fails"


def data_untouched(case: Case) -> Finding:
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


def validation_tokens(case: Case) -> Finding:
    seen = case.field("data.val_tokens")
    if None in seen or not seen:
        return "cannot be known", "the number of validation tokens was not recorded"
    counts = ", ".join(map(str, sorted(seen)))
    reason = f"validated on {counts} tokens; the rule is {VAL_TOKENS}"
    return passes_if(seen == {VAL_TOKENS}), reason


def flags_of_run(case: Case, run_id: str) -> frozenset[str] | None:
    """The compiler's flags of a run; None where some were not recorded."""
    system = (case.config(run_id).get("config") or {}).get("system") or {}
    variables = case.experiment.environments.get(run_id, {}).get("variables")
    if system.get("coordinate_descent") is None or variables is None:
        return None
    flags = set()
    if system["coordinate_descent"]:
        flags.add(COORDINATE_DESCENT)
    for variable in variables:
        if variable.startswith(COMPILER_VARIABLES) and variable not in HARMLESS_VARIABLES:
            flags.add(variable)
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


def compile_flags(case: Case) -> Finding:
    """The rule forbids flags that the record built on does not have.

    Records 2 to 17 themselves set coordinate_descent_tuning, so every run's flags are held against
    those of the baseline's runs.
    """
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


def significance(case: Case) -> Finding:
    diverged = int((case.planned["status"] == "diverged").sum())
    if diverged:
        n_planned = len(case.planned)
        return "fails", f"{diverged} of {n_planned} runs diverged: the t test has no place for them"
    try:
        result = rules.track1(case.runs["val_loss"].tolist(), case.target)
    except ValueError as error:
        return "fails", str(error)
    reason = f"p = {result.p:.2g} for a mean below {case.target:g}, n = {len(case.runs)}"
    looks = int(case.experiment.plan.looks or 1)
    if looks > 1:
        reason += f", at {looks} looks: each further look adds false passes"
    return passes_if(result.significant), reason


def hardware_of(case: Case, runs: pd.DataFrame) -> set[tuple[Any, Any, Any]]:
    """(device, GPU, number of processes) of every run."""
    sizes = [case.config(run_id).get("world_size") for run_id in runs["run_id"]]
    return set(zip(runs["device"], runs["gpu"], sizes))


def hardware_as_baseline(case: Case) -> Finding:
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


def independent_seeds(case: Case) -> Finding:
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


def clock_covers(case: Case) -> Finding:
    runs = case.runs
    if runs["self_reported"].astype(bool).any() or runs["imported"].astype(bool).any():
        return "cannot be known", "the clock is the script's own (self-reported)"
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


def one_code(case: Case) -> Finding:
    digests = {(source or {}).get("digest") for source in case.facts("source")}
    if not digests or None in digests:
        return "cannot be known", "the code of the runs was not recorded"
    if len(digests) > 1:
        return "fails", f"the runs executed {len(digests)} versions of the code"
    return "passes", f"all runs executed {next(iter(digests))}"


RULES: Mapping[str, Callable[[Case], Finding]] = {
    "data untouched": data_untouched,
    f"{VAL_TOKENS} validation tokens": validation_tokens,
    "no extra compile flags": compile_flags,
    "p < 0.01": significance,
    "same hardware as the baseline": hardware_as_baseline,
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
