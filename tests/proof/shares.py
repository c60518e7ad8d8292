"""What changes contribute: shares of the loss, main effects and interactions, and shares of steps and seconds to target."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from scipy import stats

from reports.analysis.attribution import time_judges
from reports.analysis.interactions import contexts, subsets
from reports.analysis.set_contrasts import (
    Contrast,
    Subset,
    alone_contrasts,
    left_out_contrasts,
    shapley_contrasts,
)
from reports.analysis.time_model import TimeModel
from reports.stats.contrasts import Sample
from reports.stats.sequential import critical_t
from tests.proof.batch import chunks, contrast_half, running_h
from tests.proof.row import AT_MOST, SIZES, Row
from tests.proof.times import BETA, LOSS_SD, STEP_SD, TARGET, fitted

CHANGES = ("a", "b", "c")
SETS = subsets(CHANGES)
NO_TABLE = (
    pd.DataFrame()
)  # of times at one budget: only looked at where steps to target are not resolved
NOISES = {  # sd of every set's arm
    "equal": np.ones(8),
    "baseline 2 x": np.array([2.0 if not s else 1.0 for s in SETS]),
    "all together 2 x": np.array([2.0 if len(s) == 3 else 1.0 for s in SETS]),
    "all with one change 1.5 x": np.array([1.5 if "a" in s else 1.0 for s in SETS]),
}


def matrix(
    contrasts: Mapping[str, Contrast | Mapping[Subset, float]], sets: list[Subset]
) -> np.ndarray:
    """Contrasts (M, K) over the sets."""
    return np.array([[float(c.get(s, 0)) for s in sets] for c in contrasts.values()])


def effects() -> np.ndarray:
    """Main effects and two-way interactions of the whole factorial, (6, 8)."""
    rows = []
    for who in [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")]:
        at = contexts(who, set(SETS))
        signed = {s | i: (-1) ** (len(who) - len(i)) / len(at) for s in at for i in subsets(who)}
        rows.append([signed[s] for s in SETS])
    return np.array(rows)


FAMILIES = {
    "contribution alone": matrix(alone_contrasts(SETS, CHANGES), SETS),
    "Shapley share": matrix(shapley_contrasts(SETS, CHANGES), SETS),
    "lost without it": matrix(left_out_contrasts(SETS, CHANGES, with_what_needs_it=True), SETS),
    "main effects and interactions": effects(),
}


def shares(r: int) -> Iterator[Row]:
    """Three changes, all eight sets in blocks, the intervals of one column at once; the truth is 0, intervals move with it."""
    r = min(50 * r, AT_MOST // 2)
    for n in SIZES:
        for noise, sd in NOISES.items():
            found: dict[str, list[tuple[np.ndarray, ...]]] = {kind: [] for kind in FAMILIES}
            for rng, size in chunks([20, n, len(noise)], r, n * 8):
                y = rng.normal(size=(size, n, 8)) * sd + rng.normal(size=(size, n, 1))
                for kind, c_MK in FAMILIES.items():
                    half = np.array([contrast_half(y, c, 0.05 / len(c_MK)) for c in c_MK]).T
                    covers = np.abs(y.mean(1) @ c_MK.T) <= half
                    oracle = stats.t.isf(0.05 / len(c_MK) / 2, (n - 1) * 7) * np.sqrt(
                        c_MK**2 @ sd**2 / n
                    )
                    found[kind].append(
                        (covers.mean(0), covers.all(1).mean(), np.median(half / oracle))
                    )
            for kind in FAMILIES:
                each, whole, width = (
                    np.mean(part, axis=0) for part in zip(*found[kind], strict=True)
                )
                yield Row(
                    kind=kind, n=str(n), noise=noise, replications=r, coverage=float(each.min()), simultaneous=float(whole),
                    family_error=float(1 - whole), width=float(width),
                )  # fmt: skip


def ladders(r: int) -> Iterator[Row]:
    """Four rungs in blocks, each against the one before, the intervals at once; the truth is 0."""
    r = min(50 * r, AT_MOST // 2)
    rungs = np.diff(np.eye(5), axis=0)
    noises = {
        "equal": np.ones(5),
        "first 2 x": np.array([2, 1, 1, 1, 1.0]),
        "a rung in the middle 2 x": np.array([1, 1, 2, 1, 1.0]),
        "last 2 x": np.array([1, 1, 1, 1, 2.0]),
    }
    for n in SIZES:
        for noise, sd in noises.items():
            found = []
            for rng, size in chunks([24, n, len(noise)], r, n * 5):
                y = rng.normal(size=(size, n, 5)) * sd + rng.normal(size=(size, n, 1))
                half = np.array([contrast_half(y, c, 0.05 / len(rungs)) for c in rungs]).T
                covers = np.abs(y.mean(1) @ rungs.T) <= half
                oracle = stats.t.isf(0.05 / len(rungs) / 2, (n - 1) * 4) * np.sqrt(
                    rungs**2 @ sd**2 / n
                )
                found.append((covers.mean(0), covers.all(1).mean(), np.median(half / oracle)))
            each, whole, width = (np.mean(column, axis=0) for column in zip(*found, strict=True))
            yield Row(
                kind="rung against the one before, of 4",
                n=str(n),
                noise=noise,
                replications=r,
                coverage=float(each.min()),
                simultaneous=float(whole),
                family_error=float(1 - whole),
                width=float(width),
            )


def anytime_shares(r: int) -> Iterator[Row]:
    """The same looked at after every block up to 20: the share of experiments in which every interval held."""
    n = np.arange(2, 21)
    for kind, c_MK in FAMILIES.items():
        critical = critical_t(n, 0.05 / len(c_MK))
        rng = np.random.default_rng([21, len(kind)])
        t = running_h(rng.normal(size=(r, 20, 8)) @ c_MK.T)
        held = (np.abs(t) <= critical[None, :, None]).all(axis=(1, 2)).mean()
        yield Row(kind=f"{kind}, anytime-valid", n="2 to 20", noise="equal", replications=r, simultaneous=float(held),
                  unbounded=float(np.isinf(critical).mean()))  # fmt: skip


def time_shares(r: int) -> Iterator[Row]:
    """Shapley shares of steps and of seconds to target, two changes, by production code."""
    r = max(2 * r // 5, 500)
    names, sets = ["base", "a", "b", "a + b"], subsets(("a", "b"))
    c_MK = matrix(shapley_contrasts(sets, ("a", "b")), sets)
    log_steps = math.log(3000) + np.array([0.0, -0.02, -0.015, -0.04])
    log_step = np.log([150.0, 151.0, 147.0, 148.0])
    truth = np.array([np.exp(log_steps), np.exp(log_steps + log_step) / 1e3]) @ c_MK.T  # (2, M)
    for design, budgets, sd in (("equal, 3 budgets", (2700.0, 3000.0, 3300.0), np.ones(4)),
                                ("baseline 1.5 x, 2 budgets", (2600.0, 3400.0), np.array([1.5, 1, 1, 1]))):  # fmt: skip
        for n in SIZES:
            rng, held = np.random.default_rng([22, n, len(design)]), np.zeros((r, 2, 2), bool)
            mean = TARGET + BETA * (np.log(budgets) - log_steps[:, None])[:, None, :]
            for k in range(r):
                loss = mean + rng.normal(0, LOSS_SD, (4, n, len(budgets))) * sd[:, None, None]
                step = log_step[:, None] + rng.normal(0, STEP_SD, (4, n))
                time_model = time_model_of(names, loss, budgets, step)
                for i, judged in enumerate(time_judges(time_model, NO_TABLE, names, anytime=False)):
                    assert judged.judge is not None
                    found = [
                        judged.judge(dict(zip(names, c, strict=True)), 0.05 / len(c_MK))
                        for c in c_MK
                    ]
                    held[k, i] = [
                        f.low is not None and f.low <= t <= (f.high or 0.0)
                        for f, t in zip(found, truth[i], strict=True)
                    ]
            for i, kind in enumerate(("Shapley share of steps", "Shapley share of seconds")):
                yield Row(kind=kind, n=str(n), noise=design, replications=r, coverage=float(held[:, i].mean(0).min()),
                          simultaneous=float(held[:, i].all(1).mean()))  # fmt: skip


def time_model_of(
    names: list[str], loss_AnB: np.ndarray, budgets: tuple[float, ...], step_An: np.ndarray
) -> TimeModel:
    """What an experiment's finished runs would give."""
    arms, n, _ = loss_AnB.shape
    runs = pd.DataFrame({"arm": np.repeat(names, n * len(budgets)), "budget": np.tile(budgets, arms * n),
                         "val_loss": loss_AnB.ravel()})  # fmt: skip
    step = {
        a: Sample(values=x, blocks=tuple(range(n))) for a, x in zip(names, step_An, strict=True)
    }
    model = fitted(loss_AnB, budgets, None)
    return TimeModel(arms=tuple(names), target=TARGET, model=model, runs=runs, step=step, comparable=frozenset(names), why_not="",
                     warnings=())  # fmt: skip
