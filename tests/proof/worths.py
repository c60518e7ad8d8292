"""What is lost without each of two changes, in steps and seconds by the slope that two arms of another length give."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from reports.analysis.worth import OF_ALPHA
from tests.proof.batch import chunks, contrast_half
from tests.proof.row import AT_MOST, SIZES, Row

KINDS = ("lost without it, steps by a measured slope", "lost without it, seconds by a measured slope")  # fmt: skip
# arms: the baseline, a, b, both; then the baseline and both with another length
LOST = np.array([[0.0, 0.0, -1.0, 1.0], [0.0, -1.0, 0.0, 1.0]])  # without a, without b
LOSS = np.array([0.0, -0.15, 0.1, -0.1])  # in slopes, and so in log steps
LOG_RATIO = float(np.log(0.8))
TIME, TIME_SD = np.array([1.0, 1.01, 0.99, 1.02]), 0.003  # of the baseline's training time
NOISES = {  # sd of a loss, of each arm
    "equal, slope within 3 %": 0.02 * np.ones(6),
    "equal, slope within 15 %": 0.1 * np.ones(6),
    "all together 2 x": 0.05 * np.array([1, 1, 1, 2, 1, 2.0]),
    "baseline 2 x": 0.05 * np.array([2, 1, 1, 1, 2, 1.0]),
}


def draw(
    rng: np.random.Generator, size: int, n: int, sd: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Losses (size, n, 6) and times (size, n, 4)."""
    mean = np.r_[LOSS, LOSS[0] - LOG_RATIO, LOSS[3] - LOG_RATIO]
    y = mean + sd * rng.normal(size=(size, n, 6)) + 0.1 * rng.normal(size=(size, n, 1))
    return y, TIME + TIME_SD * rng.normal(size=(size, n, 4))


def converted(
    y_RN6: np.ndarray, time_RN4: np.ndarray, c_K: np.ndarray, alpha: float, *, in_seconds: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Ends (R,) of intervals in parts of the baseline's steps or time; -inf and inf where the slope's own reaches zero."""
    n, y = y_RN6.shape[1], y_RN6[..., :4]
    gained = (y[..., [0, 3]] - y_RN6[..., 4:]).mean(2) / LOG_RATIO  # (R, N)
    se = gained.std(1, ddof=1) / np.sqrt(n)
    reach = stats.t.isf(alpha * OF_ALPHA / 2, n - 1) * se
    worth = time_RN4[..., 0].mean(1) if in_seconds else np.ones(len(y))
    ends = []
    for slope in (gained.mean(1) - reach, gained.mean(1) + reach):
        whole = (worth / slope)[:, None, None] * y + in_seconds * time_RN4
        value, half = whole.mean(1) @ c_K, contrast_half(whole, c_K, alpha * (1 - OF_ALPHA))
        ends += [value - half, value + half]
    is_told = gained.mean(1) > reach
    return np.where(is_told, np.min(ends, 0), -np.inf), np.where(is_told, np.max(ends, 0), np.inf)


def worths(r: int) -> Iterator[Row]:
    """The intervals of both at once; no interval where the slope is not told apart from none."""
    r = min(10 * r, AT_MOST)
    truths = (LOST @ LOSS, LOST @ (LOSS + TIME))
    for n in SIZES:
        for noise, sd in NOISES.items():
            found: list[tuple[int, list[np.ndarray], float]] = []
            for rng, size in chunks([31, n, len(noise)], r, 10 * n):
                y, time = draw(rng, size, n, sd)
                held = []
                for in_seconds, truth in enumerate(truths):
                    ends = [
                        converted(y, time, c, 0.05 / len(LOST), in_seconds=bool(in_seconds))
                        for c in LOST
                    ]
                    held.append(
                        np.array(
                            [
                                (low <= t) & (t <= high)
                                for (low, high), t in zip(ends, truth, strict=True)
                            ]
                        )
                    )
                found.append((size, held, float(np.isinf(ends[0][0]).mean())))
            sizes = [size for size, _, _ in found]
            unbounded = float(np.average([share for *_, share in found], weights=sizes))
            for i, kind in enumerate(KINDS):
                of_all = np.concatenate([held[i] for _, held, _ in found], axis=1)
                yield Row(kind=kind, n=str(n), noise=noise, replications=r, coverage=float(of_all.mean(1).min()),
                          simultaneous=float(of_all.all(0).mean()), unbounded=unbounded)  # fmt: skip
