"""200 candidates one after the other: which of those that are kept are false, in a stream and by greedy keeping."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from harness.run.stream import parts_of
from reports.stats.sequential import FIRST, log_e_of
from tests.proof.batch import _running
from tests.proof.row import BEYOND_CONDITION, Row

CANDIDATES, MOST = 200, 30  # runs of a candidate at most
POOL = 22
KIND = "false among the kept, of 200 candidates"
GREEDY_N = 10  # runs of either that greedy keeping compares
EFFECT = 1.5  # sds, of one candidate in five


def evidence(new_RM: np.ndarray, old_RN: np.ndarray, *, grows: bool) -> np.ndarray:
    """The largest log e that the sequence of two samples ever has for `better`, (R,)."""
    log_e, is_below = evidence_so_far(new_RM, old_RN, grows=grows)
    most: np.ndarray = np.where(is_below, log_e, 0.0).max(axis=1)
    return most


def evidence_so_far(
    new_RM: np.ndarray, old_RN: np.ndarray, *, grows: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Log e of a difference after each run, 0 before there is one, and whether new is lower, (R, M)."""
    m = np.arange(1, new_RM.shape[1] + 1)
    n = m if grows else np.full_like(m, old_RN.shape[1])
    (mean_a, var_a), (mean_b, var_b) = _running(new_RM, m), _running(old_RN, n)
    share = m * n / (m + n)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_a, of_b = var_a / m, var_b / n
        df = (of_a + of_b) ** 2 / (of_a**2 / (m - 1) + of_b**2 / (n - 1))
        pooled = ((m - 1) * var_a + (n - 1) * var_b) / (m + n - 2) / share
        log_e = np.minimum(
            log_e_of((mean_a - mean_b) / np.sqrt(of_a + of_b), share, df),
            log_e_of((mean_a - mean_b) / np.sqrt(pooled), share, m + n - 2.0),
        )
    return np.where(m >= FIRST, log_e, 0.0), mean_a < mean_b


def kept_in_stream(log_e_RT: np.ndarray, alpha: float = 0.05) -> np.ndarray:
    """Which of the candidates, in their order, a stream keeps."""
    kept = np.zeros(log_e_RT.shape, bool)
    for t in range(log_e_RT.shape[1]):
        n_kept = kept[:, :t].sum(1)
        parts = np.array([parts_of(t + 1, int(n)) for n in n_kept])
        kept[:, t] = log_e_RT[:, t] >= np.log(parts / alpha)
    return kept


def false_share(kept: np.ndarray, is_better: np.ndarray) -> float:
    """Mean over streams of the false among the kept; 0 where none is."""
    false = (kept & ~is_better).sum(1)
    return float((false / np.maximum(kept.sum(1), 1)).mean())


def streams(r: int) -> Iterator[Row]:
    """No candidate better, and one in five; the baseline run beside each, and one pool for all 200."""
    r = max(r // 40, 50)
    for i, (noise, share) in enumerate((("no effect", 0.0), ("1 in 5 better by 1.5 sd", 0.2))):
        for pooled in (False, True):
            rng = np.random.default_rng([51, i, pooled])
            is_better = rng.random((r, CANDIDATES)) < share
            pool = rng.normal(size=(r, POOL))
            log_e = np.empty((r, CANDIDATES))
            greedy = np.zeros((r, CANDIDATES), bool)
            for t in range(CANDIDATES):
                new = rng.normal(size=(r, MOST)) - EFFECT * is_better[:, [t]]
                old = pool if pooled else rng.normal(size=(r, MOST))
                log_e[:, t] = evidence(new, old, grows=not pooled)
                greedy[:, t] = _better(new[:, :GREEDY_N], old[:, :GREEDY_N])
            kept = kept_in_stream(log_e)
            where = f"{noise}, {'one pool' if pooled else 'fresh baselines'}"
            found = None
            if share:
                found = float((kept & is_better).sum() / is_better.sum())
            yield Row(kind=KIND, n="7 to 30", noise=where, replications=r, family_error=false_share(kept, is_better))  # fmt: skip
            yield Row(kind=f"{KIND}, greedy", n=str(GREEDY_N), noise=f"{where}: {BEYOND_CONDITION}", replications=r,
                      family_error=false_share(greedy, is_better))  # fmt: skip
            if found is not None:
                yield Row(kind=f"power, of 200 candidates, {where}", n="7 to 30", noise="equal", replications=r, power=found)  # fmt: skip


def _better(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Whether a t test of so many runs each calls it better at 5 %."""
    t = stats.ttest_ind(new, old, axis=1).statistic
    better: np.ndarray = t < -stats.t.isf(0.025, 2 * GREEDY_N - 2)
    return better
