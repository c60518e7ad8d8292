"""What each change contributes, three ways side by side: alone, as its Shapley share, and as what is lost when it is left out.

The three agree where changes add up and differ where they interact. Each is a contrast of arm means, so that one rule gives its
error, the covariance of shared runs included. From complete blocks: the contrast within each block where there are six or more
(t, n - 1 df), the larger error of the two-way model arm + block where there are two to five (reports/stats/two_way.py), and the
t-mixture of the contrast within blocks before or beyond the planned seeds. Steps and seconds to target come from the loss model
over budgets (reports/stats/loss_model.py) by the delta method, with planned seeds alone. Intervals hold for all changes of a column at
once (Bonferroni). Main effects and interactions: reports/analysis/interactions.py.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
from scipy import stats

from reports.analysis import samples
from reports.analysis.time_estimates import Clock
from reports.inputs.experiment import Experiment
from reports.stats.contrasts import POOLED_UP_TO
from reports.stats.intervals import Estimate, total
from reports.stats.sequential import t_mixture
from reports.stats.simultaneous import Array
from reports.stats.two_way import two_way

Subset = frozenset[str]
Contrast = Mapping[Subset, Fraction]  # set of changes -> coefficient of its mean


def shapley_contrasts(sets: Collection[Subset], changes: Collection[str]) -> dict[str, Contrast]:
    """Change -> its share's contrast over the sets that can stand, the empty one among them; {} where no order leads to all."""
    everything, nothing = frozenset(changes), frozenset[str]()
    stand = sorted({*sets, nothing}, key=len)
    down = {s: int(s == nothing) for s in stand}  # ways to reach a set from nothing
    for s in stand[1:]:
        down[s] = sum(down.get(s - {c}, 0) for c in s)
    up = {s: int(s == everything) for s in stand}  # ways from a set to all changes
    for s in reversed(stand):
        up[s] = up[s] or sum(up.get(s | {c}, 0) for c in everything - s)
    total = down.get(everything, 0)
    if not total:
        return {}
    out: dict[str, dict[Subset, Fraction]] = {c: {} for c in changes}
    for s in stand:
        for c in s:
            weight = Fraction(down.get(s - {c}, 0) * up[s], total)
            for place, sign in ((s, 1), (s - {c}, -1)) if weight else ():
                out[c][place] = out[c].get(place, Fraction()) + sign * weight
    return {c: {s: w for s, w in contrast.items() if w} for c, contrast in out.items()}


def alone_contrasts(sets: Collection[Subset], changes: Collection[str]) -> dict[str, Contrast]:
    """Change -> it alone against nothing, where it was run alone."""
    return {c: {frozenset({c}): Fraction(1), frozenset[str](): Fraction(-1)} for c in changes if frozenset({c}) in sets}


def left_out_contrasts(sets: Collection[Subset], changes: Collection[str], *, with_what_needs_it: bool) -> dict[str, Contrast]:
    """Change -> all changes against all but it; `with_what_needs_it`: against the largest set without it, which was run then."""
    everything, ran = frozenset(changes), {*sets, frozenset[str]()}
    rest = {c: max((s for s in ran if c not in s), key=len) if with_what_needs_it else everything - {c} for c in changes}
    return {c: {everything: Fraction(1), rest[c]: Fraction(-1)} for c in changes if everything in sets and rest[c] in ran}


COMPLETE = ("factorial", "shapley")  # designs that run every subset that can stand
LARGEST = (*COMPLETE, "leave-one-out")  # designs in which a change leaves with what needs it
COLUMNS = ("alone", "shapley", "left_out")


@dataclass(frozen=True, kw_only=True)
class Share:
    """One contribution in the metric's unit, below zero where the change helps; no interval where the runs allow none."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The table of one metric: change -> column -> Share, a missing one being unknown; `total` is all changes together."""

    metric: str  # val_loss, steps, seconds
    unit: str
    shares: Mapping[str, Mapping[str, Share]]
    leaves_with: Mapping[str, tuple[str, ...]]  # what is left out with a change, because it needs it
    total: Share | None
    note: str


Judge = Callable[[Mapping[str, float], float], Share]  # contrast of arms, alpha -> estimate and interval


def attributions(experiment: Experiment, *, level: float = 0.95) -> list[Attribution]:
    """The tables there are to show: loss, steps to target, seconds; [] where the design has no two ways to compare."""
    arms = {frozenset(a["changes"]): a["name"] for a in experiment.plan["arms"] if a.get("of", a["name"]) == a["name"]}
    columns = contrasts_of(experiment.plan["design"], arms)
    ways = Counter(change for column in columns.values() for change in column)
    if max(ways.values(), default=0) < 2:  # a ladder knows its first change alone and its last one left out: nothing to compare
        return []
    use = samples.usable(experiment)
    losses = samples.of_role(use.runs, "loss")
    budget = samples.shared_budget(losses, use.arms)
    times_at = samples.at_budget(samples.of_role(use.runs, "timing"), samples.shared_budget(use.runs, use.arms))
    anytime, names, out = samples.watched(experiment), [*arms.values()], []
    for metric, unit, judge, note in (
        ("val_loss", "nats", blocked(samples.at_budget(losses, budget), "val_loss", names, anytime=anytime), ""),
        *time_judges(Clock.of(experiment, losses, times_at, use.arms), times_at, names, anytime=anytime),
    ):
        if judge is not None:
            out.append(tabulate(metric, unit, columns, arms, judge, note, level=level))
    return out


def contrasts_of(design: str, arms: Mapping[Subset, str]) -> dict[str, Mapping[str, Contrast]]:
    """Column -> change -> contrast over sets, the columns that an experiment's arms can fill."""
    changes = list(dict.fromkeys(c for s in arms for c in sorted(s)))
    columns = {
        "alone": alone_contrasts(arms, changes),
        "shapley": shapley_contrasts(arms, changes) if design in COMPLETE else {},
        "left_out": left_out_contrasts(arms, changes, with_what_needs_it=design in LARGEST),
    }
    return {name: contrasts for name, contrasts in columns.items() if contrasts} if len(changes) > 1 else {}


def tabulate(
    metric: str, unit: str, columns: Mapping[str, Mapping[str, Contrast]], arms: Mapping[Subset, str], judge: Judge, note: str,
    *, level: float,
) -> Attribution:  # fmt: skip
    changes = list(dict.fromkeys(c for s in arms for c in sorted(s)))
    everything, nothing = frozenset(changes), frozenset[str]()
    shares: dict[str, dict[str, Share]] = {c: {} for c in changes}
    for column, contrasts in columns.items():
        for change, contrast in contrasts.items():
            named = {arms[s]: float(w) for s, w in contrast.items()}
            shares[change][column] = judge(named, (1 - level) / len(contrasts))
    left_out = columns.get("left_out", {})
    leaves_with = {c: tuple(sorted(everything - min(left_out[c], key=len) - {c})) for c in left_out}
    whole = {arms[everything]: 1.0, arms[nothing]: -1.0} if everything in arms else None
    together = judge(whole, 1 - level) if whole else None
    return Attribution(metric=metric, unit=unit, shares=shares, leaves_with=leaves_with, total=together, note=note)


def share(value: float, low: float = -math.inf, high: float = math.inf) -> Share:
    """Without an interval where there is no error, or none yet."""
    known = low < high and math.isfinite(high - low)
    return Share(value=value, low=low if known else None, high=high if known else None)


def blocked(runs: pd.DataFrame, metric: str, arms: list[str], *, anytime: bool) -> Judge | None:
    """Contrasts of arm means over the blocks in which every arm has finished; None where there is no such block."""
    done = runs[(runs["status"] == "finished") & runs[metric].notna() & runs["block"].notna() & runs["arm"].isin(arms)]
    if set(done["arm"]) != set(arms) or (runs.loc[runs["arm"].isin(arms), "status"] == "diverged").any():
        return None
    y = done.pivot_table(index="block", columns="arm", values=metric, aggfunc="mean")[arms].dropna().to_numpy(float)
    if not len(y):
        return None

    def judge(contrast: Mapping[str, float], alpha: float) -> Share:
        return contrast_of(y, np.array([contrast.get(a, 0.0) for a in arms]), alpha, anytime=anytime)

    return judge


def contrast_of(y: Array, c: Array, alpha: float, *, anytime: bool = False) -> Share:
    """The contrast c (k,) of the arm means of complete blocks y (n, k), with its interval at 1 - alpha."""
    (n, k), d = y.shape, y @ c
    value, half = float(d.mean()), math.nan
    if anytime:
        return share(value, *t_mixture(d, alpha)[:2])
    if n > POOLED_UP_TO:
        half = float(stats.t.isf(alpha / 2, n - 1) * d.std(ddof=1) / math.sqrt(n))
    elif n > 1 and k > 1:
        errors = two_way(y.ravel(), [*range(k)] * n, np.repeat(np.arange(n), k).tolist(), c[None, :]).errors
        half = max((float(stats.t.isf(alpha / 2, e.df) * e.se[0]) for e in errors), default=math.nan)
    return share(value, value - half, value + half)


def time_judges(
    clock: Clock, times_at: pd.DataFrame, arms: list[str], *, anytime: bool
) -> list[tuple[str, str, Judge | None, str]]:
    """Steps and seconds to target where they are resolved for every arm; else seconds at equal steps."""
    model = clock.model
    if model is None or any(a not in clock.arms or clock.extrapolated(a) or model.beta[clock.arms.index(a)] >= 0 for a in arms):
        note = "at equal steps (steps to target are not resolved for every arm)"
        return [("seconds", "s", blocked(times_at, "train_time_s", arms, anytime=anytime), note)]
    place = {a: clock.arms.index(a) for a in arms}
    steps = {a: math.exp(model.log_steps(place[a]).value) for a in arms}
    log_step = {a: e for a in arms if (e := clock.log_step(a)) is not None}

    def judged(parts: Mapping[str, float], others: list[Estimate], alpha: float) -> Share:
        """Sum of parts, each the arm's own steps or seconds times its weight; `others` are errors beside that of the steps."""
        value, (se, df) = math.fsum(parts.values()), model.error_of({place[a]: part for a, part in parts.items()})
        whole = total(Estimate(value=value, se=se, df=df), *others)
        return share(value) if anytime else share(value, *whole.interval(alpha))

    def in_steps(contrast: Mapping[str, float], alpha: float) -> Share:
        return judged({a: w * steps[a] for a, w in contrast.items()}, [], alpha)

    def in_seconds(contrast: Mapping[str, float], alpha: float) -> Share:
        parts = {a: w * steps[a] * math.exp(log_step[a].value) / 1e3 for a, w in contrast.items()}
        return judged(
            parts, [Estimate(value=0.0, se=abs(p) * log_step[a].se, df=log_step[a].df) for a, p in parts.items()], alpha
        )

    out: list[tuple[str, str, Judge | None, str]] = [("steps", "steps", in_steps, "to the target")]
    return [*out, ("seconds", "s", in_seconds, "to the target")] if len(log_step) == len(arms) else out
