"""What the results folder remembers of an experiment's question, and what follows from it.

A look that came before the present list of seeds was first shown had another choice: what it showed
counts, too, and intervals are sequences, which hold however seeds were chosen one after another. In
the order of the seeds a sequence may end early, so that results that are gone leave those before
them; where results are gone from between, were replaced, or seeds were picked among those whose
baseline was seen, nothing is judged. Changes to one baseline are one family. docs/statistics.md
tells it for users.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from harness.run.document import Content, Document
from harness.run.guarded import is_name
from harness.run.halving import GRID
from harness.run.ledger import Ledger, Look, Seen, claims_of
from harness.run.plan import Plan, PlanRun
from harness.run.read import read_config
from reports.inputs.growth import words_of_growth
from reports.inputs.memory_words import (
    at_seeds,
    changed_words,
    named_in,
    other_words,
    stale_words,
    stream_words,
)

LISTS = ("notes", "confirmed_by", "confirms")
CHOOSES = "its runs choose which points go on"
Value = tuple[float | None]  # of a run with a result: its loss, None where it diverged


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a page must hold to of what was seen before."""

    changed: bool = False  # other seeds were planned and seen: intervals are sequences
    lost: Mapping[str, str] = field(default_factory=dict)  # arm -> why it is not judged
    family: int = 0  # changes that were asked about this baseline, these among them
    notes: tuple[str, ...] = ()
    confirmed_by: tuple[str, ...] = ()  # experiments that asked an exploratory one's question again
    confirms: tuple[str, ...] = ()  # of a confirmatory one: those that explored its question

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        lists = {name: tuple(content.get(name) or ()) for name in LISTS}
        return cls(**{**content, **lists})

    def to_mapping(self) -> Content:
        lists = {name: list(getattr(self, name)) for name in LISTS}
        return {**asdict(self), **lists, "lost": dict(self.lost)}

    def of_plan(self, plan: Plan) -> Self:
        """The same, with no arm judged where the runs of the plan choose among its arms."""
        if plan.halving is None:
            return self
        return replace(self, lost={a: CHOOSES for a in plan.by_arm if a != plan.baseline})

    def share(self, n_arms: int) -> float:
        """Of the error rate of the whole family, what falls to so many of its changes."""
        return min(1.0, n_arms / self.family) if self.family else 1.0

    def level(self, level: float, n_arms: int) -> float:
        """Of so many changes together, where those of the whole family are to hold at `level`."""
        return 1 - (1 - level) * self.share(n_arms)


@dataclass(kw_only=True)
class _Question:
    """An experiment among the looks at its question."""

    plan: Plan
    looks: Sequence[Look]  # at the same baseline, as exploratory or confirmatory as the plan
    names: Mapping[str, str]  # claim -> arm
    baseline: str  # its claim

    def is_own(self, look: Look) -> bool:
        """Whether a look was at a change of this experiment."""
        return any(claim in self.names for claim in look.arms)

    def is_asked_in(self, look: Look) -> bool:
        """Whether a look belongs to what confirms this experiment, or to what it confirms.

        A grid chooses rates: it confirms nothing, and nothing asks for them again."""
        is_other = look.experiment != self.plan.name and look.confirm != self.plan.confirm
        is_grid = self.plan.name.endswith(GRID) or look.experiment.endswith(GRID)
        return is_other and not is_grid and self.is_own(look)

    @cached_property
    def begins(self) -> str:
        """When a change of it was first shown with the present seeds; later than all looks else."""
        present = set(self.plan.seeds)
        times = [look.at for look in self.looks if self.is_own(look) and set(look.seeds) == present]
        return min(times, default="~")

    def other_plans(self) -> list[Look]:
        """Looks at its changes with other seeds, before; what a rule of its own added is none."""
        looks = []
        for look in self.looks:
            by_rule = (
                self.plan.seeds_rule is not None
                and look.experiment == self.plan.name
                and self.plan.seeds[: len(look.seeds)] == look.seeds
            )
            differs = set(look.seeds) != set(self.plan.seeds)
            if self.is_own(look) and differs and look.at < self.begins and not by_rule:
                looks.append(look)
        return looks

    @cached_property
    def first_seen(self) -> dict[str, tuple[str, Seen]]:
        """Intent -> (when, what) was first seen of its arms' results."""
        first: dict[str, tuple[str, Seen]] = {}
        for look in sorted(self.looks, key=lambda look: look.at):
            for seen in look.results:
                if seen.claim in self.names and seen.seed is not None:
                    first.setdefault(seen.intent_id, (look.at, seen))
        return first

    def picked(self, first: Mapping[str, tuple[str, Seen]], counted: set[int]) -> list[int]:
        """Seeds whose baseline was seen before and that are left out before others that count."""
        cutoff = min([self.begins, *(lock.locked for lock in self.plan.locks[:1])])
        seeds = set()
        for at, seen in first.values():
            if seen.claim == self.baseline and at < cutoff and seen.seed is not None:
                seeds.add(seen.seed)
        chosen = seeds & set(self.plan.seeds)
        return sorted(s for s in seeds - counted if chosen and s < max(chosen))


def remember(
    plan: Plan,
    ledger: Ledger,
    runs_folder: Path,
    value_of: Callable[[str], Value | None],
) -> tuple[Memory, Plan]:
    """(what is remembered, the plan with what counts beside its own runs).

    value_of: of a run by its name, None without a result."""
    if plan.halving:
        return Memory(notes=_sentences([ledger.words])).of_plan(plan), plan
    if plan.imported or plan.evidence or not ledger.looks:
        family = plan.stream.parts if plan.stream else 0
        return Memory(family=family, notes=_sentences([ledger.words, stream_words(plan)])), plan
    claims = claims_of(plan)
    looks = [look for look in ledger.looks if look.baseline == claims[plan.baseline]]
    question = _Question(
        plan=plan,
        looks=[look for look in looks if look.confirm == plan.confirm],
        names={claim: arm for arm, claim in claims.items()},
        baseline=claims[plan.baseline],
    )
    stale = _seen_before_the_lock(plan, looks, question.names)
    more, missing, replaced, n_other = _sorted_out(question, runs_folder, value_of)
    counted = {*plan.seeds, *(run.seed for run in more if run.seed is not None)}
    first = question.first_seen
    picked = question.picked(first, counted)
    lost = _not_judged(question, missing, replaced, picked, counted, ledger)
    others = question.other_plans()
    changes = {claim for look in question.looks for claim in look.arms}
    changes |= {claim for claim in question.names if claim != question.baseline}
    notes = [
        ledger.words,
        stale_words(stale),
        changed_words(others, more),
        *(f"{arm} is not judged: {why}." for arm, why in lost.items()),
        stream_words(plan) or _family_words(question, len(changes)),
    ]
    if n_other:
        notes.append(other_words(n_other))
    named = tuple(dict.fromkeys(look.experiment for look in looks if question.is_asked_in(look)))
    memory = Memory(
        confirmed_by=() if plan.confirm else named,
        confirms=named if plan.confirm else (),
        changed=bool(others or more or missing),
        lost=lost,
        family=plan.stream.parts if plan.stream else len(changes),
        notes=_sentences(notes),
    )
    return memory, _with_more(plan, more, confirm=plan.confirm and not stale)


def _sentences(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentence for sentence in sentences if sentence))


def _with_more(plan: Plan, more: Sequence[PlanRun], *, confirm: bool) -> Plan:
    seeds = sorted({run.seed for run in more if run.seed is not None} - set(plan.seeds))
    return replace(plan, runs=(*plan.runs, *more), seeds=(*plan.seeds, *seeds), confirm=confirm)


def _seen_before_the_lock(
    plan: Plan, looks: Sequence[Look], names: Mapping[str, str]
) -> dict[int, str]:
    """Of a confirmatory plan: seed -> the experiment that showed a result there before it began."""
    shown: dict[int, str] = {}
    if not plan.confirm or not plan.locks:
        return shown
    for look in looks:
        for seen in look.results:
            mine = seen.claim in names and seen.seed in plan.seeds
            if mine and seen.seed is not None and look.at < plan.locks[0].locked:
                shown.setdefault(seen.seed, look.experiment)
    return shown


def _sorted_out(
    question: _Question, runs_folder: Path, value_of: Callable[[str], Value | None]
) -> tuple[list[PlanRun], dict[str, set[int]], dict[str, set[int]], int]:
    """What was seen, sorted out.

    (runs that count beside the planned ones; arm -> seeds whose result is gone; arm -> seeds whose
    result is another one now; how many results were of other code)."""
    planned = {run.intent_id: run for run in question.plan.runs}
    missing: dict[str, set[int]] = {}
    replaced: dict[str, set[int]] = {}
    more: list[PlanRun] = []
    n_other, codes = 0, _codes(question.plan, runs_folder)
    for intent, (at, seen) in question.first_seen.items():
        assert seen.seed is not None
        arm, run = question.names[seen.claim], planned.get(intent)
        value = value_of(seen.run_id) if is_name(seen.run_id) else None
        if run is not None and run.run_id != seen.run_id:
            n_other += seen.run_id not in run.older or value_of(run.run_id) is not None
        elif run is not None or at < question.begins:
            if value is None:
                missing.setdefault(arm, set()).add(seen.seed)
            elif value != (seen.val_loss,):
                replaced.setdefault(arm, set()).add(seen.seed)
            elif run is None:
                row = _as_planned(question, seen, arm, runs_folder)
                if row is None:
                    continue  # of another length or role
                if _code_of([row], runs_folder) == codes[arm]:
                    more.append(row)
                else:
                    n_other += 1
    with_arm = {run.seed for run in more if run.arm != question.plan.baseline}
    more = [run for run in more if run.seed in with_arm]
    if question.plan.baseline in missing:  # a seed that no arm had decides nothing
        planned_seeds = {*question.plan.seeds, *with_arm}
        missing[question.plan.baseline] &= {s for s in planned_seeds if s is not None}
    missing = {arm: seeds for arm, seeds in missing.items() if seeds}
    return more, missing, replaced, n_other


def _codes(plan: Plan, runs_folder: Path) -> dict[str, str | None]:
    """Arm -> the digest of its code, as scripts have one each; that of others where none ran."""
    of_plan, codes = _code_of(plan.runs, runs_folder), {}
    for arm in plan.by_arm:
        runs = (run for run in plan.runs if run.arm == arm)
        codes[arm] = _code_of(runs, runs_folder) or of_plan
    return codes


def _code_of(runs: Iterable[PlanRun], runs_folder: Path) -> str | None:
    """The digest of the code that the first of the runs with a record was made by."""
    for run in runs:
        try:
            return str(read_config(runs_folder / run.run_id)["source"]["digest"])
        except (OSError, KeyError, TypeError, ValueError):
            continue
    return None


def _as_planned(question: _Question, seen: Seen, arm: str, runs_folder: Path) -> PlanRun | None:
    """The run of a result that was seen, as the plan would have it; None for other lengths."""
    plan = question.plan
    try:
        config = read_config(runs_folder / seen.run_id)
        budget, role, replicate = int(config["budget"]), str(config["role"]), config["replicate"]
    except (OSError, KeyError, TypeError, ValueError):
        return None
    alike = []  # how long a foreign script trains no configuration says
    for run in plan.runs:
        if (run.arm, run.role) == (arm, role) and (run.self_reported or run.budget == budget):
            alike.append(run)
    if not alike:
        return None
    blocks = [run.block for run in plan.runs if run.block is not None]
    assert seen.seed is not None
    return PlanRun(
        arm=arm,
        seed=seen.seed,
        replicate=int(replicate),
        budget=alike[0].budget,
        role=role,
        self_reported=alike[0].self_reported,
        block=max(blocks, default=0) + 1 + seen.seed,
        run_id=seen.run_id,
        intent_id=seen.intent_id,
    )


def _not_judged(
    question: _Question,
    missing: Mapping[str, set[int]],
    replaced: Mapping[str, set[int]],
    picked: Sequence[int],
    counted: set[int],
    ledger: Ledger,
) -> dict[str, str]:
    """Arm -> why nothing is said of it."""
    baseline = question.plan.baseline
    lost = {}
    for arm in question.names.values():
        if arm == baseline:
            continue
        gone = missing.get(arm, set()) | missing.get(baseline, set())
        other = replaced.get(arm, set()) | replaced.get(baseline, set())
        left = counted - gone
        if picked:
            lost[arm] = (
                f"the baseline's results at {at_seeds(picked)} were seen before and are left out; "
                "run these seeds too, or seeds of which nothing was seen"
            )
        elif other:
            lost[arm] = (
                f"the results at {at_seeds(other)} are other ones than were seen{_how(ledger)}; "
                "ask again on fresh seeds"
            )
        elif gone and left and max(left) > min(gone):
            lost[arm] = (
                f"the results at {at_seeds(gone)} were seen and are gone{_how(ledger)}; "
                "ask again on fresh seeds"
            )
    return lost


def _how(ledger: Ledger) -> str:
    """What took results away last, where that was noted."""
    return f" ({[*ledger.gone.values()][-1]})" if ledger.gone else ""


def _family_words(question: _Question, n: int) -> str:
    n_here = len(question.names) - 1
    if n <= n_here:
        return ""
    asked = [look.arms for look in sorted(question.looks, key=lambda look: look.at)]
    return (
        f"{n} changes were asked about {question.plan.baseline} in this results folder "
        f"({named_in(question.looks)}): the intervals and p of these {n_here} hold for all {n} "
        f"at once.{words_of_growth([*asked, question.names.keys() - {question.baseline}])}"
    )
