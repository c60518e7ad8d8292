"""What a plan may assume before its runs are in: noise, slope and step time from the experiment's own runs, else as published."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports import samples
from reports.loss_model import Slope
from reports.planning import upper_sd
from reports.published import NATS_PER_LOG_STEP, era_sd, published_record
from reports.time_estimates import Clock, time_estimates
from reports.types import Experiment


@dataclass(frozen=True, kw_only=True)
class Known:
    """Each number with its source in words; None where there is none."""

    sd: float  # of one run's final loss: the 80 % upper bound of what was seen, or the era's published value
    sd_source: str
    slope: Slope  # loss per step near `steps`
    step_ms: float | None
    step_source: str
    n_star: tuple[float, ...]  # of every arm whose steps to target are resolved, extrapolated ones too
    bracketed: bool  # all arms' budgets lie on both sides of the target


def known(experiment: Experiment | None, *, base: str, scale: str, steps: int, slope: Slope | None = None) -> Known:
    """From finished runs where two of the baseline's can tell, else from the published figures of `base`, a record.

    steps: the budget at which a difference in loss is turned into steps; slope: as the experiment gives it."""
    abroad = (
        "" if scale == "gpt2" else ", at full size on FineWeb; smaller runs are noisier: yours is known after two of the baseline"
    )
    sd, source = era_sd(base), f"published for the era of {base}{abroad}"
    step_ms, step_source = None, "known after one run"
    if scale == "gpt2" and (time := _published_step_ms(base)):
        step_ms, step_source = time, f"published for {base} on 8 H100"
    late_2024 = Slope(per_step=NATS_PER_LOG_STEP / steps, se=0.0, source="published for late 2024, at full size on FineWeb")
    out = {"slope": slope or late_2024, "n_star": (), "bracketed": False}
    if experiment is None:
        return Known(sd=sd, sd_source=source, step_ms=step_ms, step_source=step_source, **out)  # type: ignore[arg-type]
    use = samples.usable(experiment)
    losses = samples.of_role(use.runs, "loss")
    own = losses[(losses["arm"] == use.arms[0]) & (losses["status"] == "finished")]
    pooled, df = _within(own)
    if df >= 1:
        sd, source = upper_sd(pooled, df + 1), f"upper 80 % bound of {pooled:.4f} from {len(own)} runs of the baseline"
    timed = samples.of_role(use.runs, "timing")
    ms = timed.loc[(timed["arm"] == use.arms[0]) & (timed["status"] == "finished"), "step_ms"].dropna()
    if len(ms):
        step_ms, step_source = float(np.exp(np.log(ms).mean())), f"measured in {len(ms)} runs of the baseline"
    clock = Clock.of(experiment, losses, samples.at_budget(timed, samples.shared_budget(timed, use.arms)), use.arms)
    if clock.model is not None and not clock.model.given and clock.model.beta[0] < 0:
        per_step, se = (abs(v) / steps for v in (float(clock.model.beta[0]), clock.model.slope_se(0)))
        out["slope"] = Slope(per_step=per_step, se=se, source=f"measured over budgets {_list(own['budget'])}")
    found = [t for t in time_estimates(clock).values() if t.n_star is not None]
    out |= {
        "n_star": tuple(float(t.n_star or 0) for t in found),
        "bracketed": bool(found) and not any(t.extrapolated for t in found),
    }
    return Known(sd=sd, sd_source=source, step_ms=step_ms, step_source=step_source, **out)  # type: ignore[arg-type]


def _within(runs: pd.DataFrame) -> tuple[float, int]:
    """(sd, df) of final losses pooled within budgets; nan with 0 df."""
    groups = [g.to_numpy(float) for _, g in runs.dropna(subset=["val_loss"]).groupby("budget")["val_loss"] if len(g) > 1]
    df = sum(len(g) - 1 for g in groups)
    return (math.sqrt(sum(float(((g - g.mean()) ** 2).sum()) for g in groups) / df) if df else math.nan), df


def _published_step_ms(record: str) -> float | None:
    try:
        found = published_record(record)
    except ValueError:
        return None
    return found.time_s / found.steps * 1e3


def _list(budgets: "pd.Series[float]") -> str:
    return ", ".join(str(int(b)) for b in sorted(set(budgets)))
