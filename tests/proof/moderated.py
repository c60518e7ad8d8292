"""Variances moderated by a declared prior: experiments of its noise, of eras that differ, and of more noise than it says."""

from collections.abc import Iterator

import numpy as np

from reports.inputs.noise import TRACK, benchmark_noise
from reports.stats.moderated import Prior
from reports.stats.simultaneous import max_t_quantile
from tests.proof.batch import chunks, declared_analysis
from tests.proof.row import AT_MOST, BEYOND_CONDITION, POWER_ROWS, Row

CAPPED = 4.0  # df, the most that a plan may declare
STEPS = range(3, 11)


def drawn_sd(rng: np.random.Generator, size: int, noise: str) -> np.ndarray:
    """One run's sd in each experiment, (R, 1, 1); the prior is the root of its mean square, 1."""
    if noise == "equal":
        return np.ones((size, 1, 1))
    if noise == "the eras of the public logs":
        eras = [era for era in benchmark_noise().eras if era.track == TRACK]
        df, sd = np.array([era.df for era in eras]), np.array([era.sd for era in eras])
        pooled = np.sqrt((df * sd**2).sum() / df.sum())
        chosen = rng.choice(sd / pooled, size, p=df / df.sum())
        return chosen[:, None, None]
    df = float(
        noise.split()[-2]
    )  # "of 4 df": variances of groups as a prior of so many df has them
    return np.sqrt((df - 2) / rng.chisquare(df, (size, 1, 1)))


NOISES = {  # sd of one run, and of the arms in it: (name, ratio of the last arm, of the baseline, of all)
    "equal": (1.0, 1.0, 1.0),
    "groups that differ as a prior of 4 df": (1.0, 1.0, 1.0),
    "groups that differ as a prior of 10 df": (1.0, 1.0, 1.0),
    f"one arm 1.2 x, {BEYOND_CONDITION}": (1.2, 1.0, 1.0),
    f"all 1.5 x, {BEYOND_CONDITION}": (1.0, 1.0, 1.5),
    f"baseline 2 x, {BEYOND_CONDITION}": (1.0, 2.0, 1.0),
    "the eras of the public logs": (1.0, 1.0, 1.0),
}


def moderated(r: int) -> Iterator[Row]:
    """No arm has an effect; then the power for one of 2 sd, with the prior and without."""
    r, prior = min(4 * r, AT_MOST), Prior(sd=1.0, df=CAPPED)
    for m in (1, 4):
        yield from _errors(r, m, prior)
    for m in (1, 4, 15):
        yield from _powers(r, m, prior)


def _errors(r: int, m: int, prior: Prior) -> Iterator[Row]:
    arms = f"{m} arm{'s' if m > 1 else ''}"
    for n in (3, 5, 10):
        shared = np.asarray(0.5 * (np.eye(m) + 1))  # of one who has no prior
        oracle = max_t_quantile(0.95, shared, (n - 1) * m) * np.sqrt(2 / n)
        for noise, (last, first, whole) in NOISES.items():
            of_groups = noise.split(", ")[0] if "groups" in noise or "eras" in noise else "equal"
            sd = np.r_[first, np.ones(m - 1), last] * whole
            wrong, widths = [], []
            for rng, size in chunks([39, m, n, len(noise)], r, n * (m + 1)):
                y = rng.normal(size=(size, n, m + 1)) * sd * drawn_sd(rng, size, of_groups)
                b = declared_analysis(y, prior=prior)
                wrong.append(((b.low > 0) | (b.high < 0)).any(1).mean())
                widths.append(np.median(b.high - b.low))
            yield Row(kind=f"difference, {arms}, moderated variance", n=str(n), noise=noise, replications=r,
                      family_error=float(np.mean(wrong)),
                      width=float(np.mean(widths)) / 2 / oracle if noise == "equal" else None)  # fmt: skip


def _powers(r: int, m: int, prior: Prior) -> Iterator[Row]:
    name = f"{POWER_ROWS}{m} arm{'s' if m > 1 else ''}, effect 2 sd"
    for kind, given in ((f"{name}, moderated variance", prior), (f"{name}, not moderated", None)):
        found = {n: 0 for n in STEPS}
        for rng, size in chunks([40, m], r, 10 * (m + 1)):
            y = rng.normal(size=(size, 10, m + 1)) + np.r_[0.0, 2.0, np.zeros(m - 1)]
            for n in STEPS:
                found[n] += int((declared_analysis(y[:, :n], prior=given).low[:, 0] > 0).sum())
        for n, times in found.items():
            yield Row(kind=kind, n=str(n), noise="equal", replications=r, power=times / r)
