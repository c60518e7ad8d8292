"""Blocks of `ablate ab` until the primary metric is decided, or a budget is spent."""

import re
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.ab_options import AbOptions
from harness.cli.ab_pool import borrowing, where_fresh_agree
from harness.cli.ab_stream import in_stream, note_kept
from harness.cli.ab_table import load_as_ran
from harness.cli.foreign import run_foreign, stop_if_stopped
from harness.cli.track import asked_trackers, track_beside
from harness.errors import UserError
from harness.run.document import Content
from harness.run.plural import plural
from harness.run.stream import StreamPlace

if TYPE_CHECKING:
    from harness.experiment.cost import Cost
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.spec import PlannedRun
    from harness.runner.executor import Summary
    from harness.store.store import Store
    from reports.analysis.types import Comparisons

MOST_BLOCKS = 100  # without -n
LEVEL = 0.05  # of the test that decides
OUTCOMES = {"helps": "better", "hurts": "worse", "equal": "equivalent"}  # by a verdict's kind
EXIT = {"better": 0, "failed": 1, "worse": 3, "equivalent": 4, "undecided": 5}  # 2: bad input
UNITS = {  # of a budget, as they are typed -> what is counted, and how much of it one is
    "h": ("wall_hours", 1.0),
    "min": ("wall_hours", 1 / 60),
    "gpu-hours": ("hours", 1.0),
    "price": ("price", 1.0),
    "runs": ("runs", 1.0),
}


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a call took, or what more runs would take; None where it is not known."""

    runs: int
    wall_hours: float | None
    hours: float | None  # GPU-hours, on a CPU hours of one slot
    price: float | None  # None without --price, too

    def __add__(self, more: "Spent") -> "Spent":
        return Spent(
            runs=self.runs + more.runs,
            wall_hours=_sum(self.wall_hours, more.wall_hours),
            hours=_sum(self.hours, more.hours),
            price=_sum(self.price, more.price),
        )


def _sum(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return None
    return a + b


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a call may take."""

    text: str  # as it was typed
    counted: str  # a field of Spent
    amount: float

    def allows(self, whole: Spent) -> bool:
        """Whether so much is within it; what is not known before a run is done is begun."""
        value = getattr(whole, self.counted)
        return value is None or value <= self.amount


def budget_of(text: str | None, price: float | None) -> Budget | None:
    """--budget as it is typed, such as 3h, 8gpu-hours, 40runs or 25price."""
    if text is None:
        return None
    written = re.fullmatch(r"([0-9.]+)\s*([a-z-]+)", text.strip())
    try:
        number = float(written[1]) if written else 0.0
    except ValueError:
        number = 0.0
    if written is None or written[2] not in UNITS or not 0 < number < 1e9:
        raise UserError(
            f"--budget {text}: must be a number above zero with {', '.join(UNITS)}, "
            "for example 3h or 40runs"
        )
    counted, each = UNITS[written[2]]
    if counted == "price" and price is None:
        raise UserError(f"--budget {text}: say what an hour costs: --price P")
    return Budget(text=text, counted=counted, amount=number * each)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """How `--until decided` ended."""

    outcome: str  # of EXIT
    stream: StreamPlace | None  # the candidate is kept where it is better
    why: str
    blocks: int
    spent: Spent
    rest: Spent | None  # what most likely decides it; None where nothing does, or it is not known

    def to_mapping(self) -> Content:
        return {**asdict(self), "exit": EXIT[self.outcome]}


@dataclass(kw_only=True)
class Until:
    """One call of `ablate ab --until decided`."""

    options: AbOptions
    experiment: "ForeignExperiment"
    budget: Budget | None
    began: float  # of time.monotonic()
    made: set[str] = field(default_factory=set)  # runs of this call
    why: str = ""

    @classmethod
    def of(cls, options: AbOptions, experiment: "ForeignExperiment") -> "Until":
        from harness.run.plan import SeedsRule
        from reports.stats.sequential import FIRST

        most = options.n or MOST_BLOCKS
        rule = SeedsRule(least=min(FIRST, most), most=most, stop={"decide": LEVEL})
        return cls(
            options=options,
            experiment=replace(experiment, seeds_rule=rule),
            budget=budget_of(options.budget, options.price),
            began=time.monotonic(),
        )

    def run(self) -> "tuple[ForeignExperiment, Summary, list[PlannedRun], Store]":
        """Block after block until it is decided, a run fails, or the next is beyond the budget."""
        from harness.foreign.plan import FRESH
        from harness.foreign.turns import blocks_before, with_blocks

        options = self.options
        results = options.results
        e = borrowing(self.experiment, options) if options.pool else self.experiment
        n = max(FRESH if e.borrowed else 1, len(blocks_before(e, results)))
        self._begin(with_blocks(e, results, n=n, fresh=options.fresh))
        if options.stream is not None:
            e = in_stream(e, results, options.stream)
        e, made = where_fresh_agree(e, options, n=n)
        self.made.update(made)
        e = with_blocks(e, results, n=n, fresh=options.fresh)
        self._begin(e)
        track_beside(asked_trackers(options.log_to), e.name, results, quiet=options.json)
        while True:
            summary, planned, store = run_foreign(e, options.call())
            stop_if_stopped(summary, e, planned, store)
            self.made.update(summary.statuses)
            more = self._more(e, planned, store)
            if not more:
                return e, summary, planned, store
            e = with_blocks(e, results, n=len(e.seeds) + more)

    def _begin(self, e: "ForeignExperiment") -> None:
        """Refuse a budget that does not pay for the first blocks."""
        from harness.foreign.plan import plan_foreign

        rest = self._cost(e, 0)
        whole = self.spent(plan_foreign(e)) + rest
        if rest.runs and self.budget is not None and not self.budget.allows(whole):
            raise UserError(
                f"--budget {self.budget.text}: the first {whole.runs} runs take more: allow more"
            )

    def _more(self, e: "ForeignExperiment", planned: "list[PlannedRun]", store: "Store") -> int:
        """Blocks to add now; 0 where it is over, for the reason that is noted."""
        rule = e.seeds_rule
        assert rule is not None
        if not all(store.is_done(run.spec.run_id) for run in planned):
            self.why = "a run failed"
            return 0
        if len(e.seeds) >= rule.least and not self._is_open(e):
            return 0
        if self.budget is None or self.budget.allows(self.spent(planned) + self._cost(e, 1)):
            return 1
        self.why = f"another block would take more than --budget {self.budget.text}"
        return 0

    def _is_open(self, e: "ForeignExperiment") -> bool:
        from reports.analysis.adaptive import decide
        from reports.stats.sequential import Stop

        experiment = load_as_ran(e, self.options.results, look="ab")
        decision = decide(experiment)
        self.why = decision.reason
        if isinstance(decision, Stop):
            return False
        if (experiment.runs["status"] == "diverged").any():
            self.why = "a run diverged: a sequence has no interval of the others' mean"
            return False
        if not self.options.json:
            print(f"{decision.reason}: {decision.n} more", flush=True)
        return True

    def spent(self, planned: "list[PlannedRun]") -> Spent:
        """What this call took so far."""
        from harness.experiment.cost import spent

        made = [run for run in planned if run.spec.run_id in self.made]
        hours = spent(made, self.options.results)
        return Spent(
            runs=len(made),
            wall_hours=(time.monotonic() - self.began) / 3600,
            hours=hours,
            price=self._price(hours),
        )

    def _cost(self, e: "ForeignExperiment", n_blocks: int) -> Spent:
        """Of what is missing, and of so many blocks more."""
        cost = cost_of_blocks(e, n_blocks, self.options.results)
        wall = cost.slot_hours
        if wall is not None:
            wall /= self.options.max_parallel
        return Spent(
            runs=cost.runs, wall_hours=wall, hours=cost.hours, price=self._price(cost.hours)
        )

    def _price(self, hours: float | None) -> float | None:
        if hours is None or self.options.price is None:
            return None
        return hours * self.options.price

    def decision(
        self,
        e: "ForeignExperiment",
        planned: "list[PlannedRun]",
        outcomes: "Comparisons",
        n_failed: int,
    ) -> Decision:
        """What the analysis says of the metric that decides, with what the rest would take."""
        judged = outcomes.of(e.arms[1].name, outcomes.primary)
        outcome, rest = "undecided", None
        if judged is not None:
            outcome = OUTCOMES.get(judged.kind, outcome)
        if n_failed:
            outcome = "failed"
        if outcome == "undecided" and judged is not None and judged.more_seeds:
            rest = self._cost(e, judged.more_seeds)
        if e.stream is not None and outcome == "better":
            note_kept(e, self.options.results)
        return Decision(
            stream=e.stream,
            outcome=outcome,
            why=self.why,
            blocks=len(e.seeds),
            spent=self.spent(planned),
            rest=rest,
        )


def cost_of_blocks(e: "ForeignExperiment", n_blocks: int, results: Path) -> "Cost":
    """Of what is missing of an experiment, and of so many blocks more."""
    from harness.experiment.cost import estimate_foreign
    from harness.foreign.plan import plan_foreign

    first = max(e.seeds) + 1
    more = replace(e, seeds=(*e.seeds, *range(first, first + n_blocks)))
    return estimate_foreign(plan_foreign(more), results, wall_limit_s=e.limits.wall_s)


def print_decision(decision: Decision) -> None:
    """How it ended, what it took, what the rest would take."""
    print(f"{decision.outcome}: {decision.why}")
    if decision.stream is not None:
        kept = "kept" if decision.outcome == "better" else "not kept"
        print(f"candidate {decision.stream.number} of the stream {decision.stream.stream}: {kept}")
    print(f"this call: {words_of(decision.spent)}; {plural(decision.blocks, 'block')} in all")
    if decision.rest is not None:
        print(f"decided in 8 of 10 cases after {words_of(decision.rest)} more")


def words_of(spent: Spent) -> str:
    """`8 runs, 0.40 h, 3.20 GPU-hours, price 8.00`, as far as it is known."""
    parts = [plural(spent.runs, "run")]
    if spent.wall_hours is not None:
        parts.append(f"{spent.wall_hours:.2f} h")
    if spent.hours is not None and spent.hours != spent.wall_hours:
        parts.append(f"{spent.hours:.2f} hours of devices")
    if spent.price is not None:
        parts.append(f"price {spent.price:.2f}")
    return ", ".join(parts)
