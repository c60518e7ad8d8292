"""N*, time to target and their ratio, by production code: with planned seeds, and looked at after every block."""

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats

from reports.stats.contrasts import Sample, paired_t
from reports.stats.intervals import Estimate, total
from reports.stats.loss_model import LossModel, Slope, fit
from reports.stats.time_sequences import log_time_interval
from tests.proof.row import SIZES, Row

BETA, TARGET, EFFECTS, LOSS_SD, STEP_SD, SLOPE_SE = (
    -0.19,
    3.28,
    np.array([0.0, -0.004, -0.008]),
    0.0013,
    0.002,
    0.01,
)
LOG_STEP = np.log([150.0, 151.0, 147.0])
TRUTH = EFFECTS / -BETA + math.log(3000)  # log N*, every arm at the target near 3000 steps
KINDS = ("steps to target N*", "time to target", "time to target, ratio")
DESIGNS = {  # budgets, sd of the arms, sd of the loss; the correlation within a block is in CORRELATED
    "equal, 3 budgets": ((2700.0, 3000.0, 3300.0), (1.0, 1.0, 1.0), LOSS_SD),
    "one arm 1.5 x, 2 budgets": ((2600.0, 3400.0), (1.0, 1.0, 1.5), LOSS_SD),
    "baseline 1.5 x, 2 budgets, weak slope": ((2700.0, 3300.0), (1.5, 1.0, 1.0), 3 * LOSS_SD),
    "slope given, 1 budget": ((3000.0,), (1.0, 1.0, 1.0), LOSS_SD),
    "not blocked, arm 2 x, 3 budgets": ((2700.0, 3000.0, 3300.0), (1.0, 1.0, 2.0), LOSS_SD),
}
LOOSE = "not blocked"  # designs whose runs have no blocks
CORRELATED = {  # designs whose runs of a block share a part of their noise: this share of the variance
    "equal, 3 budgets, r 0.5 within seeds": 0.5,
    "equal, 3 budgets, r 0.9 within seeds": 0.9,
    "one arm 1.5 x, 2 budgets, r 0.96 within seeds": 0.96,
}
MISSING = "a run missing"  # designs whose last arm lacks the first budget of the first block
DESIGNS |= {name: DESIGNS[name.split(", r ")[0]] for name in CORRELATED}
DESIGNS |= {
    f"equal, 2 budgets, {MISSING}": ((2000.0, 3000.0), (1.0, 1.0, 1.0), LOSS_SD),
    f"one arm 1.5 x, 2 budgets, {MISSING}": DESIGNS["one arm 1.5 x, 2 budgets"],
}


def draw(
    rng: np.random.Generator, n: int, design: str
) -> tuple[np.ndarray, np.ndarray, Slope | None]:
    """Losses (A, n, B) of three arms in n blocks at every budget, nan where a run is missing, log step times (A, n), and the slope where it is given."""
    budgets, ratios, sd = DESIGNS[design]
    mean = TARGET + EFFECTS[:, None, None] + BETA * np.log(np.array(budgets) / 3000)
    noise = rng.normal(0, sd, (3, n, len(budgets)))
    shared = CORRELATED.get(design, 0.0)
    if shared:  # half of it by the seed in every arm, half by the seed in that arm
        of_seed = (rng.normal(0, sd, (1, n, 1)) + rng.normal(0, sd, (3, n, 1))) / math.sqrt(2)
        noise = math.sqrt(1 - shared) * noise + math.sqrt(shared) * of_seed
    loss = mean + noise * np.array(ratios)[:, None, None]
    if MISSING in design:
        loss[2, 0, 0] = np.nan
    slope = (
        Slope(per_step=(-BETA + rng.normal(0, SLOPE_SE)) / 3000, se=SLOPE_SE / 3000)
        if len(budgets) == 1
        else None
    )
    return loss, LOG_STEP[:, None] + rng.normal(0, STEP_SD, (3, n)), slope


def fitted(
    loss_AnB: np.ndarray, budgets: tuple[float, ...], slope: Slope | None, *, blocked: bool = True
) -> LossModel:
    arm, block, which = np.nonzero(np.isfinite(loss_AnB))
    blocks = block.tolist() if blocked else [None] * len(block)
    model = fit(
        arm=arm,
        budget=np.array(budgets)[which],
        loss=loss_AnB[arm, block, which],
        block=blocks,
        target=TARGET,
        slope=slope,
    )
    assert model is not None
    return model


def mean_of(x: np.ndarray) -> Estimate:
    return Estimate(
        value=float(x.mean()), se=float(x.std(ddof=1)) / math.sqrt(len(x)), df=len(x) - 1
    )


def difference(arm: np.ndarray, baseline: np.ndarray, *, blocked: bool) -> Estimate:
    """Of log step times, as the page compares them."""
    blocks: tuple[object, ...] = tuple(range(len(arm))) if blocked else (None,) * len(arm)
    delta, se, df, _ = paired_t(*(Sample(values=x, blocks=blocks) for x in (arm, baseline)))
    return Estimate(value=delta, se=se, df=df)


def oracle(n: int, design: str) -> np.ndarray:
    """Widths for one who knows the slope, the ratios of all sds and what the seeds share: N*, time, ratio.

    Each with one t: of a seed's mean where runs have seeds (nobody has more independent ones), else of all runs."""
    budgets, ratios, sd = DESIGNS[design]
    given = (
        SLOPE_SE / BETA * EFFECTS if len(budgets) == 1 else np.zeros(3)
    )  # nobody knows a given slope better than its error
    shared = CORRELATED.get(design, 0.0)
    loss = (sd * np.array(ratios) / BETA) ** 2 / n * (shared + (1 - shared) / len(budgets))
    common = shared / 2 * (sd / BETA) ** 2 / n * ratios[0] * ratios[2]  # of arm and baseline
    step = STEP_SD**2 / n
    variance = [loss[2] + given[2] ** 2 / BETA**2, loss[2] + given[2] ** 2 / BETA**2 + step,
                loss[2] + loss[0] - 2 * common + (given[2] - given[0]) ** 2 / BETA**2 + 2 * step]  # fmt: skip
    df = 3 * (n * len(budgets) - 1) if LOOSE in design else n - 1
    return 2 * stats.t.isf(0.025, df) * np.sqrt(variance)


def times(r: int) -> Iterator[Row]:
    """Planned seeds: losses linear in log N."""
    for design in DESIGNS:
        for n in SIZES:
            rng = np.random.default_rng([5, n, len(design)])
            hits, unbounded, widths = np.zeros(3), np.zeros(3), np.full((r, 3), np.inf)
            for k in range(r):
                loss, step, slope = draw(rng, n, design)
                model = fitted(loss, DESIGNS[design][0], slope, blocked=LOOSE not in design)
                truth = (
                    TRUTH[2],
                    TRUTH[2] + LOG_STEP[2],
                    TRUTH[2] - TRUTH[0] + LOG_STEP[2] - LOG_STEP[0],
                )
                steps = model.theta_interval(2, 0.05)
                if steps is None or model.theta_interval(0, 0.05) is None:
                    unbounded += 1
                    hits += 1
                    continue
                found = (
                    (steps[0] + model.x0, steps[1] + model.x0),
                    total(model.log_steps(2), mean_of(step[2])).interval(0.05),
                    total(
                        model.shift(2), difference(step[2], step[0], blocked=LOOSE not in design)
                    ).interval(0.05),
                )
                hits += [low <= t <= high for (low, high), t in zip(found, truth, strict=True)]
                widths[k] = [high - low for low, high in found]
            ratio = np.median(widths, axis=0) / oracle(n, design)
            comparable = (
                MISSING not in design or n > 3
            )  # else one whole block more is one df of two
            for i, kind in enumerate(KINDS):
                yield Row(kind=kind, n=str(n), noise=design, replications=r, coverage=float(hits[i] / r),
                          width=float(ratio[i]) if comparable else None, unbounded=float(unbounded[i] / r))  # fmt: skip


def anytime_times(r: int) -> Iterator[Row]:
    """Looked at after every block up to 12: the share of experiments in which every interval that was shown held the truth."""
    r = max(r // 25, 100)  # nearly all hold: fewer tell
    truth = (TRUTH[2], TRUTH[2] + LOG_STEP[2], TRUTH[2] - TRUTH[0] + LOG_STEP[2] - LOG_STEP[0])
    for design, (budgets, _, _) in DESIGNS.items():
        if (
            LOOSE in design or MISSING in design
        ):  # a sequence takes whole blocks alone, or is not shown
            continue
        rng, x = np.random.default_rng([14, len(design)]), np.log(budgets)
        hits, unbounded = np.ones((r, 3), bool), np.zeros(3)
        for k in range(r):
            loss_AnB, step, slope = draw(rng, 12, design)
            loss = loss_AnB.transpose(1, 0, 2)
            for n in range(4, 13):
                model = fitted(loss_AnB[:, :n], budgets, slope)
                found = (
                    log_time_interval(loss[:n, [2]], x, model, 0.05, None),
                    log_time_interval(loss[:n, [2]], x, model, 0.05, step[[2], :n].T),
                    log_time_interval(loss[:n, [2, 0]], x, model, 0.05, step[[2, 0], :n].T),
                )
                hits[k] &= [
                    ends is None or ends[0] <= t <= ends[1]
                    for ends, t in zip(found, truth, strict=True)
                ]
            unbounded += [ends is None for ends in found]
        for i, kind in enumerate(KINDS):
            yield Row(kind=f"{kind}, anytime-valid", n="4 to 12", noise=design, replications=r, coverage=float(hits[:, i].mean()),
                      unbounded=float(unbounded[i] / r))  # fmt: skip
