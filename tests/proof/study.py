"""The rows of the study. Truths are known, seeds are fixed, and every row says which bar it is held to."""

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy import stats

from reports.compare import noise_floor
from reports.intervals import Estimate
from reports.outcomes import exact_rate, permuted_effect
from reports.planning import planned_critical
from reports.published import judge
from reports.sequential import critical_t, rate_sequence
from reports.simultaneous import max_t_quantile
from tests.proof.batch import declared_analysis, welch_interval
from tests.proof.row import SIZES, Row
from tests.proof.times import anytime_times, times


def families(r: int) -> Iterator[Row]:
    """Four arms and a baseline in blocks: two arms without effect, two with; and all without, for the family-wise error."""
    m = 4
    noises = {
        "equal": (np.ones(m + 1), frozenset()),
        "one arm 1.5 x": (np.array([1, 1, 1, 1, 1.5]), frozenset()),
        "one arm 2 x, declared": (np.array([1, 1, 1, 1, 2.0]), frozenset({m - 1})),
        "all arms 2 x, declared": (np.array([1, 2, 2, 2, 2.0]), frozenset(range(m))),
        "baseline 1.5 x": (np.array([1.5, 1, 1, 1, 1.0]), frozenset()),
        "baseline 2 x": (np.array([2, 1, 1, 1, 1.0]), frozenset()),
        "all arms 2 x": (np.array([1, 2, 2, 2, 2.0]), frozenset()),
    }
    effects = np.array([0.0, 0.0, 1.0, 2.0])
    for n in SIZES:
        for noise, (sd, noisy) in noises.items():
            rng = np.random.default_rng([1, n, len(noise)])
            y = rng.normal(size=(r, n, m + 1)) * sd + rng.normal(size=(r, n, 1))
            null = declared_analysis(y, noisy=noisy)
            false_null = ((null.low > 0) | (null.high < 0)).any(1).mean()
            mixed = declared_analysis(y + np.r_[0.0, effects], noisy=noisy)
            covers = (mixed.low <= effects) & (effects <= mixed.high)
            false_mixed = ((mixed.low > 0) | (mixed.high < 0))[:, :2].any(1).mean()
            oracle = _oracle_half(n, sd)
            yield Row(
                kind="difference, simultaneous over 4 arms",
                n=str(n),
                noise=noise,
                replications=r,
                coverage=float(covers.mean(0).min()),
                simultaneous=float(covers.all(1).mean()),
                family_error=float(max(false_null, false_mixed)),
                width=float(np.median((null.high - null.low) / 2 / oracle)) if "declared" not in noise or n > 5 else None,
            )
    for n in SIZES:
        rng = np.random.default_rng([2, n])
        y = rng.normal(size=(r, n, 2)) * [1.0, 2.0] + rng.normal(size=(r, n, 1))
        b = declared_analysis(y)
        wrong = ((b.low > 0) | (b.high < 0)).mean()
        yield Row(
            kind="difference, one arm",
            n=str(n),
            noise="arm 2 x",
            replications=r,
            coverage=float(1 - wrong),
            family_error=float(wrong),
        )


def _oracle_half(n: int, sd: np.ndarray) -> np.ndarray:
    """Half widths of one who knows the ratios of all sds, and so pools all arms: max-t with the full residual df."""
    m = len(sd) - 1
    variance = sd[0] ** 2 + sd[1:] ** 2
    corr = sd[0] ** 2 / np.sqrt(np.outer(variance, variance))
    np.fill_diagonal(corr, 1.0)
    return max_t_quantile(0.95, corr, (n - 1) * m) * np.sqrt(variance / n)


def welch_rows(r: int) -> Iterator[Row]:
    for n in SIZES:
        for noise, ratio in (("equal", 1.0), ("arm 2 x", 2.0)):
            rng = np.random.default_rng([3, n, int(ratio)])
            delta, half = welch_interval(rng.normal(size=(r, n)) * ratio, rng.normal(size=(r, n)))
            oracle = stats.t.isf(0.025, 2 * (n - 1)) * math.sqrt((1 + ratio**2) / n)
            yield Row(
                kind="difference, not blocked (Welch)", n=str(n), noise=noise, replications=r,
                coverage=float((np.abs(delta) <= half).mean()), family_error=float((np.abs(delta) > half).mean()),
                width=float(np.median(half) / oracle),
            )  # fmt: skip


def ratios(r: int) -> Iterator[Row]:
    """Step times with node effects of 2 % and 0.3 % noise: the ratio, blocked by node."""
    for n in SIZES:
        rng = np.random.default_rng([4, n])
        truth = math.log(0.97)
        node = rng.normal(0, 0.02, size=(r, n, 1))
        y = np.log(150 * np.exp(node + rng.normal(0, 0.003, size=(r, n, 2)))) + [0.0, truth]
        b = declared_analysis(y)
        oracle = 2 * stats.t.isf(0.025, n - 1) * 0.003 * math.sqrt(2 / n)
        yield Row(kind="ratio of step times", n=str(n), noise="equal", replications=r,
                  coverage=float(((b.low <= truth) & (truth <= b.high)).mean()),
                  width=float(np.median(b.high - b.low)) / oracle)  # fmt: skip


def sequences(r: int) -> Iterator[Row]:
    """Looking after every block: up to 50 without an effect; stopped at the first decision or at 20 blocks with effects in sd."""
    n = np.arange(2, 51)
    for m in (1, 4):
        critical = critical_t(n, 0.05 / m)
        rng = np.random.default_rng([7, m])
        y = rng.normal(size=(r, 50, m + 1))
        t = _running_t(y[:, :, 1:] - y[:, :, :1])
        ever = (np.abs(t) > critical[None, :, None]).any(axis=(1, 2)).mean()
        yield Row(kind=f"anytime-valid, {m} arm{'s' if m > 1 else ''}, peeking to 50 blocks", n="2 to 50", noise="equal",
                  replications=r, simultaneous=float(1 - ever), family_error=float(ever),
                  unbounded=float(np.isinf(critical).mean()))  # fmt: skip
    for effect in (0.0, 0.5, 1.0):
        rng = np.random.default_rng([8, int(10 * effect)])
        d = rng.normal(effect, 1.0, size=(r, 20, 1))
        critical = critical_t(np.arange(2, 21), 0.05)
        decided = (np.abs(_running_t(d))[:, :, 0] > critical) & np.isfinite(critical)
        stop = np.where(decided.any(1), decided.argmax(1), 18)
        at_stop = np.abs(_running_t(d - effect)[np.arange(r), stop, 0])
        yield Row(kind="anytime-valid interval after an adaptive stop", n="5 to 20", noise=f"effect {effect:g} sd",
                  replications=r, coverage=float((at_stop <= critical[stop]).mean()),
                  power=float(decided.any(1).mean()) if effect == 1.0 else None)  # fmt: skip


def _running_t(d_RNM: np.ndarray) -> np.ndarray:
    """t statistics of the first 2, 3, ..., N differences, (R, N - 1, M)."""
    n = np.arange(1, d_RNM.shape[1] + 1)[None, :, None]
    total, squares = d_RNM.cumsum(1), (d_RNM**2).cumsum(1)
    variance = (squares - total**2 / n) / np.maximum(n - 1, 1)
    return (total / n / np.sqrt(np.maximum(variance, 1e-300) / n))[:, 1:]


def diverged(r: int) -> Iterator[Row]:
    """One run in ten diverges in both arms, which are alike: the test, and on fewer experiments the interval."""
    for kind, r_kind in (("worst-rank trimmed mean, test", max(r // 5, 200)), ("worst-rank trimmed mean", max(r // 50, 100))):
        for n in (5, 7):
            rng = np.random.default_rng([9, n, r_kind])
            covered = used = false = 0
            while used < r_kind:
                lost = rng.random((2, n)) < 0.1
                if not lost.any() or lost.all(1).any():
                    continue
                used += 1
                y, n_lost = rng.normal(size=(2, n)), lost.sum(1)
                finished = [y[i][~lost[i]] for i in (0, 1)]
                alpha = 0.0 if "test" in kind else 0.05  # nothing can be excluded at level 0, so no interval is searched for
                effect = permuted_effect(finished[1], int(n_lost[1]), finished[0], int(n_lost[0]), alpha=alpha)
                false += effect.p <= 0.05
                covered += effect.low is None or effect.high is None or effect.low <= 0 <= effect.high
            yield Row(kind=kind, n=str(n), noise="1 in 10 diverge", replications=r_kind,
                      coverage=covered / r_kind if "test" not in kind else None,
                      family_error=false / r_kind if "test" in kind else None)  # fmt: skip


def equivalence(r: int) -> Iterator[Row]:
    """'reproduced' printed although the true difference is the margin: at most 5 %."""
    r = max(r // 4, 200)
    for n in SIZES:
        rng = np.random.default_rng([10, n])
        margin, se = 0.05, 0.05 / 8
        own = rng.normal(-0.10 + margin, se, r)
        scale = np.sqrt(rng.chisquare(2 * n - 2, r) / (2 * n - 2))
        published = rng.normal(-0.10, se, r)
        said = [
            judge(Estimate(value=o, se=se * s, df=2 * n - 2), Estimate(value=p, se=se), margin=margin)[0] == "reproduced"
            for o, s, p in zip(own, scale, published, strict=True)
        ]
        yield Row(kind="'reproduced' at the margin", n=str(n), noise="equal", replications=r, family_error=float(np.mean(said)))


def descriptions(r: int) -> Iterator[Row]:
    """What is printed beside the comparisons: the baseline's sd with its chi square interval, rates of diverged runs."""
    r = max(r // 4, 200)
    for n in SIZES:
        rng = np.random.default_rng([12, n])
        floors = [noise_floor(y) for y in rng.normal(size=(r, n))]
        covered = [f.low is not None and f.high is not None and f.low <= 1 <= f.high for f in floors]
        yield Row(kind="noise floor", n=str(n), noise="equal", replications=r, coverage=float(np.mean(covered)))
    ends = np.array([exact_rate(k, 10) for k in range(11)])
    looks = np.array([[rate_sequence(k, n, 0.05) if k <= n else (0.0, 1.0) for k in range(21)] for n in range(1, 21)])
    for rate in (0.1, 0.3):
        lost = np.random.default_rng([13, int(10 * rate)]).random((r, 20)) < rate
        count = lost[:, :10].sum(1)
        yield Row(kind="rate of diverged runs", n="10", noise=f"rate {rate:g}", replications=r,
                  coverage=float(((ends[count, 0] <= rate) & (rate <= ends[count, 1])).mean()))  # fmt: skip
        seen = looks[np.arange(20)[None, :], lost.cumsum(1)]  # (R, 20, 2)
        inside = ((seen[..., 0] <= rate) & (rate <= seen[..., 1])).all(1)
        yield Row(kind="rate of diverged runs, anytime-valid", n="1 to 20", noise=f"rate {rate:g}", replications=r,
                  coverage=float(inside.mean()))  # fmt: skip


def planned_power(n: int, n_arms: int, replications: int, sd: float, effect: float) -> float:
    """Simulated share of experiments whose declared analysis finds `effect` in one of n_arms arms: checks reports.planning."""
    rng = np.random.default_rng([11, n, n_arms])
    y = rng.normal(0, sd, size=(replications, n, n_arms + 1))
    y[:, :, 1] += effect
    critical, _ = planned_critical(n, n_arms)
    b = declared_analysis(y)
    assert np.isfinite(critical)
    return float((b.low[:, 0] > 0).mean())


PARTS: tuple[Callable[[int], Iterator[Row]], ...] = (
    families, welch_rows, ratios, times, sequences, anytime_times, diverged, equivalence, descriptions,
)  # fmt: skip


def study(replications: int) -> list[Row]:
    return [row for part in PARTS for row in part(replications)]
