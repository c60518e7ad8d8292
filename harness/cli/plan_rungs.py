"""What `plan` says of a halving's rungs that are still to come, whose points nobody knows yet."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.experiment.cost import PricedCost
    from harness.experiment.experiment import Experiment
    from harness.run.halving import Halving
    from harness.run.spec import PlannedRun

APART = 1.01  # two costs are told apart where one is so many times the other


@dataclass(frozen=True, kw_only=True)
class RungFacts:
    """A rung to come; hours are GPU-hours, on a CPU those of one slot."""

    steps: int
    points: int
    runs: int
    hours: float | None  # expected: of points that cost what the mean one does
    hours_at_most: float | None  # of the dearest points


def rung_facts(
    e: "Experiment",
    planned: "Sequence[PlannedRun]",
    cost_of: "Callable[[Sequence[PlannedRun]], PricedCost]",
) -> list[RungFacts]:
    """Of every rung to come; cost_of: what runs take, those of `planned` among them."""
    from harness.experiment.rungs import rungs_to_come

    to_come = []
    if e.halving is None:
        return []
    before = cost_of(planned).hours
    size = planned[-1].spec.world_size

    def more(runs: "Sequence[PlannedRun]") -> float | None:
        hours = cost_of([*planned, *runs]).hours
        return None if hours is None or before is None else hours - before

    for rung in rungs_to_come(e, world_size=size):
        every, baseline = more(rung.planned), more(rung.of_baseline)
        hours = None
        if every is not None and baseline is not None:
            hours = baseline + (every - baseline) * rung.n_points / len(rung.of_points)
        facts = RungFacts(
            steps=rung.steps,
            points=rung.n_points,
            runs=len(rung.dearest),
            hours=hours,
            hours_at_most=more(rung.dearest),
        )
        to_come.append(facts)
    return to_come


def all_hours(
    cost: "PricedCost", rungs: "Sequence[RungFacts]", *, at_most: bool = False
) -> float | None:
    """Of what is still to do of this rung and of those to come; None where it is not known."""
    hours = cost.hours
    for rung in rungs:
        more = rung.hours_at_most if at_most else rung.hours
        hours = None if hours is None or more is None else hours + more
    return hours


def rung_words(halving: "Halving", rungs: "Sequence[RungFacts]", cost: "PricedCost") -> str:
    """Which rung it is, what comes after it and what all of it takes, in lines."""
    lines = []
    if rungs:
        n = halving.n_chosen
        goes = "point goes" if n == 1 else "points go"
        lines.append(f"{halving.words}: the best {n} {goes} on, each trained anew at every budget")
    for rung in rungs:
        points = "1 point" if rung.points == 1 else f"{rung.points} points"
        lines.append(f"then {points} and the baseline at {rung.steps} steps: {rung.runs} runs")
    hours, at_most = all_hours(cost, rungs), all_hours(cost, rungs, at_most=True)
    if rungs and hours is not None and at_most is not None:
        unit = "h of one slot" if cost.gpu_hours is None else "GPU-hours"
        line = f"all rungs together: about {hours:.2f} {unit}"
        if at_most > APART * hours:
            line += f", at most {at_most:.2f}"
        if cost.price_per_hour is not None:
            line += f"; price {at_most * cost.price_per_hour:.2f} at most"
        lines.append(line)
    chosen = "what is selected" if rungs else f"{halving.words}: what it selects"
    lines.append(f"{chosen} is judged by none of these runs: `ablate confirm` asks fresh seeds")
    return "\n".join(lines)
