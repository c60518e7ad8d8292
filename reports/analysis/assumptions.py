"""What a plan may assume before its runs are in: noise, slope and step time of the nearest runs, else as published."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.run.read import read_json
from harness.run.results import read_result
from reports.analysis import samples
from reports.analysis.time_estimates import Clock, time_estimates
from reports.inputs.experiment import Experiment
from reports.inputs.published import NATS_PER_LOG_STEP, era_sd, published_record
from reports.stats.loss_model import Slope
from reports.stats.planning import upper_sd

RUNS_NAMED = 3  # experiments named in a source


@dataclass(frozen=True, kw_only=True)
class Noise:
    """One run's sd of the final loss with its df, pooled within configurations, and where it was seen, in words."""

    sd: float
    df: int
    source: str


def pooled(groups: Iterable[Iterable[float]]) -> tuple[float, int]:
    """(sd, df) within groups; nan with 0 df."""
    known = [x for g in groups if len(x := np.array([*g], float)) > 1]
    df = sum(len(x) - 1 for x in known)
    return (math.sqrt(sum(float(((x - x.mean()) ** 2).sum()) for x in known) / df) if df else math.nan), df


def other_plans(results: Path, name: str) -> list[Mapping[str, Any]]:
    """Plans of the folder's other experiments that ran our own trainer."""
    plans = [read_json(p) for p in sorted(results.glob("experiments/*/experiment.json")) if p.parent.name != name]
    return [p for p in plans if isinstance(p, dict) and "baseline_config" in p and not p.get("foreign") and not p.get("imported")]


def baseline_losses(results: Path, plan: Mapping[str, Any]) -> dict[tuple[int, str], float]:
    """(budget, run_id) -> final loss of the baseline's finished runs."""
    found = {}
    for run in plan["runs"]:
        if run["arm"] == plan["baseline"]:
            for run_id in (run["run_id"], *(run.get("older") or ())):
                result = read_result(results / "runs" / run_id)
                if result is not None and result["status"] == "finished" and result.get("val_loss") is not None:
                    found[run["budget"], run_id] = float(result["val_loss"])
                    break
    return found


def same_baseline(results: Path, plans: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> str | None:
    """The experiment with the same baseline that has most finished runs of it."""
    runs = {p["name"]: len(baseline_losses(results, p)) for p in plans if p["baseline_config"] == config}
    best = max(runs, key=lambda name: runs[name], default=None)
    return best if best is not None and runs[best] else None


def noise_at_scale(results: Path, plans: Iterable[Mapping[str, Any]], scale: str) -> Noise | None:
    """Pooled over the baselines of every experiment at a scale; a run that several share counts once."""
    groups: dict[tuple[str, int], dict[str, float]] = {}
    names = []
    for plan in plans:
        if plan.get("scale") == scale and (losses := baseline_losses(results, plan)):
            names.append(plan["name"])
            for (budget, run_id), loss in losses.items():
                groups.setdefault((repr(plan["baseline_config"]), budget), {})[run_id] = loss
    sd, df = pooled(g.values() for g in groups.values())
    if not df:
        return None
    n, more = sum(len(g) for g in groups.values()), ", ..." if len(names) > RUNS_NAMED else ""
    return Noise(sd=sd, df=df, source=f"{n} runs of other baselines at scale {scale}: {', '.join(names[:RUNS_NAMED])}{more}")


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


def known(
    own: Experiment | None,
    *,
    base: str,
    scale: str,
    steps: int,
    slope: Slope | None = None,
    alike: Experiment | None = None,
    noise: Noise | None = None,
) -> Known:
    """Each number from the nearest source there is: `own` runs, those of an experiment `alike` in its baseline, for the noise
    what was seen at this scale, and at last the published figures of `base`, a record.

    steps: the budget at which a difference in loss is turned into steps; slope: as the experiment gives it."""
    late_2024 = Slope(per_step=NATS_PER_LOG_STEP / steps, se=0.0, source="published for late 2024, at full size on FineWeb")
    abroad = (
        "" if scale == "gpt2" else ", at full size on FineWeb; smaller runs are noisier: yours is known after two of the baseline"
    )
    found: dict[str, Any] = {
        "sd": era_sd(base), "sd_source": f"published for the era of {base}{abroad}", "slope": late_2024, "step_ms": None,
        "step_source": "known after one run", "n_star": (), "bracketed": False,
    }  # fmt: skip
    if noise is not None:
        found |= _noise(noise)
    if scale == "gpt2" and (time := _published_step_ms(base)):
        found |= {"step_ms": time, "step_source": f"published for {base} on 8 H100"}
    if slope is not None:
        found["slope"] = slope
    if alike is not None:
        seen = _seen(alike, steps, f" in {alike.name}")
        found |= {key: seen[key] for key in seen if key not in ("n_star", "bracketed")}  # its target may be another
    return Known(**found | (_seen(own, steps, "") if own is not None else {}))


def _noise(noise: Noise) -> dict[str, Any]:
    return {"sd": upper_sd(noise.sd, noise.df + 1), "sd_source": f"upper 80 % bound of {noise.sd:.4f} from {noise.source}"}


def _seen(experiment: Experiment, steps: int, where: str) -> dict[str, Any]:
    """What an experiment's finished runs tell; `where` says whose they are."""
    out: dict[str, Any] = {}
    use = samples.usable(experiment)
    losses = samples.of_role(use.runs, "loss")
    own = losses[(losses["arm"] == use.arms[0]) & (losses["status"] == "finished")]
    sd, df = pooled(g for _, g in own.dropna(subset=["val_loss"]).groupby("budget")["val_loss"])
    if df >= 1:
        out |= _noise(Noise(sd=sd, df=df, source=f"{len(own)} runs of the baseline{where}"))
    timed = samples.of_role(use.runs, "timing")
    ms = timed.loc[(timed["arm"] == use.arms[0]) & (timed["status"] == "finished"), "step_ms"].dropna()
    if len(ms):
        out |= {
            "step_ms": float(np.exp(np.log(ms).mean())), "step_source": f"measured in {len(ms)} runs of the baseline{where}"
        }  # fmt: skip
    clock = Clock.of(experiment, losses, samples.at_budget(timed, samples.shared_budget(timed, use.arms)), use.arms)
    if clock.model is not None and not clock.model.given and clock.model.beta[0] < 0:
        per_step, se = (abs(v) / steps for v in (float(clock.model.beta[0]), clock.model.slope_se(0)))
        out["slope"] = Slope(per_step=per_step, se=se, source=f"measured over budgets {_list(own['budget'])}{where}")
    found = [t for t in time_estimates(clock).values() if t.n_star is not None]
    return out | {
        "n_star": tuple(float(t.n_star or 0) for t in found),
        "bracketed": bool(found) and not any(t.extrapolated for t in found),
    }


def _published_step_ms(record: str) -> float | None:
    try:
        found = published_record(record)
    except ValueError:
        return None
    return found.time_s / found.steps * 1e3


def _list(budgets: "pd.Series[float]") -> str:
    return ", ".join(str(int(b)) for b in sorted(set(budgets)))
