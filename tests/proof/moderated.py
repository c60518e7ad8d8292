"""Variances moderated by a declared prior: experiments of its noise, of eras that differ, of more noise than it says, and of
the public benchmark's own runs."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from reports.analysis.noise_fit import groups_alike, prior_of_groups
from reports.inputs.history import HISTORY, published_runs
from reports.inputs.noise import TRACK, benchmark_noise
from reports.stats.moderated import MOST_DF, Prior
from reports.stats.simultaneous import max_t_quantile
from tests.proof.batch import chunks, declared_analysis
from tests.proof.row import AT_MOST, BEYOND_CONDITION, POWER_ROWS, Row

STEPS = range(3, 11)
OF_RUNS = range(3, 8)  # blocks
PUBLIC = "groups of public runs"
ENOUGH = 50  # groups, so that their mean tells an error of 5 %


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
    f"all 1.15 x, {BEYOND_CONDITION}": (1.0, 1.0, 1.15),
    f"all 1.5 x, {BEYOND_CONDITION}": (1.0, 1.0, 1.5),
    f"baseline 2 x, {BEYOND_CONDITION}": (1.0, 2.0, 1.0),
    "the eras of the public logs": (1.0, 1.0, 1.0),
}


def moderated(r: int) -> Iterator[Row]:
    """No arm has an effect; then the power for one of 2 sd, with the prior and without."""
    r, prior = min(4 * r, AT_MOST), Prior(sd=1.0, df=MOST_DF)
    for m in (1, 4):
        yield from _errors(r, m, prior)
    for m in (1, 4, 15):
        yield from _powers(r, m, prior)
    yield from _of_public_runs(r)


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


def public_groups() -> Iterator[tuple[np.ndarray, Prior | None]]:
    """Losses of one program on one machine, and what all other such groups of their track and era say of their noise."""
    eras, noise = defaultdict(list), benchmark_noise()
    for row in published_runs(HISTORY):
        era = noise.era_of(TRACK, row["date"]).name if row["track"] == TRACK else ""
        eras[row["track"], era].append(row)
    for rows in eras.values():
        groups = [losses for losses in groups_alike(rows) if len(losses) > 1]
        for i, losses in enumerate(groups):
            yield losses, prior_of_groups(groups[:i] + groups[i + 1 :])


def _of_public_runs(r: int) -> Iterator[Row]:
    """Runs of one program are dealt to arm and baseline, each group as often: no effect, then 2 of its own sd."""
    found = [(losses, prior) for losses, prior in public_groups() if prior is not None]
    powers: dict[str, list[Row]] = {"": [], ", moderated variance": []}
    for n in OF_RUNS:
        large = [(losses, prior) for losses, prior in found if len(losses) >= 2 * n]
        each = -(-4 * r // len(large))
        wrong = []
        power: dict[str, list[float]] = {kind: [] for kind in powers}
        streams = np.random.default_rng([48, n]).spawn(len(large))
        for rng, (losses, prior) in zip(streams, large, strict=True):
            dealt = rng.permuted(np.tile(losses, (each, 1)), axis=1)[:, : 2 * n]
            y = dealt.reshape(each, 2, n).swapaxes(1, 2)
            b = declared_analysis(y, prior=prior)
            wrong.append(((b.low > 0) | (b.high < 0)).mean())
            raised = y + [0.0, 2 * losses.std(ddof=1)]
            for kind, given in zip(power, (None, prior), strict=True):
                power[kind].append((declared_analysis(raised, prior=given).low > 0).mean())
        times = each * len(large)
        if len(large) >= ENOUGH:
            yield Row(kind="difference, 1 arm, moderated variance", n=str(n), noise=PUBLIC, replications=times,
                      family_error=float(np.mean(wrong)))  # fmt: skip
        for kind, rows in powers.items():
            rows.append(Row(kind=f"{POWER_ROWS}1 arm of public runs, effect 2 sd{kind}", n=str(n), noise=PUBLIC,
                            replications=times, power=float(np.mean(power[kind]))))  # fmt: skip
    for rows in powers.values():
        yield from rows
