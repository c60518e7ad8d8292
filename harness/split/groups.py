"""Atoms as groups: those that need each other are one, and each knows what it needs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.errors import UserError
from harness.split.atoms import Atom, atoms_of, puts_only
from harness.split.calls import Edge
from harness.split.diff import MergedScripts, difference
from harness.split.edges import edges_of
from harness.split.labels import class_of, name_of, summary_of
from harness.split.merged import Only, Parameter, Swap, walk
from harness.split.names import Sites, sites_of

NEUTRAL, SUPPORT = "neutral", "support"
MEASURED = ("learning", "system", "budget", "data")
CLASSES = (*MEASURED, NEUTRAL, SUPPORT)


@dataclass(frozen=True, kw_only=True)
class ChangeGroup:
    """Atoms that go together."""

    name: str
    about: str  # in a line
    kind: str  # one of CLASSES
    atoms: tuple[int, ...]
    needs: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    always: bool = False
    lines: int = 0


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A difference taken apart."""

    difference: MergedScripts
    atoms: list[Atom]
    edges: set[Edge]
    groups: tuple[ChangeGroup, ...]


def take_apart(old: str, new: str) -> Parts:
    """The groups of the difference of two scripts in normal form; raises UserError."""
    try:
        parts = _taken_apart(old, new)
        whole = parts.difference
        is_exact = whole.text(()) == old and whole.text(range(whole.n_atoms)) == new
    except RecursionError:
        raise UserError(
            "OLD and NEW: are nested too deeply to be taken apart: shorten their longest chains, "
            "of `elif` or of calls"
        ) from None
    if not is_exact:
        raise UserError(
            "OLD and NEW: are not made again exactly by their parts, which is a fault of `split`: "
            "please report it with both scripts"
        )
    return parts


def _taken_apart(old: str, new: str) -> Parts:
    whole = difference(old, new)
    atoms = atoms_of(whole)
    sites = sites_of(whole.tree)
    edges = edges_of(whole, sites) | _asserted(atoms)
    sets = components(len(atoms), edges)
    quiet = _quiet(whole, sites, atoms)
    sets = sorted(_folded(sets, edges, quiet), key=min)
    groups = _named(sets, atoms, edges, quiet)
    return Parts(difference=whole, atoms=atoms, edges=edges, groups=groups)


def reach(n_atoms: int, edges: Iterable[Edge]) -> list[set[int]]:
    """Of each atom all that it needs, itself too."""
    direct: dict[int, set[int]] = defaultdict(set)
    for one, other in edges:
        direct[one].add(other)
    reached = []
    for atom in range(n_atoms):
        found, waiting = {atom}, [atom]
        while waiting:
            more = direct[waiting.pop()] - found
            found |= more
            waiting += more
        reached.append(found)
    return reached


def components(n_atoms: int, edges: Iterable[Edge]) -> list[set[int]]:
    """Atoms that need each other, in the order of the text."""
    reached = reach(n_atoms, edges)
    sets, seen = [], set()
    for atom in range(n_atoms):
        if atom not in seen:
            found = {other for other in reached[atom] if atom in reached[other]}
            seen |= found
            sets.append(found)
    return sets


@dataclass(frozen=True, kw_only=True)
class _Quiet:
    """Atoms that alone change nothing."""

    neutral: set[int]  # they tell, import, rename, move
    users: Mapping[int, set[int]]  # an atom that only gives names -> the atoms that ask for them

    def is_neutral(self, found: set[int]) -> bool:
        return found <= self.neutral

    def is_quiet(self, found: set[int]) -> bool:
        return found <= set(self.users) | self.neutral


def _quiet(whole: MergedScripts, sites: Sites, atoms: list[Atom]) -> _Quiet:
    """The atoms that give names that only other atoms ask for, and the neutral ones."""
    gives: set[int] = set()
    loud: set[int] = set()
    for part in walk(whole.tree):
        if isinstance(part, Only):
            is_optional = isinstance(part.node, Parameter) and part.node.default is not None
            there = gives if is_optional or puts_only(part.node) else loud
            there.add(part.atom)
        elif isinstance(part, Swap):
            loud.add(part.atom)
    users: dict[int, set[int]] = {atom: set() for atom in gives - loud}
    for site, answers in sites.resolved():
        for answer in answers:
            if answer.condition is None or answer.condition[0] not in users:
                continue
            if site.condition is None:
                del users[answer.condition[0]]
            elif answer.condition[1] == site.condition[1]:
                users[answer.condition[0]].add(site.condition[0])
    neutral = {atom.number for atom in atoms if atom.is_neutral}
    return _Quiet(neutral=neutral, users=users)


def _asserted(atoms: list[Atom]) -> set[Edge]:
    """What an assertion is about: the changes in the same definition."""
    found = set()
    for atom in atoms:
        if atom.asserts:
            for other in atoms:
                if other.place.startswith(atom.place) and not other.is_neutral:
                    found.add((atom.number, other.number))
    return found


def _folded(sets: list[set[int]], edges: set[Edge], quiet: _Quiet) -> list[set[int]]:
    """What is nothing alone joins what it is for; what only tells, what it needs."""
    sets = [set(found) for found in sets]
    changed = True
    while changed:
        changed = False
        owner = {atom: n for n, found in enumerate(sets) for atom in found}
        for n, found in enumerate(sets):
            around = _around(n, found, edges, owner, quiet)
            if len(around) == 1:
                sets[around.pop()] |= found
                del sets[n]
                changed = True
                break
    return sets


def _around(
    n: int, found: set[int], edges: set[Edge], owner: Mapping[int, int], quiet: _Quiet
) -> set[int]:
    """The sets that one without an effect of its own belongs to."""
    needed = {owner[b] for a, b in edges if a in found and owner[b] != n}
    if quiet.is_neutral(found):
        return needed
    if not quiet.is_quiet(found):
        return set()
    users = {owner[a] for a, b in edges if b in found and owner[a] != n}
    for atom in found:
        users |= {owner[user] for user in quiet.users.get(atom, ()) if owner[user] != n}
    return users or needed


def _named(
    sets: list[set[int]], atoms: list[Atom], edges: set[Edge], quiet: _Quiet
) -> tuple[ChangeGroup, ...]:
    """Groups of these sets, with names and prerequisites."""
    reached = reach(len(atoms), edges)
    always = _always(sets, reached, quiet.neutral)
    if always:
        sets = [always, *(found for found in sets if not found <= always)]
    needed_by_others: set[int] = set()
    for n, found in enumerate(sets):
        for atom in found:
            needed_by_others |= {other for other in reached[atom] if other not in sets[n]}
    seen = Counter(name for atom in atoms for name in atom.names)
    groups: list[ChangeGroup] = []
    taken: set[str] = set()
    for n, found in enumerate(sets):
        members = [atoms[number] for number in sorted(found)]
        kind = class_of(members)
        if quiet.is_neutral(found):
            kind = NEUTRAL
        elif quiet.is_quiet(found):
            kind = SUPPORT if found & needed_by_others else NEUTRAL
        name = NEUTRAL if found == always else name_of(members, seen, taken)
        taken.add(name)
        groups.append(
            ChangeGroup(
                name=name,
                about=summary_of(members),
                kind=kind,
                atoms=tuple(sorted(found)),
                always=n == 0 and found == always,
                lines=sum(member.n_lines for member in members),
            )
        )
    return with_needs(groups, edges)


def _always(sets: list[set[int]], reached: list[set[int]], neutral: set[int]) -> set[int]:
    """Atoms that only tell and need nothing else."""
    found: set[int] = set()
    for members in sets:
        if set().union(*(reached[atom] for atom in members)) <= neutral:
            found |= members
    return found


def with_needs(groups: Iterable[ChangeGroup], edges: Iterable[Edge]) -> tuple[ChangeGroup, ...]:
    """The groups with the groups that each needs, directly or not."""
    groups = list(groups)
    owner = {atom: group.name for group in groups for atom in group.atoms}
    direct: dict[str, set[str]] = {group.name: set(group.needs) for group in groups}
    for one, other in edges:
        if owner[one] != owner[other]:
            direct[owner[one]].add(owner[other])
    found = []
    for group in groups:
        needed: set[str] = set()
        waiting = [group.name]
        while waiting:
            more = direct[waiting.pop()] - needed
            needed |= more
            waiting += more
        order = [other.name for other in groups if other.name in needed - {group.name}]
        found.append(replace(group, needs=tuple(order)))
    return tuple(found)
