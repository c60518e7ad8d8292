"""The rows of the study. Truths are known, seeds are fixed, and every row says which bar it is held to."""

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy import stats

from reports.analysis.outcomes import noise_floor
from reports.analysis.samples import TWO_PHASE_MARGIN, equivalent
from reports.inputs.published import PublishedRecord, era_sd, nats_per_log_step
from reports.stats.outcomes import exact_rate, labels, permuted_effect, trimmed_differences
from reports.stats.planning import planned_critical
from reports.stats.sequential import critical_t, rate_sequence
from reports.stats.simultaneous import max_t_quantile
from reports.stats.unblocked import RATIOS, too_few
from tests.proof.batch import (
    chunks,
    declared_analysis,
    running_h,
    running_independent,
    unblocked_interval,
)
from tests.proof.halved import halved
from tests.proof.missing import missing
from tests.proof.moderated import moderated
from tests.proof.next_step import next_steps
from tests.proof.nodes import nodes
from tests.proof.optimum import flat_axes, lowest_points
from tests.proof.patterns import far_noise, power_by_n
from tests.proof.pool import borrowed_baselines
from tests.proof.repetitions import repetitions
from tests.proof.row import AT_MOST, BEYOND, SIZES, Row
from tests.proof.shares import anytime_shares, ladders, shares, time_shares
from tests.proof.stream import streams
from tests.proof.surface import drawn_surfaces, flat_surfaces, lacks_of_fit
from tests.proof.times import anytime_times, times
from tests.proof.tricks import tricks
from tests.proof.winners import winners
from tests.proof.worths import worths


def families(r: int) -> Iterator[Row]:
    """Four arms and a baseline in blocks: two arms without effect, two with; and all without, for the family-wise error."""
    m, r, single = 4, min(100 * r, AT_MOST), min(500 * r, 1_000_000)
    noises = {
        "equal": (np.ones(m + 1), frozenset()),
        "one arm 1.5 x": (np.array([1, 1, 1, 1, 1.5]), frozenset()),
        "one arm 2 x": (np.array([1, 1, 1, 1, 2.0]), frozenset()),
        "one arm 2 x, declared": (np.array([1, 1, 1, 1, 2.0]), frozenset({m - 1})),
        "all arms 2 x, declared": (np.array([1, 2, 2, 2, 2.0]), frozenset(range(m))),
        "baseline 1.5 x": (np.array([1.5, 1, 1, 1, 1.0]), frozenset()),
        "baseline 2 x": (np.array([2, 1, 1, 1, 1.0]), frozenset()),
        "all arms 2 x": (np.array([1, 2, 2, 2, 2.0]), frozenset()),
    }
    effects = np.array([0.0, 0.0, 1.0, 2.0])
    for n in SIZES:
        for noise, (sd, noisy) in noises.items():
            parts = []
            for rng, size in chunks([1, n, len(noise)], r, n * (m + 1)):
                y = rng.normal(size=(size, n, m + 1)) * sd + rng.normal(size=(size, n, 1))
                null = declared_analysis(y, noisy=noisy)
                mixed = declared_analysis(y + np.r_[0.0, effects], noisy=noisy)
                covers = (mixed.low <= effects) & (effects <= mixed.high)
                wrong = [
                    ((b.low > 0) | (b.high < 0))[:, :k].any(1).mean()
                    for b, k in ((null, m), (mixed, 2))
                ]
                width = np.median((null.high - null.low) / 2 / _oracle_half(n, sd))
                parts.append((size, covers.mean(0), covers.all(1).mean(), wrong, width))
            sizes, *columns = zip(*parts, strict=True)
            each, whole, wrong, width = (
                np.average(np.array(c), axis=0, weights=sizes) for c in columns
            )
            yield Row(
                kind="difference, simultaneous over 4 arms",
                n=str(n),
                noise=noise,
                replications=r,
                coverage=float(each.min()),
                simultaneous=float(whole),
                family_error=float(wrong.max()),
                width=float(width) if "declared" not in noise or n > 5 else None,
            )
    for n in SIZES:
        wrong = np.mean(
            [_wrong_of_one(rng, size, n) for rng, size in chunks([2, n], single, 2 * n)]
        )
        yield Row(kind="difference, one arm", n=str(n), noise="arm 2 x", replications=single, coverage=float(1 - wrong),
                  family_error=float(wrong))  # fmt: skip


def _wrong_of_one(rng: np.random.Generator, size: int, n: int) -> float:
    b = declared_analysis(
        rng.normal(size=(size, n, 2)) * [1.0, 2.0] + rng.normal(size=(size, n, 1))
    )
    return float(((b.low > 0) | (b.high < 0)).mean())


def _oracle_half(n: int, sd: np.ndarray) -> np.ndarray:
    """Half widths of one who knows the ratios of all sds, and so pools all arms: max-t with the full residual df."""
    m = len(sd) - 1
    variance = sd[0] ** 2 + sd[1:] ** 2
    corr = sd[0] ** 2 / np.sqrt(np.outer(variance, variance))
    np.fill_diagonal(corr, 1.0)
    return max_t_quantile(0.95, corr, (n - 1) * m) * np.sqrt(variance / n)


UNBLOCKED = (
    *((n, n) for n in SIZES),
    (3, 5),
    (4, 10),
    (5, 10),
    (10, 5),
    (10, 40),
)  # runs of the arm against the baseline's


def unblocked(r: int) -> Iterator[Row]:
    """One arm, and four against one baseline, without blocks: wherever an interval is printed."""
    single, r = min(250 * r, 500_000), min(100 * r, AT_MOST)
    for n, n0 in UNBLOCKED:
        for m in (1, 4):
            if too_few(n, n0, 0.05 / m):
                continue
            runs = str(n) if n == n0 else f"{n} against {n0}"
            for noise, ratio in (
                ("equal", 1.0),
                ("arm 2 x", 2.0),
                ("arm 5 x", 5.0),
                ("baseline 5 x", 0.2),
            ):
                total, wrong, covers, widths = single if m == 1 else r, [], [], []
                for rng, size in chunks([3, n, n0, int(10 * ratio), m], total, n0 + m * n):
                    base = rng.normal(size=(size, n0))
                    pairs = [
                        unblocked_interval(rng.normal(size=(size, n)) * ratio, base, 1 - 0.05 / m)
                        for _ in range(m)
                    ]
                    missed = np.array([np.abs(delta) > half for delta, half in pairs])
                    wrong.append(missed.any(0).mean())
                    covers.append(1 - missed.mean(1).max())
                    widths.append(np.median([half for _, half in pairs]))
                oracle = stats.t.isf(0.025 / m, n + n0 - 2) * math.sqrt(
                    ratio**2 / n + 1 / n0
                )  # of the pair: nothing is pooled
                yield Row(
                    kind="difference, not blocked" if m == 1 else f"difference, not blocked, {m} arms",
                    n=runs, noise=noise, replications=total, coverage=float(np.mean(covers)),
                    family_error=float(np.mean(wrong)), width=float(np.mean(widths)) / oracle if ratio in RATIOS else None,
                )  # fmt: skip


def axes(r: int) -> Iterator[Row]:
    """Two arms at three points of a grid, every point with its own baseline: all six intervals at once."""
    r = min(50 * r, AT_MOST // 2)
    for n in SIZES:
        parts = []
        for rng, size in chunks([16, n], r, 9 * n):
            points = [
                declared_analysis(rng.normal(size=(size, n, 3)) * [2, 1, 1], level=1 - 0.05 / 3)
                for _ in range(3)
            ]
            covers = np.concatenate([(b.low <= 0) & (b.high >= 0) for b in points], axis=1)
            parts.append((covers.mean(0).min(), covers.all(1).mean()))
        each, whole = np.mean(parts, axis=0)
        yield Row(kind="difference, 2 arms at 3 points of an axis", n=str(n), noise="baseline 2 x", replications=r,
                  coverage=float(each), simultaneous=float(whole), family_error=float(1 - whole))  # fmt: skip


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
        t = running_h(y[:, :, 1:] - y[:, :, :1])
        ever = (np.abs(t) > critical[None, :, None]).any(axis=(1, 2)).mean()
        yield Row(kind=f"anytime-valid, {m} arm{'s' if m > 1 else ''}, peeking to 50 blocks", n="2 to 50", noise="equal",
                  replications=r, simultaneous=float(1 - ever), family_error=float(ever),
                  unbounded=float(np.isinf(critical).mean()))  # fmt: skip
    yield from _other_noise(r)
    for effect in (0.0, 0.5, 1.0):
        rng = np.random.default_rng([8, int(10 * effect)])
        d = rng.normal(effect, 1.0, size=(r, 20, 1))
        critical = critical_t(np.arange(2, 21), 0.05)
        decided = (np.abs(running_h(d))[:, :, 0] > critical) & np.isfinite(critical)
        stop = np.where(decided.any(1), decided.argmax(1), 18)
        at_stop = np.abs(running_h(d, effect)[np.arange(r), stop, 0])
        yield Row(kind="anytime-valid interval after an adaptive stop", n="7 to 20", noise=f"effect {effect:g} sd",
                  replications=r, coverage=float((at_stop <= critical[stop]).mean()),
                  power=float(decided.any(1).mean()) if effect == 1.0 else None)  # fmt: skip


def _other_noise(r: int) -> Iterator[Row]:
    """Up to 50 blocks: differences with heavy tails, skew, and an effect that drifts."""

    def lognormal(rng: np.random.Generator) -> np.ndarray:
        return (np.exp(rng.normal(size=(r, 50))) - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1))

    def exponential(rng: np.random.Generator) -> np.ndarray:
        return rng.exponential(size=(r, 50)) - 1

    noises = {
        "t, 3 df": lambda rng: rng.standard_t(3, size=(r, 50)),
        "exponential arm, normal baseline": lambda rng: exponential(rng) - rng.normal(size=(r, 50)),
        "exponential arm and baseline": lambda rng: exponential(rng) - exponential(rng),
        f"exponential arm, {BEYOND}": exponential,
        "lognormal arm, normal baseline": lambda rng: lognormal(rng) - rng.normal(size=(r, 50)),
        "lognormal arm and baseline": lambda rng: lognormal(rng) - lognormal(rng),
        f"lognormal arm, {BEYOND}": lognormal,
    }
    for m in (1, 4):
        critical = critical_t(np.arange(2, 51), 0.05 / m)
        for i, (noise, draw) in enumerate(noises.items()):
            rng = np.random.default_rng([35, m, i])
            d = np.stack([draw(rng) for _ in range(m)], axis=2)
            ever = float((np.abs(running_h(d)) > critical[None, :, None]).any(axis=(1, 2)).mean())
            yield Row(kind=f"anytime-valid, {m} arm{'s' if m > 1 else ''}, other noise, peeking to 50 blocks", n="2 to 50",
                      noise=noise, replications=r, family_error=ever)  # fmt: skip
    for drift in (1.0, 3.0):
        effect = drift * np.linspace(-1, 1, 50)
        so_far = (effect.cumsum() / np.arange(1, 51))[None, 1:, None]
        d = np.random.default_rng([36, int(drift)]).normal(size=(r, 50, 1)) + effect[None, :, None]
        ever = float(
            (np.abs(running_h(d, so_far))[:, :, 0] > critical_t(np.arange(2, 51), 0.05))
            .any(1)
            .mean()
        )
        yield Row(kind="anytime-valid, mean of the blocks so far", n="2 to 50", noise=f"effect drifts by {2 * drift:g} sd",
                  replications=r, family_error=ever)  # fmt: skip


NOISES = (("equal", 1.0), ("arm 2 x", 2.0), ("arm 5 x", 5.0), ("baseline 5 x", 0.2))


def unpaired_sequences(r: int) -> Iterator[Row]:
    """Arm and baseline without common blocks, looked at after every run up to 50; both growing, and against a pool of 22."""
    for pool, n in ((0, "2 to 50"), (22, "2 to 50 against 22")):
        for noise, ratio in NOISES:
            rng = np.random.default_rng([17, pool, int(10 * ratio)])
            n0 = pool or 50
            delta, half = running_independent(
                rng.normal(size=(r, 50)) * ratio, rng.normal(size=(r, n0)), 0.05, grows=not pool
            )
            held = (np.abs(delta) <= half).all(1).mean()
            yield Row(kind="anytime-valid, not blocked, peeking to 50 runs", n=n, noise=noise, replications=r,
                      simultaneous=float(held), family_error=float(1 - held),
                      unbounded=float(np.isinf(half).all(0).mean()))  # fmt: skip


def diverged(r: int) -> Iterator[Row]:
    """One run in ten diverges in both arms, which are alike: the test over all labellings, and the interval."""
    r = max(r // 10, 100)
    for n in (5, 7):
        rng, rows, false, covered = np.random.default_rng([9, n]), labels(n, 2 * n), [], 0
        for _ in range(r):
            lost = np.zeros(2 * n, bool)
            while not lost.any() or lost[:n].all() or lost[n:].all():
                lost = rng.random(2 * n) < 0.1
            y = rng.normal(size=2 * n)
            # who is called arm is a draw among all labellings, so their share is the error given these losses
            d = np.abs(trimmed_differences(np.where(lost, np.inf, y), rows))
            false.append((1 - np.searchsorted(np.sort(d), d - 1e-12) / len(d) <= 0.05).mean())
            arm, base = (y[part][~lost[part]] for part in (slice(0, n), slice(n, None)))
            effect = permuted_effect(arm, n - len(arm), base, n - len(base), alpha=0.05)
            covered += effect.low is None or effect.high is None or effect.low <= 0 <= effect.high
        yield Row(kind="worst-rank trimmed mean, test", n=str(n), noise="1 in 10 diverge", replications=r,
                  family_error=float(np.mean(false)))  # fmt: skip
        yield Row(kind="worst-rank trimmed mean", n=str(n), noise="1 in 10 diverge", replications=r,
                  coverage=covered / r)  # fmt: skip


def packed(r: int) -> Iterator[Row]:
    """'verified' printed although whole-node losses differ from packed ones by the margin: at most 5 %."""
    r = max(r // 4, 200)
    for n in SIZES:
        rng = np.random.default_rng([18, n])
        y, whole = rng.normal(0, 0.0013, (r, n)), rng.normal(TWO_PHASE_MARGIN, 0.0013, (r, 3))
        said = [equivalent(a, b, TWO_PHASE_MARGIN) for a, b in zip(y, whole, strict=True)]
        yield Row(kind="two phases 'verified' at the margin", n=f"{n} against 3", noise="equal", replications=r,
                  family_error=float(np.mean(said)))  # fmt: skip


def published_deltas(r: int) -> Iterator[Row]:
    """The published side's interval: a record's steps were tuned on as many runs as it has, each with its era's noise."""
    for record, n in (("r08", (1, 1)), ("r15", (75, 1)), ("r19", (10, 10))):
        rng, sides = np.random.default_rng([19, *n]), []
        for runs in n:
            noise = rng.normal(0, era_sd(record), (r, runs)).mean(1) / nats_per_log_step()
            sides.append(
                (
                    noise,
                    PublishedRecord(
                        record=record, n=runs, loss=3.28, time_s=600.0, steps=5000
                    ).log_time_se,
                )
            )
        (new, se_new), (old, se_old) = sides
        covered = np.abs(new - old) <= 1.96 * math.hypot(se_new, se_old)
        yield Row(kind="published delta", n=f"{n[0]} against {n[1]}", noise=f"era of {record}", replications=r,
                  coverage=float(covered.mean()))  # fmt: skip


def descriptions(r: int) -> Iterator[Row]:
    """What is printed beside the comparisons: the baseline's sd with its chi square interval, rates of diverged runs."""
    r = max(r // 4, 200)
    for n in SIZES:
        rng = np.random.default_rng([12, n])
        floors = [noise_floor(y) for y in rng.normal(size=(r, n))]
        covered = [
            f.low is not None and f.high is not None and f.low <= 1 <= f.high for f in floors
        ]
        yield Row(
            kind="noise floor",
            n=str(n),
            noise="equal",
            replications=r,
            coverage=float(np.mean(covered)),
        )
    ends = np.array([exact_rate(k, 10) for k in range(11)])
    looks = np.array(
        [
            [rate_sequence(k, n, 0.05) if k <= n else (0.0, 1.0) for k in range(21)]
            for n in range(1, 21)
        ]
    )
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
    """Simulated share of experiments whose declared analysis finds `effect` in one of n_arms arms: checks reports.stats.planning."""
    rng = np.random.default_rng([11, n, n_arms])
    y = rng.normal(0, sd, size=(replications, n, n_arms + 1))
    y[:, :, 1] += effect
    critical, _ = planned_critical(n, n_arms)
    b = declared_analysis(y)
    assert np.isfinite(critical)
    return float((b.low[:, 0] > 0).mean())


PARTS: tuple[Callable[[int], Iterator[Row]], ...] = (
    families, far_noise, power_by_n, moderated, next_steps, missing, unblocked, axes, lowest_points,
    flat_axes, drawn_surfaces, flat_surfaces, lacks_of_fit, ratios, nodes, shares, ladders, time_shares, times, sequences, unpaired_sequences, tricks, anytime_times,
    anytime_shares, diverged, repetitions, packed, published_deltas, descriptions, borrowed_baselines, streams,
    winners, halved, worths,
)  # fmt: skip
