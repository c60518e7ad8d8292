"""The benchmark's rules for a record, held against an arm's runs: each passes, fails, or cannot be known."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from reports.format import plural
from reports.inputs.experiment import Experiment
from reports.stats import rules

VAL_TOKENS = 10_485_760
CLOCK_TOLERANCE = 0.02  # of the clock, between it and the sum of its step times
COMPILER_VARIABLES = ("TORCHINDUCTOR_", "TORCH_COMPILE", "TORCHDYNAMO_")
HARMLESS_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR",)  # where compiled kernels are kept, not how they are made
UNTIMED = {"skip10": 10}  # timing protocol -> first steps that the clock does not count
Said = Literal["passes", "fails", "cannot be known"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One rule, what it says of this arm, and why."""

    rule: str
    said: Said
    reason: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the rules look at: the arm's planned runs and the baseline's, and what each finished one recorded."""

    experiment: Experiment
    arm: str
    planned: pd.DataFrame
    runs: pd.DataFrame  # finished runs of the arm
    baseline: pd.DataFrame  # finished runs of the baseline
    target: float

    @classmethod
    def of(cls, experiment: Experiment, arm: str, target: float) -> "Case":
        counted = experiment.runs if experiment.accept_stale else experiment.runs[~experiment.runs["stale"].astype(bool)]
        done = counted[counted["status"] == "finished"]
        longest = done[done["budget"] == done.groupby("arm")["budget"].transform("max")]
        planned = counted[(counted["arm"] == arm) & counted["budget"].isin(longest.loc[longest["arm"] == arm, "budget"])]
        base = experiment.plan["baseline"]
        return cls(
            experiment=experiment, arm=arm, planned=planned, runs=longest[longest["arm"] == arm],
            baseline=longest[longest["arm"] == base], target=target,
        )  # fmt: skip

    def field(self, dotted: str) -> set[Any]:
        """The distinct values of a configuration field over the arm's runs; None where a run recorded none."""
        section, _, name = dotted.partition(".")
        return {((config or {}).get(section) or {}).get(name) for config in self.facts("config")}

    def facts(self, key: str) -> list[Any]:
        """A part of each run's record; None where a run has none."""
        return [self.experiment.configs.get(r, {}).get(key) for r in self.runs["run_id"]]


def data_untouched(case: Case) -> tuple[Said, str]:
    corpora, prints = case.field("data.corpus"), set(case.runs["fingerprint"].dropna())
    if len(prints) != 1:
        return (
            ("fails", f"the runs read {len(prints)} different corpora")
            if prints
            else ("cannot be known", "no fingerprint was recorded")
        )
    name = next((str(c) for c in corpora if c), str(case.experiment.plan["corpus"]["name"]))
    if not name.lower().startswith("fineweb"):
        return "fails", f"the runs were trained on '{name}', the benchmark's data are fineweb10B"
    if case.field("data.order") - {"sequential", None}:
        return "fails", "data.order is not sequential: the stream of tokens is another one"
    if len(case.baseline) and set(case.baseline["fingerprint"].dropna()) != prints:
        return "fails", "arm and baseline read different tokens"
    return "cannot be known", f"fingerprint {next(iter(prints))[:16]}: there is none of the official shards to compare with"


def validation_tokens(case: Case) -> tuple[Said, str]:
    seen = case.field("data.val_tokens")
    if None in seen or not seen:
        return "cannot be known", "the number of validation tokens was not recorded"
    return (
        "passes" if seen == {VAL_TOKENS} else "fails"
    ), f"validated on {', '.join(map(str, sorted(seen)))} tokens; the rule is {VAL_TOKENS}"


def flags_of(case: Case, runs: pd.DataFrame) -> list[frozenset[str]] | None:
    """The compiler's flags of each run, from its configuration and its environment; None where some were not recorded."""
    found = []
    for run_id in runs["run_id"]:
        config = (case.experiment.configs.get(run_id, {}).get("config") or {}).get("system") or {}
        variables = case.experiment.environments.get(run_id, {}).get("variables")
        if config.get("coordinate_descent") is None or variables is None:
            return None
        tuned = {"coordinate_descent_tuning (system.coordinate_descent)"} if config["coordinate_descent"] else set()
        found.append(
            frozenset(tuned | {v for v in variables if v.startswith(COMPILER_VARIABLES) and v not in HARMLESS_VARIABLES})
        )
    return found or None


def compile_flags(case: Case) -> tuple[Said, str]:
    """The rule forbids flags that the record built on does not have: records 2 to 17 themselves set coordinate_descent_tuning,
    so every run's flags are held against those of the baseline's runs."""
    own, base = flags_of(case, case.runs), flags_of(case, case.baseline)
    if own is None:
        return "cannot be known", "the compiler's settings or the environment variables of some runs were not recorded"
    seen = frozenset().union(*own)
    if not seen:
        return "passes", "none in the configuration or the environment"
    named = ", ".join(sorted(seen))
    if base is None:
        return "cannot be known", f"set: {named}; whether the baseline's runs had the same was not recorded"
    extra = sorted(seen - frozenset.intersection(*base))
    if extra:
        return "fails", f"set here and not in every run of the baseline: {', '.join(extra)}"
    return "passes", f"none beyond the baseline's own: {named} is set in all its runs too"


def significant(case: Case) -> tuple[Said, str]:
    diverged = int((case.planned["status"] == "diverged").sum())
    if diverged:
        return "fails", f"{diverged} of {len(case.planned)} runs diverged: the t test has no place for them"
    try:
        result = rules.track1(case.runs["val_loss"].tolist(), case.target)
    except ValueError as error:
        return "fails", str(error)
    looks = int(case.experiment.plan.get("looks") or 1)
    more = f", at {looks} looks: each further look adds false passes" if looks > 1 else ""
    return (
        "passes" if result.significant else "fails"
    ), f"p = {result.p:.2g} for a mean below {case.target:g}, n = {len(case.runs)}{more}"


def same_hardware(case: Case) -> tuple[Said, str]:
    if not len(case.baseline):
        return "cannot be known", "the baseline has no finished run here"

    def kinds(runs: pd.DataFrame) -> set[tuple[Any, ...]]:
        size = [case.experiment.configs.get(r, {}).get("world_size") for r in runs["run_id"]]
        return set(zip(runs["device"], runs["gpu"], size))

    own, base = kinds(case.runs), kinds(case.baseline)
    if any(pd.isna(gpu) or size is None for _, gpu, size in own | base):
        return "cannot be known", "the hardware of some runs was not recorded"
    words = "; ".join(sorted(f"{n or 1} x {gpu}" for _, gpu, n in own))
    shared = set(case.runs["node"].dropna()) & set(case.baseline["node"].dropna())
    where = f", {plural(len(shared), 'shared node')}" if shared else ", no shared node: times also differ by node (1 to 3 %)"
    return ("passes" if own == base and len(own) == 1 else "fails"), words + where


def independent_seeds(case: Case) -> tuple[Said, str]:
    waiting = int((~case.planned["status"].isin(("finished", "diverged"))).sum())
    if waiting:
        return (
            "cannot be known",
            f"{waiting} of {len(case.planned)} planned runs have no outcome: the list could have been chosen",
        )
    if case.runs["metrics_digest"].dropna().duplicated().any():
        return "fails", "two runs have the same metrics file"
    if case.runs["seed"].isna().any():
        return "cannot be known", "runs have no recorded seed"
    if case.runs[["seed", "replicate"]].duplicated().any():
        return "fails", "a seed was used twice"
    return "passes", f"{len(case.runs)} different seeds, every planned run counted"


def clock_covers(case: Case) -> tuple[Said, str]:
    if case.runs["self_reported"].astype(bool).any() or case.runs["imported"].astype(bool).any():
        return "cannot be known", "the clock is the script's own (self-reported)"
    protocols = case.field("timing.protocol")
    untimed = UNTIMED.get(next(iter(protocols)) if len(protocols) == 1 else "", 0)
    summed = case.runs["step_ms"] * (case.runs["steps"] - untimed) / 1e3
    off = float((summed / case.runs["train_time_s"] - 1.0).abs().max())
    if not math.isfinite(off):
        return "cannot be known", "step times were not recorded"
    named = ", ".join(str(p) for p in protocols)
    words = f"training steps alone ({named}); the sum of the step times is within {100 * off:.1f} % of the clock"
    return ("passes" if off <= CLOCK_TOLERANCE else "fails"), words


def one_code(case: Case) -> tuple[Said, str]:
    digests = {(source or {}).get("digest") for source in case.facts("source")}
    if not digests or None in digests:
        return "cannot be known", "the code of the runs was not recorded"
    if len(digests) > 1:
        return "fails", f"the runs executed {len(digests)} versions of the code"
    return "passes", f"all runs executed {next(iter(digests))}"


RULES: Mapping[str, Callable[[Case], tuple[Said, str]]] = {
    "data untouched": data_untouched,
    f"{VAL_TOKENS} validation tokens": validation_tokens,
    "no extra compile flags": compile_flags,
    "p < 0.01": significant,
    "same hardware as the baseline": same_hardware,
    "seeds independent": independent_seeds,
    "the clock covers what it must": clock_covers,
    "one code": one_code,
}


def lint(case: Case) -> list[Check]:
    """Every rule on this arm."""
    return [Check(rule=name, said=(outcome := rule(case))[0], reason=outcome[1]) for name, rule in RULES.items()]
