"""Places where names are given and asked for, and which of them answers which."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from harness.split.merged import Condition


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where names live."""

    kind: str  # module, function, class
    name: str
    outer: "Scope | None" = None
    elsewhere: set[str] = field(default_factory=set)  # names that are global here

    def chain(self) -> "list[Scope]":
        """Itself and the scopes that a name is looked up in after it."""
        scopes, outer = [self], self.outer
        while outer is not None:
            if outer.kind != "class":
                scopes.append(outer)
            outer = outer.outer
        return scopes


@dataclass(frozen=True, kw_only=True)
class Site:
    """One place where a name is given or asked for."""

    name: str
    scope: Scope
    condition: Condition
    order: int  # in the text
    owner: str = ""  # the class whose own attribute it is: self.x, what its body gives
    in_block: bool = False  # within a block that one of the scripts has, and that is one choice
    within: str = ""  # the class in which it is an attribute of something else: config.x

    def __hash__(self) -> int:
        return hash((self.name, self.order))


@dataclass(frozen=True, kw_only=True)
class Sites:
    """All of them in a tree; attributes are known by their name alone."""

    given: list[Site] = field(default_factory=list)
    asked: list[Site] = field(default_factory=list)
    given_attributes: list[Site] = field(default_factory=list)
    asked_attributes: list[Site] = field(default_factory=list)
    given_members: list[Site] = field(default_factory=list)  # ModuleDict(dict(head=...))
    given_keys: list[Site] = field(default_factory=list)  # state['step'] = 1
    asked_keys: list[Site] = field(default_factory=list)

    def resolved(self) -> Iterator[tuple[Site, list[Site]]]:
        """Every place that asks, with those that may answer; none for what is built in."""
        yield from self.resolved_names()
        yield from self.resolved_attributes()
        yield from self.resolved_keys()

    def resolved_names(self) -> Iterator[tuple[Site, list[Site]]]:
        """Those that ask for a name; what its own scope gives before the place goes first.

        A name that a function gives anywhere is its own there, in the script that gives it."""
        by_place = _by_place(self.given)
        for site in self.asked:
            innermost, *outer = site.scope.chain()
            there = by_place.get((id(innermost), site.name), [])
            answers = [answer for answer in there if answer.order < site.order] or list(there)
            if innermost.kind != "function" or not _is_given_for(site, there):
                for scope in outer:
                    answers += by_place.get((id(scope), site.name), [])
            yield site, answers

    def resolved_attributes(self) -> Iterator[tuple[Site, list[Site]]]:
        """Those that ask for an attribute; of `self` it is that of its class, if there is one."""
        by_name: dict[str, list[Site]] = {}
        for site in self.given_attributes:
            by_name.setdefault(site.name, []).append(site)
        for site in self.asked_attributes:
            answers = by_name.get(site.name, [])
            inside = [answer for answer in answers if site.owner and answer.owner == site.owner]
            others = [answer for answer in answers if site.within and answer.owner != site.within]
            yield site, inside or others or answers

    def resolved_keys(self) -> Iterator[tuple[Site, list[Site]]]:
        """Those that ask for an entry by a word in quotes which the same scope puts there."""
        by_place = _by_place(self.given_keys)
        for site in self.asked_keys:
            yield site, by_place.get((id(site.scope), site.name), [])


def _by_place(sites: Iterable[Site]) -> dict[tuple[int, str], list[Site]]:
    by_place: dict[tuple[int, str], list[Site]] = {}
    for site in sites:
        by_place.setdefault((id(site.scope), site.name), []).append(site)
    return by_place


def _is_given_for(asking: Site, there: Iterable[Site]) -> bool:
    """Whether one of these gives the name in every script that asks."""
    sides = {None if site.condition is None else site.condition[1] for site in there}
    if None in sides:
        return True
    return len(sides) == 2 if asking.condition is None else asking.condition[1] in sides


def atom_of(condition: Condition) -> int:
    """The atom of a condition that there is."""
    assert condition is not None
    return condition[0]
