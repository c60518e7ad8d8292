"""What arms that are not decided ask for, each step once, with the cost that decides all of it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.run.plan import Plan
from reports.analysis.types import Comparison, Comparisons, effect
from reports.page.cells import typed
from reports.page.naming import arms_listed
from reports.page.selection import as_typed


@dataclass(frozen=True, kw_only=True)
class AskedStep:
    """A next step, with the most seeds that one of its arms needs, which decide all of them."""

    step: str
    arms: Sequence[str]  # the cheapest first

    @property
    def cost(self) -> str:
        """What is behind its command: '16 fresh seeds (160 runs)'; '' where there is none."""
        return self.step.partition(": ")[2]

    def words(self, plan: Plan) -> str:
        """It as it is typed, and for which arms."""
        return f"{typed(self.step, as_typed(plan))}, for {arms_listed(self.arms)}"


def asked_steps(outcome: Comparisons) -> list[AskedStep]:
    """The next steps of the arms, the cheapest first."""
    judged: dict[str, Comparison] = {}
    for arm in outcome.arms:
        c = outcome.judged(arm)
        if c is not None and c.next_action:
            judged[arm] = c
    by_step: dict[str, list[str]] = {}
    for arm in sorted(judged, key=price_in(judged)):
        by_step.setdefault(judged[arm].next_action.partition(":")[0], []).append(arm)
    steps = []
    for arms in by_step.values():
        dearest = max(
            arms, key=lambda arm: (judged[arm].fresh_seeds or 0, interval_width(judged[arm]))
        )
        steps.append(AskedStep(step=judged[dearest].next_action, arms=arms))
    return steps


def interval_width(c: Comparison) -> float:
    """How wide an interval is: of arms that ask for no number of seeds the widest asks for most."""
    return 0.0 if c.low is None or c.high is None else c.high - c.low


def price_in(judged: Mapping[str, Comparison]) -> Callable[[str], tuple[float, float]]:
    """By what arms that ask for runs are put in order: the fewest runs, then the largest effect."""

    def price(arm: str) -> tuple[float, float]:
        runs = judged[arm].next_runs
        return math.inf if runs is None else runs, -abs(effect(judged[arm])[0])

    return price


def said_in_rows(outcome: Comparisons) -> dict[str, str]:
    """Arm -> its next step as its row of the table has it: of a command what it costs alone."""
    said: dict[str, str] = {}
    for asked in asked_steps(outcome):
        is_command = asked.cost and "ablate " in asked.step
        text = f"next: {asked.cost}" if is_command else asked.step
        said |= dict.fromkeys(asked.arms, text)
    return said


def commands_elsewhere(outcome: Comparisons, plan: Plan, next_run: str) -> list[str]:
    """The commands of the rows that what to run next does not name, each once."""
    notes = []
    for asked in asked_steps(outcome):
        command = typed(asked.step.partition(":")[0], as_typed(plan))
        if asked.cost and "ablate " in asked.step and command not in next_run:
            notes.append(f"What else the table asks for: {asked.words(plan)}.")
    return notes
