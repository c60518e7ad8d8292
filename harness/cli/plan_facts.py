"""What `plan` says of an experiment: its arms, what is done, what it costs and can detect."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.machines import Machine, cost_on, known_on
from harness.cli.plan_rungs import RungFacts, rung_facts
from harness.errors import UserError
from harness.run.document import Content

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from harness.cli.power import Power
    from harness.experiment.cost import PricedCost
    from harness.experiment.experiment import Experiment
    from harness.run.plan import SeedsRule
    from harness.run.spec import PlannedRun


@dataclass(frozen=True, kw_only=True)
class ArmFacts:
    """A row of the table of arms."""

    arm: str
    against: str | None  # of a chain: its parent
    runs: int
    done: int
    steps: int | list[int]  # several where the experiment has budgets
    tokens: int | list[int]  # of those steps
    names: list[str]  # of its changes
    changes: list[str]  # the settings that they make
    gone: list[str]  # fields among them that go with what the changes switch off
    substituted: list[str]


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """What is asked of a plan besides its runs."""

    detect: float | None = None  # a difference in loss that is to be found
    price: float | None = None  # of a GPU-hour, on a CPU of a slot's hour
    machine: Machine | None = None  # None: this one


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """What `plan` says of an experiment."""

    name: str
    question: str
    arms: list[ArmFacts]
    runs: int
    done: int
    stale: str | None
    seeds: list[int]
    left_out: list[str]
    follows: str | None  # what comes after a grid of rates
    rungs: list[RungFacts]  # of a halving, that are still to come
    cost: "PricedCost"
    power: "Power"

    @property
    def all_runs(self) -> int:
        """Of a halving with those of the rungs to come."""
        return self.runs + sum(rung.runs for rung in self.rungs)

    def to_mapping(self) -> Content:
        """What `plan --json` prints."""
        arms = [asdict(arm) for arm in self.arms]
        parts: Content = {"cost": self.cost.to_mapping(), "power": self.power.to_mapping()}
        parts["rungs"] = [asdict(rung) for rung in self.rungs]
        return {**vars(self), "arms": arms, **parts}


def plan_facts(
    e: "Experiment",
    planned: "list[PlannedRun]",
    results: Path,
    about: PlanQuestion,
) -> PlanFacts:
    """What `plan` says of an experiment.

    results: the results folder, which says what is done.
    """
    from harness.cli.power import known_of, power_of
    from harness.experiment.cost import estimate, with_price
    from harness.run.results import read_result

    done = set()
    for run in planned:
        run_id = run.spec.run_id
        if read_result(results / "runs" / run_id) is not None:
            done.add(run_id)
    basis, machine = known_of(e, results), about.machine

    def cost_of(runs: "Sequence[PlannedRun]") -> "PricedCost":
        if machine is None:
            return with_price(estimate(runs, done, results), about.price)
        on_it = cost_on(machine, e, runs, results)
        return with_price(on_it, machine.price_per_gpu, machine.price_words)

    cost = cost_of(planned)
    if machine is not None:
        basis = known_on(machine, e, planned, basis, results)
        if about.detect is not None and not basis.sd_is_of_scale:
            raise UserError(
                f"--detect: nothing is known of the noise at scale {e.scale}, and that of another "
                "says nothing of it: two runs of the baseline tell it"
            )
    power = power_of(e, planned, cost, basis, about.detect)
    if machine is not None and power.needed is not None:
        power.words.extend(machine.words_on(power.needed.hours))
    follows = None
    if e.name.endswith(".grid"):
        follows = f"then every arm at its best {e.axes[0].name}"
    return PlanFacts(
        name=e.name,
        question=e.question,
        arms=arm_facts(e, planned, done),
        runs=len(planned),
        done=len(done),
        stale=stale_words(e, results),
        seeds=list(e.seeds),
        left_out=list(e.left_out),
        follows=follows,
        rungs=rung_facts(e, planned, cost_of),
        cost=cost,
        power=power,
    )


def stale_words(e: "Experiment", results: Path) -> str | None:
    """How many runs of older code there are, None where there is none."""
    from harness.store.plans import read_plan, stale_runs, up_to_date

    launched = read_plan(results, e.name)
    if launched is None:
        return None
    stale, why = stale_runs(results, up_to_date(results, launched))
    if not stale:
        return None
    return f"{len(stale)} {why}"


def arm_facts(
    e: "Experiment", planned: "list[PlannedRun]", done: "Collection[str]"
) -> list[ArmFacts]:
    from harness.config.requires import value_text
    from harness.experiment.budgets import tokens_at

    rows = []
    for arm in e.arms:
        run_ids = [run.spec.run_id for run in planned if run.arm == arm.name]
        row = ArmFacts(
            arm=arm.name,
            against=e.parents.get(arm.name),
            runs=len(run_ids),
            done=sum(run_id in done for run_id in run_ids),
            steps=list(e.budgets) or arm.config.schedule.steps,
            tokens=tokens_at(arm.config, e.budgets),
            names=[*arm.changes, *(f"{axis} {at}" for axis, at in arm.point.items())],
            changes=[f"{name}={value_text(value)}" for name, value in arm.fields.items()],
            gone=list(arm.gone),
            substituted=list(arm.substituted),
        )
        rows.append(row)
    return rows


def changes_of(arm: ArmFacts, e: "Experiment") -> str:
    """What the table says that an arm changes: of a plug-in its values, for names tell nothing."""
    text = changes_words(arm.names, e)
    if text == arm.arm and any(change.startswith("plugin.") for change in arm.changes):
        return ", ".join(arm.changes)
    return text


def changes_words(names: list[str], e: "Experiment") -> str:
    """An arm's changes by name; of more than half of all of them, those that it lacks."""
    everything = dict.fromkeys(name for arm in e.arms for name in arm.changes)
    lacking = [name for name in everything if name not in names]
    if len(everything) > 3 and len(lacking) < len(everything) / 2:
        points = [name for name in names if name not in everything]
        without = f"all but {', '.join(lacking)}" if lacking else "all"
        return ", ".join([without, *points])
    return ", ".join(names)


def seeds_words(rule: "SeedsRule") -> str:
    """Until when a rule adds seeds, in a line."""
    until = f"every interval is within +-{rule.stop.get('half_width', 0):g}"
    if "decide" in rule.stop:
        until = f"every arm is decided at {rule.stop['decide']:g}"
    return f"then a seed at a time until {until}, {rule.most} at most"
