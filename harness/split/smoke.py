"""Two real steps of every arm, held against both parents; what an arm lacks becomes a need."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Literal

from harness.errors import UserError
from harness.run.document import Content
from harness.split.arms import alone, atoms_on, measured, mended, names_on, without
from harness.split.check import Checker
from harness.split.groups import ChangeGroup, Parts, merged_circles, reach
from harness.split.search import smallest

MOST_TRIES = 40  # arms that a search among atoms may try
Parent = Literal["OLD", "NEW"]


@dataclass(frozen=True, kw_only=True)
class TwoSteps:
    """What came of two steps of a script."""

    reason: str | None  # why it failed; None: it took them
    steps: int
    losses: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()  # of the gradients of each step
    seconds: float = 0.0

    @property
    def measured(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.losses, self.norms


@dataclass(frozen=True, kw_only=True)
class SmokedArm:
    """An arm and its two steps."""

    arm: str
    group: str
    outcome: TwoSteps
    same_as: Parent | None  # it did exactly what this one does: no effect

    def to_mapping(self) -> Content:
        return {
            "arm": self.arm,
            "group": self.group,
            **asdict(self.outcome),
            "same_as": self.same_as,
        }


@dataclass(frozen=True, kw_only=True)
class FoundNeed:
    """What an arm lacked."""

    group: str
    needs: tuple[str, ...]
    atoms: tuple[int, ...]  # of those, the ones without which it fails
    reason: str | None  # why it failed; None where another one than itself alone did
    merged: bool = False  # they need each other, and are one group now


@dataclass(frozen=True, kw_only=True)
class Smoke:
    """What `--smoke` found."""

    parts: Parts  # with the needs that were found
    old: TwoSteps
    new: TwoSteps
    repeats: bool  # OLD did exactly the same twice
    first: tuple[SmokedArm, ...]  # arms as they were before anything was found
    arms: tuple[SmokedArm, ...]
    found: tuple[FoundNeed, ...]

    @property
    def failed(self) -> list[SmokedArm]:
        return [arm for arm in self.arms if arm.outcome.reason is not None]

    @property
    def passed_at_first(self) -> int:
        return sum(arm.outcome.reason is None for arm in self.first)


class _Tries(Checker):
    """Variants as they pass: the static check, then two steps; each is tried once."""

    def __init__(self, old: str, new: str, take: Callable[[str], TwoSteps]) -> None:
        super().__init__(old, new)
        self.take = take
        self.tried: dict[str, TwoSteps] = {}

    def outcome(self, text: str) -> TwoSteps:
        """What comes of a variant."""
        if text not in self.tried:
            lacks = super().problems(text)
            if lacks:
                self.tried[text] = TwoSteps(reason=lacks[0], steps=0)
            else:
                self.tried[text] = self.take(text)
        return self.tried[text]

    def problems(self, text: str) -> list[str]:
        """Why it fails; nothing where it passes."""
        reason = self.outcome(text).reason
        return [] if reason is None else [reason]


def smoke(
    parts: Parts, old: str, new: str, take: Callable[[str], TwoSteps], tell: Callable[[str], None]
) -> Smoke:
    """Try both parents, then every group alone and left out; raises UserError for a parent.

    old, new: in normal form. take: two steps of a script. tell: takes what was found, in lines."""
    tries = _Tries(old, new, take)
    of_old = _of_parent(tries, old, "OLD")
    again = take(f"{old}\n")  # the same program, which is no text that is known
    repeats = again.measured == of_old.measured
    of_new = _of_parent(tries, new, "NEW")

    def arms_of(parts: Parts) -> tuple[SmokedArm, ...]:
        arms = []
        for group in measured(parts.groups):
            for arm, chosen in (
                (f"{group.name} alone", alone(parts.groups, group.name)),
                (f"all but {group.name}", without(parts.groups, group.name)),
            ):
                outcome = tries.outcome(parts.difference.text(atoms_on(parts.groups, chosen)))
                same = _same(outcome, of_old, of_new) if repeats else None
                arms.append(SmokedArm(arm=arm, group=group.name, outcome=outcome, same_as=same))
        return tuple(arms)

    first = arms_of(parts)
    full = merged_circles(mended(_with_loud(parts, tries), tries))
    needs = tuple(_found(parts, full, tries))
    for need in needs:
        tell(in_words(need))
    return Smoke(
        parts=full,
        old=of_old,
        new=of_new,
        repeats=repeats,
        first=first,
        arms=arms_of(full),
        found=needs,
    )


def _of_parent(tries: _Tries, text: str, parent: Parent) -> TwoSteps:
    outcome = tries.outcome(text)
    if outcome.reason is not None:
        raise UserError(
            f"{parent}: does not take two steps: {outcome.reason}: make it run here, with "
            "--smoke-command or --smoke-env where it needs other sizes or data"
        )
    return outcome


def _with_loud(parts: Parts, tries: _Tries) -> Parts:
    """The groups, those without which the baseline passes being changes: the rest stays neutral."""
    on = names_on(parts.groups, ())
    by_name = {group.name: group for group in parts.groups}

    def passes(changes: list[str]) -> bool:
        kept = on - set(changes)
        kept -= {name for name in kept if set(by_name[name].needs) & set(changes)}
        atoms = {atom for name in kept for atom in by_name[name].atoms}
        return not tries.problems(parts.difference.text(atoms))

    neutral = [group.name for group in parts.groups if group.name in on]
    if passes([]):
        return parts
    loud = set(smallest(neutral, passes))
    loud |= {name for name in on if set(by_name[name].needs) & loud}
    groups = []
    for group in parts.groups:
        is_loud = group.name in loud
        groups.append(replace(group, kind="learning", always=False) if is_loud else group)
    return replace(parts, groups=tuple(groups))


def _same(outcome: TwoSteps, old: TwoSteps, new: TwoSteps) -> Parent | None:
    """The parent that did exactly the same."""
    if outcome.reason is None and outcome.measured == new.measured:
        return "NEW"
    if outcome.reason is None and outcome.measured == old.measured:
        return "OLD"
    return None


# ---------------------------------------------------------------- what was lacking


def _found(before: Parts, after: Parts, tries: _Tries) -> Iterable[FoundNeed]:
    """The needs that one has and the other has not, with the atoms that they are about."""
    by_name = {group.name: group for group in before.groups}
    owner = {atom: group.name for group in before.groups for atom in group.atoms}
    for group in after.groups:
        was = by_name[group.name]
        joined = {owner[atom] for atom in group.atoms} - {group.name}
        more = _outermost((set(group.needs) | joined) - set(was.needs), after.groups)
        if more:
            needs = tuple(g.name for g in before.groups if g.name in more)
            yield _need(before, group.name, needs, tries, merged=bool(joined))


def _outermost(names: set[str], groups: Collection[ChangeGroup]) -> set[str]:
    """Names without those that others of them need anyway."""
    needed = {need for group in groups if group.name in names for need in group.needs}
    return names - needed


def _need(
    parts: Parts, name: str, needs: tuple[str, ...], tries: _Tries, *, merged: bool
) -> FoundNeed:
    """What a group lacks, by itself, or where what it needs is left out."""
    groups = parts.groups
    elements = {atom for group in groups if group.name in needs for atom in group.atoms}
    judged = {group.name for group in measured(groups)}
    bases = [atoms_on(groups, alone(groups, name))] if name in judged else []
    bases += [atoms_on(groups, without(groups, need)) for need in needs if need in judged]
    for base in bases:
        problems = tries.problems(parts.difference.text(base))
        if problems:
            atoms = _narrowed(parts, base, sorted(elements - base), tries)
            return FoundNeed(
                group=name, needs=needs, atoms=atoms, reason=problems[0], merged=merged
            )
    return FoundNeed(group=name, needs=needs, atoms=(), reason=None, merged=merged)


def _narrowed(parts: Parts, base: set[int], elements: list[int], tries: _Tries) -> tuple[int, ...]:
    """The fewest of some atoms with which a variant passes; all of them where that takes long."""
    needed = reach(parts.difference.n_atoms, parts.edges)
    n_tried = 0

    def passes(some: list[int]) -> bool:
        nonlocal n_tried
        n_tried += 1
        whole = base.union(*(needed[atom] for atom in some))
        return n_tried <= MOST_TRIES and not tries.problems(parts.difference.text(whole))

    return tuple(smallest(elements, passes))


def in_words(need: FoundNeed) -> str:
    """What was lacking, in a line."""
    others = ", ".join(need.needs)
    said = f"{need.group} and {others} are one group now"
    if not need.merged:
        said = f"{need.group} needs {others}"
    if need.atoms:
        atoms = ", ".join(map(str, need.atoms))
        said += f" (atom {atoms})" if len(need.atoms) == 1 else f" (atoms {atoms})"
    return f"{said}: {need.reason}" if need.reason else said
