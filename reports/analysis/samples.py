"""From the tidy table to samples per arm and metric: which runs count, what to doubt of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from harness.run.plan import Plan, PlanArm
from reports.analysis.cautions import Caution
from reports.analysis.copies import duplicated
from reports.analysis.machines import (
    columns_of,
    differs_in_a_block,
    environment_change,
    environment_of,
    is_cut,
    is_sticky,
    nodes_unknown,
    same_machine,
)
from reports.analysis.prior import prior_is_late
from reports.analysis.types import COMPARED_TIMES
from reports.inputs.experiment import Experiment
from reports.stats.contrasts import Sample
from reports.stats.simultaneous import Array
from reports.stats.unblocked import welch, widening

OUTCOMES = ("finished", "diverged")
PENDING = ("pending", "running", "interrupted", "preempted", "claimed")
OUTLIER_SD = 5.0
TWO_PHASE_MARGIN = 0.001  # nats: packed and whole-node losses count as equal inside it
WHOLE_NODE_RUNS = 3  # of an arm, from which on packed losses are held against theirs


@dataclass(frozen=True, kw_only=True)
class Usable:
    """The runs that count: rows with an outcome, neither stale nor copies."""

    runs: pd.DataFrame
    arms: tuple[str, ...]  # baseline first
    warnings: tuple[Caution, ...]  # of the experiment as a whole


def deciding_metric(plan: Plan) -> str:
    """The loss, or metric of the script's own, without which a finished run counts as diverged.

    The primary one; where a time is primary, the first own metric, else the validation loss."""
    if plan.primary == "val_loss" or plan.primary in plan.own_metrics:
        return plan.primary
    return next(iter(plan.own_metrics), "val_loss")


def usable(experiment: Experiment) -> Usable:
    """The runs that count, with what is doubtful about all of them.

    Raises ValueError where losses cannot be compared at all: several corpora, or an arm the plan
    does not know."""
    runs = experiment.runs
    strings = runs.columns[runs.dtypes == "str"]  # as objects compared ten times as fast
    runs = pd.concat([runs.drop(columns=strings), runs[strings].astype(object)], axis=1)
    arms = arms_in_order(experiment.plan)
    unknown = sorted(set(runs["arm"]) - set(arms))
    if unknown:
        raise ValueError(
            f"experiment '{experiment.name}' has runs of '{unknown[0]}', "
            f"which is none of its arms: {', '.join(arms)}"
        )
    good = runs[runs["status"].isin(OUTCOMES)]
    warnings = []
    lost = (good["status"] == "finished") & ~np.isfinite(good[deciding_metric(experiment.plan)])
    if lost.any():
        warnings.append(Caution.NOT_A_NUMBER)
        good = good.assign(status=good["status"].mask(lost, "diverged"))
    if good["stale"].any():
        if experiment.accept_stale:
            warnings.append(Caution.STALE_ACCEPTED)
        else:
            warnings.append(Caution.STALE)
            good = good[~good["stale"].astype(bool)]
    copies = duplicated(good)
    if copies.any():
        warnings.append(Caution.DUPLICATE_RUN)
        good = good[~copies]
    _refuse_several_corpora(experiment.name, good)
    if "disturbed" in good and good["disturbed"].astype(bool).any():
        warnings.append(Caution.DISTURBED)
    if (~runs["status"].isin((*OUTCOMES, *PENDING))).any():
        warnings.append(Caution.FAILED_RUNS)
    return Usable(runs=good, arms=arms, warnings=tuple(warnings))


def arms_in_order(plan: Plan) -> tuple[str, ...]:
    """Names of the arms, the baseline first."""
    names = [arm.name for arm in plan.arms if arm.name != plan.baseline]
    return (plan.baseline, *names)


def arms_off_the_axes(plan: Plan) -> list[PlanArm]:
    """The arms of the design as they are, without the points of axes that cross them."""
    return [arm for arm in plan.arms if arm.of == arm.name]


def arms_on_the_axes(plan: Plan) -> list[PlanArm]:
    """The arms at a point of the axes: a baseline whose own values none of them has is at none."""
    return [arm for arm in plan.arms if arm.point]


def _refuse_several_corpora(name: str, runs: pd.DataFrame) -> None:
    fingerprints = sorted(set(runs["fingerprint"].dropna()))
    if len(fingerprints) > 1:
        shortened = ", ".join(fingerprint[:8] for fingerprint in fingerprints)
        raise ValueError(
            f"experiment '{name}' mixes runs of {len(fingerprints)} different data sets "
            f"({shortened}): losses on different data cannot be compared, run all arms on one "
            "corpus"
        )


def of_role(runs: pd.DataFrame, role: str) -> pd.DataFrame:
    """Runs of a role, or all of them where the experiment has no such phase."""
    of_it = runs[runs["role"] == role]
    return of_it if len(of_it) else runs


def shared_budget(runs: pd.DataFrame, arms: Sequence[str]) -> int | None:
    """The longest budget at which every arm that has runs has some.

    None where there is none: every arm at its own steps."""
    common: set[int] | None = None
    for arm in arms:
        budgets = set(runs.loc[runs["arm"] == arm, "budget"])
        if budgets:
            common = budgets if common is None else common & budgets
    return int(max(common)) if common else None


def at_budget(runs: pd.DataFrame, budget: int | None) -> pd.DataFrame:
    """Runs at the budget, or at each arm's own longest."""
    if budget is not None:
        return runs[runs["budget"] == budget]
    return runs[runs["budget"] == runs.groupby("arm")["budget"].transform("max")]


def sample(runs: pd.DataFrame, arm: str, metric: str) -> Sample:
    """The arm's finite values of a metric (times as logarithms) with their blocks.

    Diverged runs are counted for all but times."""
    status, block, run_id, column = columns_of(runs, arm, "status", "block", "run_id", metric)
    done = (status == "finished") & ~np.isnan(column.astype(float))
    values = column[done].astype(float)
    in_block = ~pd.isna(block)
    if metric not in COMPARED_TIMES:  # without a seed a block is shared in time alone
        (seed,) = columns_of(runs, arm, "seed")
        in_block &= ~pd.isna(seed)
    names = zip(block[done].tolist(), in_block[done], strict=True)
    blocks = tuple(name if is_in else None for name, is_in in names)
    if metric not in COMPARED_TIMES:
        n_diverged = int((status == "diverged").sum())
        return Sample(values=values, blocks=blocks, n_diverged=n_diverged)
    if (values <= 0).any():
        where = run_id[done][values.argmin()]
        raise ValueError(f"arm '{arm}': {metric} of {values.min():g} in run {where} is no time")
    return Sample(values=np.log(values), blocks=blocks)


def final_losses(experiment: Experiment, arm: str) -> tuple[list[float], tuple[Caution, ...]]:
    """(losses of an arm's runs at the compared budget, what is doubtful about them).

    Raises ValueError where a run diverged."""
    use = usable(experiment)
    if arm not in use.arms:
        raise ValueError(
            f"experiment '{experiment.name}' has no arm '{arm}': there is {', '.join(use.arms)}"
        )
    runs = of_role(use.runs, "loss")
    losses = sample(at_budget(runs, shared_budget(runs, use.arms)), arm, "val_loss")
    if losses.n_diverged:
        noun = "run" if losses.n_diverged == 1 else "runs"
        raise ValueError(
            f"{losses.n_diverged} {noun} of '{arm}' diverged: a diverged run misses the target, "
            "the benchmark's rules have no place for it"
        )
    if not len(losses.values):
        what = "no finished run yet"
        if Caution.STALE in use.warnings:
            what = "only runs of an older source"
        raise ValueError(
            f"'{arm}' of experiment '{experiment.name}' has {what}: ablate run {experiment.name}"
        )
    of_runs = (
        Caution.DUPLICATE_RUN,
        Caution.STALE,
        Caution.STALE_ACCEPTED,
        Caution.FAILED_RUNS,
    )
    doubts = tuple(warning for warning in use.warnings if warning in of_runs)
    return losses.values.tolist(), doubts


def pending(experiment: Experiment) -> int:
    """How many runs are still to come."""
    return int(experiment.runs["status"].isin(PENDING).sum())


def extended(plan: Plan) -> bool:
    """Whether the number of seeds was raised after the first launch."""
    if not plan.locks:
        return False
    first = plan.locks[0].plan.get("seeds")
    return first is not None and len(plan.seeds) > len(first)


def watched(experiment: Experiment) -> bool:
    """Whether intervals must hold however often one looks.

    For a stopping rule, runs still to come, seeds or a noise added since the first launch, or other
    seeds that were seen before."""
    plan = experiment.plan
    if plan.seeds_rule is not None or experiment.memory.changed or prior_is_late(plan):
        return True
    return pending(experiment) > 0 or extended(plan)


def outliers(runs: pd.DataFrame, arm: str, metric: str = "val_loss") -> tuple[str, ...]:
    """run_ids whose loss, or other metric, is more than OUTLIER_SD robust sd from the arm's median.

    It needs 5 runs to tell."""
    status, run_id, loss = columns_of(runs, arm, "status", "run_id", metric)
    finished = (status == "finished") & ~np.isnan(loss.astype(float))
    losses = loss[finished].astype(float)
    if len(losses) < 5:
        return ()
    distance = np.abs(losses - np.median(losses))
    spread = 1.4826 * float(np.median(distance))
    if not spread > 0:
        return ()
    return tuple(run_id[finished][distance > OUTLIER_SD * spread].tolist())


def unequal_noise(samples: Sequence[Sample], alpha: float = 0.01) -> bool:
    """Levene's test in its median form (Brown and Forsythe 1974) over arms with 3 runs or more.

    A warning, never a choice of analysis."""
    groups = [sample.values for sample in samples if len(sample.values) >= 3]
    if len(groups) < 2 or not all(np.ptp(group) > 0 for group in groups):
        return False
    return bool(stats.levene(*groups, center="median").pvalue < alpha)


def equivalent(a: Array, b: Array, margin: float, alpha: float = 0.05) -> bool:
    """Two one-sided Welch tests (Schuirmann 1987), widened: is |mean(a) - mean(b)| below margin?"""
    delta, se, df = welch(a, b)
    if not np.isfinite(se):
        return False
    half = widening(len(a), len(b), 2 * alpha) * stats.t.isf(alpha, df) * se
    return bool(abs(delta) + half < margin)


def two_phase_verified(experiment: Experiment, runs: pd.DataFrame, baseline: str) -> bool:
    """Whether losses of packed runs may stand for whole-node ones.

    Trivially so with one phase or one world size, else by equivalence."""
    finished = runs[(runs["arm"] == baseline) & (runs["status"] == "finished")]
    packed = finished[finished["role"] == "loss"]
    whole = finished[finished["role"] == "timing"]
    if packed.empty or whole.empty:
        return True
    if _world_sizes(experiment, packed) == _world_sizes(experiment, whole):
        return True
    packed_losses = packed["val_loss"].dropna().to_numpy(float)
    whole_losses = whole["val_loss"].dropna().to_numpy(float)
    if len(whole_losses) < WHOLE_NODE_RUNS:
        return False
    return equivalent(packed_losses, whole_losses, TWO_PHASE_MARGIN)


def _world_sizes(experiment: Experiment, runs: pd.DataFrame) -> set[object]:
    return {experiment.configs.get(run_id, {}).get("world_size") for run_id in runs["run_id"]}


def time_warnings(runs: pd.DataFrame, arm: str, baseline: str) -> tuple[Caution, ...]:
    """What is doubtful about a comparison of two arms' times: hardware and nodes."""
    doubts = []
    if not same_hardware(runs, arm, baseline):
        doubts.append(Caution.MIXED_HARDWARE)
    environments = environment_of(runs, arm), environment_of(runs, baseline)
    if environment_change(*environments) is not None:
        doubts.append(Caution.OTHER_ENVIRONMENT)
    if any_imported(runs, arm, baseline) and nodes_unknown(runs, arm, baseline):
        doubts.append(Caution.NODE_UNKNOWN)
    of_arm = set(runs.loc[runs["arm"] == arm, "node"].dropna())
    of_baseline = set(runs.loc[runs["arm"] == baseline, "node"].dropna())
    if of_arm and of_baseline and not of_arm & of_baseline:
        doubts.append(Caution.NO_SHARED_NODE)
    elif len(of_arm | of_baseline) == 1:
        doubts.append(Caution.ONE_NODE)
    if is_sticky(runs, arm, baseline):
        doubts.append(Caution.STICKY_NODE)
    if is_cut(runs):
        doubts.append(Caution.SPLIT_BLOCK)
    return tuple(doubts)


def any_imported(runs: pd.DataFrame, *arms: str) -> bool:
    """Whether some of the arms' runs were brought in from logs."""
    for arm in arms:
        (imported,) = columns_of(runs, arm, "imported")
        if imported.astype(bool).any():
            return True
    return False


def same_hardware(runs: pd.DataFrame, *arms: str) -> bool:
    """Whether all runs of the arms were made on the same kind of machine.

    GPUs, their number and memory; within a block the driver too, and the making of a trunk."""
    differs = any(differs_in_a_block(runs, arms, name) for name in ("driver", "trunk_s"))
    return same_machine(runs, arms) and not differs


def mean_sd(values: Array) -> tuple[float, float | None]:
    """(mean, nan without a value; sd, None below two)."""
    mean, sd = math.nan, None
    if len(values):
        mean = float(values.mean())
    if len(values) > 1:
        sd = float(values.std(ddof=1))
    return mean, sd
