"""What right decisions take: 200 candidates by five rules, and `ab --until decided` at known differences."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import stats

from harness.run.stream import parts_of
from tests.proof.batch import running_independent
from tests.proof.stream import CANDIDATES, EFFECT, GREEDY_N, MOST, evidence_so_far

BEGIN, END = "<!-- decisions: begin -->", "<!-- decisions: end -->"
STREAMS, ALPHA = 50, 0.05
EXPERIMENTS, MOST_BLOCKS = 2000, 100
DIFFERENCES = (0.0, 0.5, 1.0, 3.0)  # by which new is better, in sds of one run
MARGIN = 1.0
LOOK_N = 3  # runs of either whose means greedy keeping looks at
CANDIDATES_HEAD = (
    "| candidates | rule | kept of 200 | false among the kept | better ones kept | runs of a candidate "
    "| GPU-hours per right decision |"
)
UNTIL_HEAD = (
    "| new is better by | margin | better | worse | equivalent | undecided | wrong | runs |"
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What one rule made of streams of 200 candidates."""

    candidates: str
    rule: str
    n_kept: float
    false: float  # mean share among the kept
    found: float | None  # of those that are better
    runs: float  # of a candidate, the baseline's beside them too
    per_right: float  # runs, each a GPU-hour, per candidate that is rightly kept or rightly not

    def cells(self) -> list[str]:
        found = "" if self.found is None else f"{100 * self.found:.1f} %"
        shares = [f"{self.n_kept:.1f}", f"{100 * self.false:.1f} %", found]
        return [self.candidates, self.rule, *shares, f"{self.runs:.1f}", f"{self.per_right:.1f}"]


@dataclass(frozen=True, kw_only=True)
class Until:
    """How `--until decided` ended at one difference."""

    difference: float
    margin: float | None
    better: float
    worse: float
    equivalent: float
    wrong: float  # worse, better where there is none, equivalent where it is the margin and more
    runs: float  # of both scripts

    def cells(self) -> list[str]:
        undecided = 1 - self.better - self.worse - self.equivalent
        shares = (self.better, self.worse, self.equivalent, undecided, self.wrong)
        margin = "none" if self.margin is None else f"{self.margin:g} sd"
        told = [f"{100 * abs(share):.1f} %" for share in shares]
        return [f"{self.difference:g} sd", margin, *told, f"{self.runs:.0f}"]


def _fixed(n: int, alpha: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Whether a t test of n runs each calls new better."""
    critical = stats.t.isf(alpha / 2, 2 * n - 2)

    def better(new: np.ndarray, old: np.ndarray) -> np.ndarray:
        t = stats.ttest_ind(new[..., :n], old[..., :n], axis=-1).statistic
        kept: np.ndarray = t < -critical
        return kept

    return better


def _greedy(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    kept: np.ndarray = new[..., :LOOK_N].mean(-1) < old[..., :LOOK_N].mean(-1)
    return kept


def _sequential(
    log_e: np.ndarray, is_below: np.ndarray, *, stream: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Of (streams, candidates, runs): which are kept, and after how many runs each ends."""
    kept, ended = np.zeros(log_e.shape[:2], bool), np.full(log_e.shape[:2], MOST)
    for t in range(log_e.shape[1]):
        parts = np.ones(len(kept))
        if stream:
            parts = np.array([parts_of(t + 1, int(n)) for n in kept[:, :t].sum(1)])
        decided = log_e[:, t] >= np.log(parts / ALPHA)[:, None]
        first, ever = decided.argmax(1), decided.any(1)
        kept[:, t] = ever & is_below[np.arange(len(kept)), t, first]
        ended[ever, t] = first[ever] + 1
    return kept, ended


def rules() -> Iterator[Rule]:
    """No candidate better, and one in five; a kept one is the next baseline, run anew beside each."""
    for i, (words, share) in enumerate((("no effect", 0.0), ("1 in 5 better by 1.5 sd", 0.2))):
        rng = np.random.default_rng([61, i])
        is_better = rng.random((STREAMS, CANDIDATES)) < share
        new = rng.normal(size=(STREAMS, CANDIDATES, MOST)) - EFFECT * is_better[..., None]
        old = rng.normal(size=new.shape)
        flat = evidence_so_far(new.reshape(-1, MOST), old.reshape(-1, MOST), grows=True)
        log_e, is_below = (x.reshape(new.shape) for x in flat)
        each = _fixed(GREEDY_N, ALPHA)(new, old)
        whole = _fixed(MOST, ALPHA / CANDIDATES)(new, old)
        alone = _sequential(log_e, is_below, stream=False)
        streamed = _sequential(log_e, is_below, stream=True)
        for rule, kept, n_each in (
            (f"greedy: the lower mean of {LOOK_N} runs each", _greedy(new, old), LOOK_N),
            (f"fixed n: a t test of {GREEDY_N} runs each", each, GREEDY_N),
            (f"fixed n: of {MOST} runs each, for 200 at once", whole, MOST),
            (f"`--until decided -n {MOST}`, each alone", *alone),
            (f"`--until decided -n {MOST} --stream`", *streamed),
        ):
            n_runs = 2 * float(np.mean(n_each))
            n_false = (kept & ~is_better).sum(1)
            found = None
            if share:
                found = float((kept & is_better).sum() / is_better.sum())
            yield Rule(
                candidates=words,
                rule=rule,
                n_kept=float(kept.sum(1).mean()),
                false=float((n_false / np.maximum(kept.sum(1), 1)).mean()),
                found=found,
                runs=n_runs,
                per_right=n_runs / float((kept == is_better).mean()),
            )


def until_decided() -> Iterator[Until]:
    """Two scripts without seeds, looked at after every block up to 100."""
    for difference in DIFFERENCES:
        rng = np.random.default_rng([62, int(10 * difference)])
        new = rng.normal(size=(EXPERIMENTS, MOST_BLOCKS)) - difference
        old = rng.normal(size=new.shape)
        delta, half = running_independent(new, old, ALPHA, grows=True)
        apart = np.abs(delta) > half
        for margin in (None, MARGIN):
            inside = np.zeros_like(apart)
            if margin is not None:
                inside = np.abs(delta) + half < margin
            over = apart | inside
            last = np.where(over.any(1), over.argmax(1), MOST_BLOCKS - 1)
            at_end = np.arange(EXPERIMENTS), last
            better, worse = (apart & (sign * delta < 0) for sign in (1, -1))
            equivalent = (inside & ~apart)[at_end].mean()
            wrong = worse[at_end].mean() + (better[at_end].mean() if difference == 0 else 0.0)
            if margin is not None and difference >= margin:
                wrong += equivalent
            yield Until(
                difference=difference,
                margin=margin,
                better=float(better[at_end].mean()),
                worse=float(worse[at_end].mean()),
                equivalent=float(equivalent),
                wrong=float(wrong),
                runs=float(2 * (last + 1).mean()),
            )


def tables(candidates: Iterable[Rule], differences: Iterable[Until]) -> str:
    """Both tables of docs/statistics.md."""
    lines = []
    for head, rows in ((CANDIDATES_HEAD, candidates), (UNTIL_HEAD, differences)):
        lines += [head, "|---" * (head.count("|") - 1) + "|"]
        lines += [f"| {' | '.join(row.cells())} |" for row in rows]
        lines.append("")
    return "\n".join(lines).strip()


def with_tables(text: str) -> str:
    """The docs with both tables drawn again."""
    whole = f"{BEGIN}\n{tables(rules(), until_decided())}\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: whole, text, flags=re.DOTALL)
