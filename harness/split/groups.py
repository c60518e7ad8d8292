"""Atoms as groups: those that need each other are one, and each knows what it needs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.errors import UserError
from harness.split.atoms import Atom, atoms_of, puts_only
from harness.split.calls import Edge
from harness.split.diff import MergedScripts, difference
from harness.split.edges import edges_of, likely_edges
from harness.split.labels import class_of, name_of, summary_of
from harness.split.merged import Only, Parameter, Swap, walk
from harness.split.names import sites_of
from harness.split.sites import Sites

NEUTRAL, SUPPORT = "neutral", "support"
MEASURED = ("learning", "system", "budget", "data")
CLASSES = (*MEASURED, NEUTRAL, SUPPORT)
ARMS = ("baseline", "all")  # of every design: no group is called so


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
    edges: Mapping[Edge, str]  # who needs whom, and by what
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
    quiet = _quiet(whole, sites, atoms)
    likely = {edge for edge in likely_edges(whole) if not {*edge} & quiet.neutral}
    sets = components(len(atoms), {*edges, *likely})
    for members in sets:
        for atom in members if len(members) > 1 else ():
            users = quiet.users.get(atom, set()) - {atom}
            if len(users) == 1:  # what it is for alone goes with it
                likely |= {(atom, user) for user in users - quiet.neutral}
    sets = components(len(atoms), {*edges, *likely})
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
        needed, waiting = {atom}, [atom]
        while waiting:
            more = direct[waiting.pop()] - needed
            needed |= more
            waiting += more
        reached.append(needed)
    return reached


def components(n_atoms: int, edges: Iterable[Edge]) -> list[set[int]]:
    """Atoms that need each other, in the order of the text."""
    reached = reach(n_atoms, edges)
    sets, seen = [], set()
    for atom in range(n_atoms):
        if atom not in seen:
            component = {other for other in reached[atom] if atom in reached[other]}
            seen |= component
            sets.append(component)
    return sets


@dataclass(frozen=True, kw_only=True)
class _Quiet:
    """Atoms that alone change nothing."""

    neutral: set[int]  # they tell, import, rename, move
    users: Mapping[int, set[int]]  # an atom that only gives names -> the atoms that ask for them

    def is_neutral(self, atoms: set[int]) -> bool:
        return atoms <= self.neutral

    def is_quiet(self, atoms: set[int]) -> bool:
        return atoms <= set(self.users) | self.neutral


def _quiet(whole: MergedScripts, sites: Sites, atoms: list[Atom]) -> _Quiet:
    """The atoms that give names that only other atoms ask for, and the neutral ones."""
    gives: set[int] = set()
    loud: set[int] = set()
    members = {(site.name, site.condition) for site in sites.given_members}
    for part in walk(whole.tree):
        if isinstance(part, Only):
            is_optional = isinstance(part.node, Parameter) and part.node.default is not None
            is_member = (getattr(part.node, "arg", None), (part.atom, part.is_new)) in members
            there = gives if is_optional or is_member or puts_only(part.node) else loud
            there.add(part.atom)
        elif isinstance(part, Swap):
            loud.add(part.atom)
    users: dict[int, set[int]] = {atom: set() for atom in gives - loud}
    for site, answers in sites.resolved():
        for answer in answers:
            if answer.condition is None or answer.condition[0] not in users:
                continue
            if site.condition is None or answer.condition[1] != site.condition[1]:
                del users[answer.condition[0]]
            else:
                users[answer.condition[0]].add(site.condition[0])
    neutral = {atom.number for atom in atoms if atom.is_neutral}
    return _Quiet(neutral=neutral, users=users)


def _asserted(atoms: list[Atom]) -> dict[Edge, str]:
    """What an assertion is about: the changes in the same definition."""
    edges: dict[Edge, str] = {}
    for atom in atoms:
        if atom.asserts:
            within = f"{atom.place}." if atom.place else ""
            for other in atoms:
                if f"{other.place}.".startswith(within) and not other.is_neutral:
                    edges[atom.number, other.number] = "what an assertion is about"
    return edges


def _folded(sets: list[set[int]], edges: Iterable[Edge], quiet: _Quiet) -> list[set[int]]:
    """What is nothing alone joins what it is for; what only tells, what it needs."""
    needs: dict[int, set[int]] = defaultdict(set)
    users: dict[int, set[int]] = defaultdict(set)
    for one, other in edges:
        needs[one].add(other)
        users[other].add(one)
    for atom, asking in quiet.users.items():
        users[atom] |= asking
    sets = [set(members) for members in sets]
    changed = True
    while changed:
        changed = False
        owner = {atom: n for n, members in enumerate(sets) for atom in members}
        for n, members in enumerate(sets):
            around = {owner[atom] for atom in _around(members, needs, users, quiet)}
            if len(around) == 1:
                sets[around.pop()] |= members
                del sets[n]
                changed = True
                break
    return sets


def _around(
    members: set[int],
    needs: Mapping[int, set[int]],
    users: Mapping[int, set[int]],
    quiet: _Quiet,
) -> set[int]:
    """The atoms that a set without an effect of its own belongs to."""
    needed = set().union(*(needs[atom] for atom in members)) - members
    if quiet.is_neutral(members):
        return needed
    if not quiet.is_quiet(members):
        return set()
    return set().union(*(users[atom] for atom in members)) - members or needed


def _named(
    sets: list[set[int]], atoms: list[Atom], edges: Iterable[Edge], quiet: _Quiet
) -> tuple[ChangeGroup, ...]:
    """Groups of these sets, with names and prerequisites."""
    reached = reach(len(atoms), edges)
    always = _always(sets, reached, quiet.neutral)
    if always:
        sets = [always, *(joined for joined in sets if not joined <= always)]
    needed_by_others: set[int] = set()
    for n, joined in enumerate(sets):
        for atom in joined:
            needed_by_others |= {other for other in reached[atom] if other not in sets[n]}
    seen = Counter(name for atom in atoms for name in atom.names)
    groups: list[ChangeGroup] = []
    taken = {*ARMS}
    for n, joined in enumerate(sets):
        members = [atoms[number] for number in sorted(joined)]
        kind = class_of(members)
        if quiet.is_neutral(joined):
            kind = NEUTRAL
        elif quiet.is_quiet(joined):
            kind = SUPPORT if joined & needed_by_others else NEUTRAL
        name = NEUTRAL if joined == always else name_of(members, seen, taken)
        taken.add(name)
        groups.append(
            ChangeGroup(
                name=name,
                about=summary_of(members),
                kind=kind,
                atoms=tuple(sorted(joined)),
                always=n == 0 and joined == always,
                lines=sum(member.n_lines for member in members),
            )
        )
    return with_needs(groups, edges)


def _always(sets: list[set[int]], reached: list[set[int]], neutral: set[int]) -> set[int]:
    """Atoms that only tell and need nothing else."""
    atoms: set[int] = set()
    for members in sets:
        if set().union(*(reached[atom] for atom in members)) <= neutral:
            atoms |= members
    return atoms


def with_needs(groups: Iterable[ChangeGroup], edges: Iterable[Edge]) -> tuple[ChangeGroup, ...]:
    """The groups with the groups that each needs, directly or not."""
    groups = list(groups)
    owner = {atom: group.name for group in groups for atom in group.atoms}
    direct: dict[str, set[str]] = {group.name: set(group.needs) for group in groups}
    for one, other in edges:
        if owner[one] != owner[other]:
            direct[owner[one]].add(owner[other])
    complete = []
    for group in groups:
        needed: set[str] = set()
        waiting = [group.name]
        while waiting:
            more = direct[waiting.pop()] - needed
            needed |= more
            waiting += more
        order = [other.name for other in groups if other.name in needed - {group.name}]
        complete.append(replace(group, needs=tuple(order)))
    return tuple(complete)


def merged_circles(parts: Parts) -> Parts:
    """The same, groups that need each other as one, by the name of the first."""
    leader: dict[str, str] = {}
    by_name = {group.name: group for group in parts.groups}
    for group in parts.groups:
        mutual = [need for need in group.needs if group.name in by_name[need].needs]
        if group.name not in leader:
            leader |= dict.fromkeys((group.name, *mutual), group.name)
    if len(set(leader.values())) == len(leader):
        return parts
    merged: dict[str, ChangeGroup] = {}
    for group in parts.groups:
        name = leader[group.name]
        first = merged.get(name)
        atoms = group.atoms if first is None else (*first.atoms, *group.atoms)
        needs = _led((*(first.needs if first else ()), *group.needs), leader, name)
        conflicts = _led((*(first.conflicts if first else ()), *group.conflicts), leader, name)
        merged[name] = replace(
            first or group,
            about=group.about if first is None else f"{first.about}; {group.about}",
            kind=group.kind if first is None or first.kind not in MEASURED else first.kind,
            always=group.always or (first is not None and first.always),
            atoms=tuple(sorted(atoms)),
            needs=needs,
            conflicts=conflicts,
            lines=group.lines + (0 if first is None else first.lines),
        )
    return replace(parts, groups=with_needs(merged.values(), parts.edges))


def _led(names: Iterable[str], leader: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Names of groups by the groups that they are in now."""
    return tuple(dict.fromkeys(leader[other] for other in names if leader[other] != name))
