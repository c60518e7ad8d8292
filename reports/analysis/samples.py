"""From the tidy table to samples per arm and metric: which runs count, at which budget, and what is doubtful about them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from reports.analysis.types import LOSSES, Warning
from reports.inputs.experiment import Experiment
from reports.stats.contrasts import Sample
from reports.stats.unblocked import welch, widening

OUTCOMES = ("finished", "diverged")
PENDING = ("pending", "running", "interrupted", "preempted", "claimed")
OUTLIER_SD = 5.0
TWO_PHASE_MARGIN = 0.001  # nats: packed and whole-node losses count as equal inside it
WHOLE_NODE_RUNS = 3


@dataclass(frozen=True, kw_only=True)
class Usable:
    """The runs that count: rows with an outcome, neither stale nor copies; warnings of the experiment as a whole."""

    runs: pd.DataFrame
    arms: tuple[str, ...]  # baseline first
    warnings: tuple[Warning, ...]


def usable(experiment: Experiment) -> Usable:
    """Raises ValueError where losses cannot be compared at all: several corpora, or an arm the plan does not know."""
    plan, runs = experiment.plan, experiment.runs
    runs = runs.astype({c: object for c in runs.columns[runs.dtypes == "str"]})  # is compared ten times as fast as strings
    baseline = plan["baseline"]
    arms = (baseline, *(a["name"] for a in plan["arms"] if a["name"] != baseline))
    unknown = sorted(set(runs["arm"]) - set(arms))
    if unknown:
        raise ValueError(
            f"experiment '{experiment.name}' has runs of '{unknown[0]}', which is none of its arms: {', '.join(arms)}"
        )
    good, warnings = runs[runs["status"].isin(OUTCOMES)], []
    lost = (good["status"] == "finished") & ~np.isfinite(good["val_loss"])
    if lost.any():
        warnings.append(Warning.NOT_A_NUMBER)
        good = good.assign(status=good["status"].mask(lost, "diverged"))
    if good["stale"].any():
        warnings.append(Warning.STALE_ACCEPTED if experiment.accept_stale else Warning.STALE)
        good = good if experiment.accept_stale else good[~good["stale"].astype(bool)]
    copies = duplicated(good)
    if copies.any():
        warnings.append(Warning.DUPLICATE_RUN)
        good = good[~copies]
    prints = sorted(set(good["fingerprint"].dropna()))
    if len(prints) > 1:
        raise ValueError(
            f"experiment '{experiment.name}' mixes runs of {len(prints)} different data sets "
            f"({', '.join(p[:8] for p in prints)}): losses on different data cannot be compared, run all arms on one corpus"
        )
    if (~runs["status"].isin((*OUTCOMES, *PENDING))).any():
        warnings.append(Warning.FAILED_RUNS)
    return Usable(runs=good, arms=arms, warnings=tuple(warnings))


def duplicated(runs: pd.DataFrame) -> pd.Series:
    """Copies: an earlier row of the arm has the same run_id, the same metrics file, or the same loss and time to the last
    digit."""
    key = ["arm", "budget", "role"]
    copy = runs.duplicated([*key, "run_id"])
    if "metrics_digest" in runs:
        copy |= runs.duplicated([*key, "metrics_digest"]) & runs["metrics_digest"].notna()
    same = runs.duplicated([*key, "val_loss", "train_time_s"])
    return copy | (same & runs["val_loss"].notna() & runs["train_time_s"].notna())


def of_role(runs: pd.DataFrame, role: str) -> pd.DataFrame:
    """Runs of a role, or all of them where the experiment has no such phase."""
    own = runs[runs["role"] == role]
    return own if len(own) else runs


def shared_budget(runs: pd.DataFrame, arms: tuple[str, ...]) -> int | None:
    """The longest budget at which every arm that has runs has some; None where there is none (every arm at its own steps)."""
    sets = [set(runs.loc[runs["arm"] == arm, "budget"]) for arm in arms]
    common = set.intersection(*(s for s in sets if s)) if any(sets) else set()
    return int(max(common)) if common else None


def at_budget(runs: pd.DataFrame, budget: int | None) -> pd.DataFrame:
    """Runs at the budget, or at each arm's own longest."""
    if budget is not None:
        return runs[runs["budget"] == budget]
    return runs[runs["budget"] == runs.groupby("arm")["budget"].transform("max")]


def sample(runs: pd.DataFrame, arm: str, metric: str) -> Sample:
    """The arm's finite values of a metric (times as logarithms) with their blocks; diverged runs are counted for the loss
    alone."""
    status, block, run_id, values = own_columns(runs, arm, "status", "block", "run_id", metric)
    done = (status == "finished") & ~np.isnan(values.astype(float))
    values = values[done].astype(float)
    if metric not in LOSSES and (values <= 0).any():
        raise ValueError(f"arm '{arm}': {metric} of {values.min():g} in run {run_id[done][values.argmin()]} is no time")
    return Sample(
        values=values if metric in LOSSES else np.log(values),
        blocks=tuple(None if pd.isna(b) else b for b in block[done].tolist()),
        n_diverged=int((status == "diverged").sum()) if metric in LOSSES else 0,
    )


def own_columns(runs: pd.DataFrame, arm: str, *columns: str) -> list[np.ndarray]:
    """The columns of an arm's rows: arrays, of which forty arms are cut in no time, as they are not from a table."""
    own = np.flatnonzero(runs["arm"].to_numpy() == arm)
    return [runs[c].to_numpy()[own] for c in columns]


def final_losses(experiment: Experiment, arm: str) -> tuple[list[float], tuple[Warning, ...]]:
    """(losses of an arm's runs at the compared budget, what is doubtful about them); raises ValueError where it diverged."""
    use = usable(experiment)
    if arm not in use.arms:
        raise ValueError(f"experiment '{experiment.name}' has no arm '{arm}': there is {', '.join(use.arms)}")
    runs = of_role(use.runs, "loss")
    own = sample(at_budget(runs, shared_budget(runs, use.arms)), arm, "val_loss")
    if own.n_diverged:
        runs_word = "run" if own.n_diverged == 1 else "runs"
        raise ValueError(f"{own.n_diverged} {runs_word} of '{arm}' diverged: a diverged run misses the target, the benchmark's "
                         "rules have no place for it")  # fmt: skip
    if not len(own.values):
        what = "only runs of an older source" if Warning.STALE in use.warnings else "no finished run yet"
        raise ValueError(f"'{arm}' of experiment '{experiment.name}' has {what}: ablate run {experiment.name}")
    kept = (Warning.DUPLICATE_RUN, Warning.STALE, Warning.STALE_ACCEPTED, Warning.FAILED_RUNS)
    return [float(v) for v in own.values], tuple(w for w in use.warnings if w in kept)


def pending(experiment: Experiment) -> int:
    return int(experiment.runs["status"].isin(PENDING).sum())


def extended(plan: Mapping[str, Any]) -> bool:
    """Whether the number of seeds was raised after the first launch."""
    locks = plan.get("locks") or []
    first = locks[0].get("plan", {}).get("seeds") if locks else None
    return first is not None and len(plan.get("seeds") or ()) > len(first)


def watched(experiment: Experiment) -> bool:
    """Whether intervals must hold however often one looks: a stopping rule, runs still to come, or seeds added since the first
    launch."""
    return bool(experiment.plan.get("seeds_rule")) or pending(experiment) > 0 or extended(experiment.plan)


def outliers(runs: pd.DataFrame, arm: str) -> tuple[str, ...]:
    """run_ids whose loss is more than OUTLIER_SD robust sd from the arm's median; needs 5 runs to tell."""
    status, run_id, loss = own_columns(runs, arm, "status", "run_id", "val_loss")
    run_id, x = run_id[status == "finished"], loss[status == "finished"].astype(float)
    if len(x) < 5:
        return ()
    spread = 1.4826 * float(np.median(np.abs(x - np.median(x))))
    return tuple(run_id[np.abs(x - np.median(x)) > OUTLIER_SD * spread].tolist()) if spread > 0 else ()


def unequal_noise(samples: list[Sample], alpha: float = 0.01) -> bool:
    """Levene's test in its median form (Brown and Forsythe 1974) over arms with 3 runs or more: a warning, never a choice of
    analysis."""
    groups = [s.values for s in samples if len(s.values) >= 3]
    return len(groups) > 1 and all(np.ptp(g) > 0 for g in groups) and bool(stats.levene(*groups, center="median").pvalue < alpha)


def equivalent(a: np.ndarray, b: np.ndarray, margin: float, alpha: float = 0.05) -> bool:
    """Two one-sided Welch tests (Schuirmann 1987), widened: is |mean(a) - mean(b)| below margin?"""
    delta, se, df = welch(a, b)
    return bool(np.isfinite(se)) and abs(delta) + widening(len(a), len(b), 2 * alpha) * stats.t.isf(alpha, df) * se < margin


def two_phase_verified(experiment: Experiment, runs: pd.DataFrame, baseline: str) -> bool:
    """Whether losses of packed runs may stand for whole-node ones: trivially so with one phase or one world size, else by
    equivalence."""
    own = runs[(runs["arm"] == baseline) & (runs["status"] == "finished")]
    phases = [own[own["role"] == role] for role in ("loss", "timing")]
    if not all(map(len, phases)):
        return True
    sizes = [{experiment.configs.get(r, {}).get("world_size") for r in phase["run_id"]} for phase in phases]
    if sizes[0] == sizes[1]:
        return True
    whole = phases[1]["val_loss"].dropna().to_numpy(float)
    return len(whole) >= WHOLE_NODE_RUNS and equivalent(phases[0]["val_loss"].dropna().to_numpy(float), whole, TWO_PHASE_MARGIN)


def time_warnings(runs: pd.DataFrame, arm: str, baseline: str) -> tuple[Warning, ...]:
    """What is doubtful about a comparison of two arms' times: hardware and nodes."""
    out = []
    if not same_hardware(runs, arm, baseline):
        out.append(Warning.MIXED_HARDWARE)
    nodes_a, nodes_b = (set(runs.loc[runs["arm"] == name, "node"].dropna()) for name in (arm, baseline))
    if nodes_a and nodes_b and not nodes_a & nodes_b:
        out.append(Warning.NO_SHARED_NODE)
    elif len(nodes_a | nodes_b) == 1:
        out.append(Warning.ONE_NODE)
    return tuple(out)


def same_hardware(runs: pd.DataFrame, *arms: str) -> bool:
    seen = [own_columns(runs, arm, "device", "gpu") for arm in arms]
    return len({(str(d), str(g)) for devices, gpus in seen for d, g in zip(devices, gpus)}) <= 1


def mean_sd(values: np.ndarray) -> tuple[float, float | None]:
    return (float(values.mean()) if len(values) else math.nan), float(values.std(ddof=1)) if len(values) > 1 else None
