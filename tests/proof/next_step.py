"""Pages that are undecided and say how many seeds it takes: how many of them are decided after so many?"""

from collections.abc import Iterator

import numpy as np

from reports.stats.contrasts import Sample, analyse
from reports.stats.sequential import critical_t, t_mixture
from reports.stats.verdicts import Evidence, Family, Next, verdict
from tests.proof.batch import declared_analysis, running_h
from tests.proof.row import Row

SPREAD = 1.0  # sd of the true effects, in sds of one run: pages know of no effect beforehand


def asked(y_NK: np.ndarray, follows: Next) -> int | None:
    """The seeds that the page of these blocks asks for, for its first arm; None where it asks for none."""
    n, k = y_NK.shape
    family = Family(metric="val_loss", n_arms=k - 1, follows=follows, margin=None)
    if follows is Next.SEQUENCE:
        d = y_NK[:, 1] - y_NK[:, 0]
        se = d.std(ddof=1) / np.sqrt(n)
        low, high, _ = t_mixture(d, 0.05 / (k - 1))
        evidence = Evidence(delta=d.mean(), se=se, low=low, high=high, p_attainable=0.0, n=n, enough=2)  # fmt: skip
        return verdict(evidence, family).more_seeds
    samples = [Sample(values=x, blocks=tuple(range(n))) for x in y_NK.T]
    e = analyse({f"a{j}": samples[j] for j in range(1, k)}, samples[0])["a1"]
    evidence = Evidence(
        delta=e.delta, se=e.se, df=e.df, low=e.low, high=e.high, p_attainable=0.0, n=n, enough=2
    )
    return verdict(evidence, family).fresh_seeds


def next_steps(r: int) -> Iterator[Row]:
    """Every page that asks for seeds gets them, with the true effect it was drawn with."""
    r = max(r // 4, 300)
    for m in (1, 4):
        for n in (3, 5):
            rng = np.random.default_rng([33, m, n])
            effects, seeds = [], []
            for _ in range(r):
                effect = rng.normal(0, SPREAD)
                n_fresh = asked(
                    rng.normal(size=(n, m + 1)) + np.r_[0.0, effect, np.zeros(m - 1)], Next.FRESH
                )
                if n_fresh is not None:
                    effects.append(effect)
                    seeds.append(n_fresh)
            found = 0
            for n_fresh in sorted(set(seeds)):
                of_these = np.array(
                    [e for e, s in zip(effects, seeds, strict=True) if s == n_fresh]
                )
                y = rng.normal(size=(len(of_these), n_fresh, m + 1))
                y[:, :, 1] += of_these[:, None]
                b = declared_analysis(y)
                found += int(((b.low > 0) | (b.high < 0))[:, 0].sum())
            yield Row(kind="undecided, then the fresh seeds asked for", n=str(n), noise=f"equal, {m} arm{'s' if m > 1 else ''}",
                      replications=len(seeds), power=found / len(seeds))  # fmt: skip
    for n in (7, 10):
        rng, decided, total = np.random.default_rng([34, n]), 0, 0
        for _ in range(r):
            d = rng.normal(rng.normal(0, SPREAD / np.sqrt(2)), 1, n + 100)
            more = asked(np.column_stack([np.zeros(n), d[:n]]), Next.SEQUENCE)
            if more is None:
                continue
            whole = np.arange(n, n + more + 1)
            t = np.abs(running_h(d[None, : n + more, None])[0, n - 2 :, 0])
            total += 1
            decided += bool((t > critical_t(whole, 0.05)).any())
        yield Row(kind="undecided sequence, then the seeds asked for", n=str(n), noise="equal, 1 arm", replications=total,
                  power=decided / total)  # fmt: skip
