"""The second path for effects, intervals, p values and verdict words.

From a page's rows, sharing no code with the statistics.

Estimates by backfitting arm and block means in turn; the error of complete small blocks from its
formulas, its coverage by integration at the printed width; paired and widened Welch intervals by
hand; a sequence by putting its ends into the test martingale. What has no formula short enough to
be written twice (ragged small blocks, permutations, N*) is left to the rerun in verify.py. Losses
are in nats, times enter as logarithms.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, variance
from typing import Any

import numpy as np
from scipy import special, stats

from reports.stats.digits import room, unit
from reports.verify.page import Printed

ALPHA = 0.05  # simultaneous over the arms of a table
SMALL = 5  # blocks up to which one error serves all arms
WITHIN = 2e-3  # of a probability: what integration on a grid may be off
FACTOR_WITHIN = 2e-3  # of a half width: what the factor of unblocked samples may be off
WORDS = {
    "val_loss": ("better", "worse"),
    "step_ms": ("faster", "slower"),
    "time_to_target": ("faster", "slower"),
}
PRIMARY = {"val_loss": "val_loss", "step_time": "step_ms", "time_to_target": "time_to_target"}
UNFINISHED = ("pending", "running", "interrupted", "preempted", "claimed")


@dataclass(frozen=True, kw_only=True)
class Table:
    """One metric: every arm's values in blocks, of no block, and its divergences.

    The baseline stands apart.
    """

    metric: str
    baseline: str
    blocks: Mapping[str, Mapping[Any, float]]
    loose: Mapping[str, Sequence[float]]
    diverged: Mapping[str, int]

    @classmethod
    def of(cls, metric: str, baseline: str, rows: Sequence[Mapping[str, Any]]) -> "Table":
        blocks: dict[str, dict[Any, list[float]]] = {}
        loose: dict[str, list[float]] = {}
        diverged: dict[str, int] = {}
        for r in rows:
            arm = r["arm"]
            if metric == "val_loss" and r["status"] == "diverged":
                diverged[arm] = diverged.get(arm, 0) + 1
            elif r["status"] == "finished" and r[metric] is not None:
                value = r[metric] if metric == "val_loss" else math.log(r[metric])
                loose.setdefault(arm, []).append(value)
                if r["block"] is not None:
                    blocks.setdefault(arm, {}).setdefault(r["block"], []).append(value)
        means = {arm: {b: fmean(v) for b, v in own.items()} for arm, own in blocks.items()}
        return cls(metric=metric, baseline=baseline, blocks=means, loose=loose, diverged=diverged)

    def differences(self, arm: str) -> list[float]:
        own, base = self.blocks.get(arm, {}), self.blocks.get(self.baseline, {})
        return [own[b] - base[b] for b in base if b in own]

    def complete(self) -> bool:
        """Whether every arm has one run in each of the baseline's blocks, and none diverged."""
        base = self.blocks.get(self.baseline, {})
        one_each = all(
            len(self.loose[a]) == len(own) == len(base) and set(own) == set(base)
            for a, own in self.blocks.items()
        )
        return one_each and set(self.blocks) == set(self.loose) and not self.diverged


def check_effects(
    metric: str,
    rows: Sequence[Mapping[str, Any]],
    printed: Mapping[str, Mapping[str, Printed]],
    plan: Mapping[str, Any],
    *,
    anytime: bool,
) -> Iterator[str]:
    """Sentences on what is printed otherwise than the rows give.

    rows: outcomes compared on this metric, without copies.
    """
    table = Table.of(metric, plan["baseline"], rows)
    arms = [a["name"] for a in plan["arms"] if a["name"] != plan["baseline"]]
    here = [a for a in arms if f"{metric}.effect" in printed.get(a, {})]
    noisy = any(a.get("alters_noise") for a in plan["arms"])
    estimates = {a: estimate(table, a, anytime=anytime) for a in here}
    for arm in here:
        shown = scaled(printed[arm][f"{metric}.effect"].values, metric)[0]
        if estimates[arm] is not None and not near(shown, estimates[arm], 1e-6):
            shown_as = printed[arm][f"{metric}.effect"].text
            yield (
                f"arm {arm!r}: {metric}.effect is printed as {shown_as} but backfitting gives"
                f" {estimates[arm]:.6g}"
            )
    if anytime:
        yield from check_sequences(table, here, printed, len(arms))
    elif not noisy and not table.diverged:
        n = len(table.blocks.get(table.baseline, {}))
        if 2 <= n <= SMALL and table.complete():
            yield from check_small_blocks(table, here, printed)
        elif n > SMALL or n == 0:
            yield from check_separate(table, here, printed)


def scaled(values: Sequence[float | None], metric: str) -> list[float]:
    """Printed values on the scale of the analysis.

    Losses as they are, fractions of a time as logarithms.
    """
    found = [math.nan if v is None else v for v in values]
    return (
        found if metric == "val_loss" else [math.log1p(v) if v > -1.0 else -math.inf for v in found]
    )


def near(a: float, b: float | None, tolerance: float) -> bool:
    return b is not None and (a == b or abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)))


def reach(end: float) -> tuple[float, float]:
    """The least and the largest value that a page carries as this one, which is rounded."""
    half = unit(end) / 2 + room(end)
    return end - half, end + half


def estimate(table: Table, arm: str, *, anytime: bool) -> float | None:
    """Arm minus baseline.

    None where runs diverged and the estimate is a trimmed mean, or an arm repeats a block.
    """
    if table.diverged.get(arm) or table.diverged.get(table.baseline):
        return None
    d, n = table.differences(arm), len(table.blocks.get(table.baseline, {}))
    if anytime or not d or n > SMALL or n < 2 or table.diverged:
        return (
            fmean(d) if len(d) > 1 else fmean(table.loose[arm]) - fmean(table.loose[table.baseline])
        )
    if table.complete():
        return fmean(d)
    return (
        None
        if any(len(table.loose[a]) != len(own) for a, own in table.blocks.items())
        else backfitted(table, arm)
    )


def backfitted(table: Table, arm: str) -> float:
    """Least squares of arm + block in a table with holes.

    Arms and blocks are fitted in turn until nothing moves.
    """
    base = set(table.blocks[table.baseline])
    used = {a: own for a, own in table.blocks.items() if base & set(own)}
    block = dict.fromkeys((b for own in used.values() for b in own), 0.0)
    arms = dict.fromkeys(used, 0.0)
    for _ in range(10_000):
        before = dict(arms)
        arms = {a: fmean(v - block[b] for b, v in own.items()) for a, own in used.items()}
        block = {b: fmean(own[b] - arms[a] for a, own in used.items() if b in own) for b in block}
        if max(abs(arms[a] - before[a]) for a in arms) < 1e-13:
            break
    return arms[arm] - arms[table.baseline]


def check_small_blocks(
    table: Table, here: Sequence[str], printed: Mapping[str, Mapping[str, Printed]]
) -> Iterator[str]:
    """Complete blocks.

    The errors by their formulas, the printed half width must have the level at the largest one.
    """
    y = np.array(
        [
            [own[b] for b in table.blocks[table.baseline]]
            for own in (table.blocks[a] for a in (table.baseline, *here))
        ]
    )
    (k, n), m = y.shape, len(y) - 1
    r = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    if float((r**2).sum()) < 1e-20:
        return
    pooled = math.sqrt(2 * float((r**2).sum()) / ((n - 1) * (k - 1)) / n)
    kept = (
        (n - 1) / k**2 * np.array([[m**2, m], [m, m * (m**2 + m - 1)]])
    )  # expected squares: rows one arm, the others
    squares = (r**2).sum(1)
    own = [
        float(np.linalg.solve(kept, [s, squares.sum() - s]).sum()) if m > 1 else 0.0
        for s in squares
    ]
    for i, (arm, d) in enumerate(zip(here, y[1:].mean(1) - y[0].mean()), 1):
        errors = [(pooled, (n - 1.0) * (k - 1))]
        if max(own[0], own[i]) > 0:
            errors.append((math.sqrt(max(own[0], own[i]) / n), 4.0 * (n - 1) * (k - 1) / (k + 2)))
        part = printed[arm].get(f"{table.metric}.interval")
        for end, sign in zip(part.values if part else (None, None), (-1, 1)):
            tails = []
            for x in scaled((end, *reach(end)), table.metric) if end is not None else (d,):
                tails.append(max(beyond((x - d) * sign / se, m, df) for se, df in errors))
                if min(tails) - WITHIN <= ALPHA <= max(tails) + WITHIN:
                    break
            else:
                rate = f"{tails[0]:.4f} for all arms at once, not {ALPHA:g}"
                yield f"arm {arm!r}: {table.metric}.interval has the error rate {rate}"
                break
        p = max(beyond(abs(d) / se, m, df) for se, df in errors)
        yield from agree_p(printed[arm], table.metric, p, arm)


def beyond(c: float, m: int, df: float) -> float:
    """P(max |T| > c) of m contrasts with one baseline in complete blocks, by a grid.

    Their correlation is 1/2.
    """
    if m == 1:  # Student's t; with one df its tail is too long for the grid
        return float(2 * stats.t.sf(abs(c), df))
    z = np.linspace(-8.5, 8.5, 341)[:, None]
    low, high = (float(stats.chi.ppf(q, df)) / math.sqrt(df) for q in (1e-9, 1 - 1e-9))
    s = np.linspace(low, high, 301)
    weight = stats.chi.pdf(s * math.sqrt(df), df)
    reach = math.sqrt(2.0) * c * s
    inside = (special.ndtr(z + reach) - special.ndtr(z - reach)) ** m
    phi = np.exp(-(z[:, 0] ** 2) / 2)
    return float(1.0 - (phi / phi.sum()) @ inside @ (weight / weight.sum()))


def agree_p(printed: Mapping[str, Printed], metric: str, p: float, arm: str) -> Iterator[str]:
    part = printed.get(f"{metric}.p")
    if part is not None and not near(part.values[0] or 0.0, p, WITHIN):
        yield f"arm {arm!r}: {metric}.p is printed as {part.text} but the rows give {p:.4g}"


def check_separate(
    table: Table, here: Sequence[str], printed: Mapping[str, Mapping[str, Printed]]
) -> Iterator[str]:
    """Paired t over shared blocks or Welch's, Bonferroni, sharpened by Holm.

    The latter where it decides the sign.
    """
    m = len(here)
    found = {a: separate(table, a, ALPHA / m) for a in here}
    if any(e is None for e in found.values()):
        return
    raw = {
        a: 2 * float(stats.t.sf(abs(d) / se, df))
        for a, e in found.items()
        if e is not None
        for d, se, df in (e,)
    }
    adjusted, least = {}, 0.0
    for rank, a in enumerate(sorted(raw, key=lambda a: raw[a])):
        least = adjusted[a] = max(least, min(1.0, (m - rank) * raw[a]))
    for a, e in found.items():
        if e is None or f"{table.metric}.interval" not in printed[a]:
            continue
        d, se, df = e
        half = float(stats.t.isf(ALPHA / m / 2, df)) * se
        within = 1e-6 if len(table.differences(a)) > 1 else 1e-6 + FACTOR_WITHIN * half
        low, high = d - half, d + half
        if adjusted[a] <= ALPHA:
            low, high = (max(low, 0.0), high) if d > 0 else (low, min(high, 0.0))
        shown = scaled(printed[a][f"{table.metric}.interval"].values, table.metric)
        if not (near(shown[0], low, within) and near(shown[1], high, within)):
            text = printed[a][f"{table.metric}.interval"].text
            yield (
                f"arm {a!r}: {table.metric}.interval is printed as {text} but the rows give"
                f" [{low:.5f}, {high:.5f}]"
            )
        yield from agree_p(printed[a], table.metric, adjusted[a], a)


def separate(table: Table, arm: str, alpha: float) -> tuple[float, float, float] | None:
    """(difference, standard error, df), None where a sample has no spread.

    Without blocks the error is widened.
    """
    d = table.differences(arm)
    if len(d) > 1:
        se = math.sqrt(variance(d) / len(d))
        if se <= 1e-12:
            return None
        return fmean(d), se, len(d) - 1.0
    a, b = table.loose[arm], table.loose[table.baseline]
    if len(a) < 2 or len(b) < 2:
        return None
    va, vb = variance(a) / len(a), variance(b) / len(b)
    if va + vb < 1e-24:
        return None
    df = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    return fmean(a) - fmean(b), widened(len(a), len(b), alpha) * math.sqrt(va + vb), df


@lru_cache(maxsize=256)
def widened(n: int, n0: int, alpha: float) -> float:
    """Factor at which Welch's interval misses in 0.99 alpha where it misses most, or 1.

    By one integral: given which share of the two chi squares is the first's, a Beta, the
    difference over the root of their sum is Student's t of all df.
    """
    df = n + n0 - 2.0
    x, weight = np.polynomial.legendre.leggauss(120)
    first = stats.beta.ppf((x + 1) / 2, (n - 1) / 2, (n0 - 1) / 2)
    share = special.expit(np.linspace(-6, 6, 61))[
        :, None
    ]  # of the arm in the variance of the difference
    a, b = share * df * first / (n - 1), (1 - share) * df * (1 - first) / (n0 - 1)
    reach = np.sqrt(a + b) * special.stdtrit(
        (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (n0 - 1)), 1 - alpha / 2
    )

    def missed(factor: float) -> float:
        return float((special.stdtr(df, -factor * reach) @ weight).max())

    low, high = 1.0, 10.0
    if missed(low) <= 0.99 * alpha:
        return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if missed(middle) > 0.99 * alpha else (low, middle)
    return high


def check_sequences(
    table: Table, here: Sequence[str], printed: Mapping[str, Mapping[str, Printed]], m: int
) -> Iterator[str]:
    """At an end of the interval the martingale of the paired differences is m / alpha."""
    for arm in here:
        d, part = table.differences(arm), printed[arm].get(f"{table.metric}.interval")
        if (
            part is None
            or len(d) < 2
            or table.diverged.get(arm)
            or table.diverged.get(table.baseline)
        ):
            continue
        n, se = len(d), math.sqrt(variance(d) / len(d))

        def log_e(mu: float, n: int = n, se: float = se, mean: float = fmean(d)) -> float:
            x = ((mean - mu) / se) ** 2 / (n - 1)
            return -0.5 * math.log1p(n) + n / 2 * (math.log1p(x) - math.log1p(x / (1 + n)))

        for end in part.values if se > 0 else ():
            if end is None or not math.isfinite(end):
                continue
            around = [log_e(at) for at in scaled(reach(end), table.metric) if math.isfinite(at)]
            if not around or not min(around) - 1e-6 <= math.log(m / ALPHA) <= max(around) + 1e-6:
                yield (
                    f"arm {arm!r}: {table.metric}.interval is printed as {part.text}, but it is not"
                    " where the sequence ends"
                )
        if se > 0:
            yield from agree_p(
                printed[arm], table.metric, min(1.0, m * math.exp(-max(log_e(0.0), 0.0))), arm
            )


def check_word(printed: Mapping[str, Printed], plan: Mapping[str, Any], arm: str) -> Iterator[str]:
    """The verdict's word against the printed interval of the metric that decides."""
    metric = PRIMARY[plan.get("primary") or "val_loss"]
    metric = metric if f"{metric}.effect" in printed else "val_loss"
    word, part, effect = (
        printed.get("verdict"),
        printed.get(f"{metric}.interval"),
        printed.get(f"{metric}.effect"),
    )
    if word is None or effect is None:
        return
    good, bad = WORDS[metric]
    if part is None or not part.values:
        fitting: tuple[str, ...] = ("too few runs", "no error estimate", "undecided")
    else:
        low, high = (math.nan if v is None else v for v in part.values)
        sign = effect.values[0] or 0.0
        fitting = (
            (good,)
            if high < 0 or (high == 0 and sign < 0)
            else (bad,)
            if low > 0 or (low == 0 and sign > 0)
            else ()
        )
        fitting = fitting or ("no difference larger than", "undecided", "too few runs")
    if not word.text.startswith(fitting):
        interval = part.text if part else "that is missing"
        yield f"arm {arm!r}: the verdict '{word.text}' does not follow from the interval {interval}"


def is_anytime(plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the page must show sequences.

    A stopping rule, runs still to come, or seeds added after the first launch.
    """
    locks = plan.get("locks") or []
    first = (locks[0].get("plan") or {}).get("seeds") if locks else None
    added = first is not None and len(plan.get("seeds") or ()) > len(first)
    return bool(plan.get("seeds_rule")) or any(r["status"] in UNFINISHED for r in rows) or added
