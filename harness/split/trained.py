"""Parameters and modules: the optimizer that takes them, and where they are used."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from harness.split.calls import Edge
from harness.split.merged import Condition, Only, Swap, conditioned, inside, walk
from harness.split.signatures import called
from harness.split.sites import Site, Sites, atom_of
from harness.split.taken_over import own_attributes

PARAMETER = ("Parameter",)
EVERY = ("parameters", "named_parameters")  # calls that give all of a module's


def handed_over(tree: Any, sites: Sites) -> Iterator[Edge]:
    """An optimizer that took all parameters would take a new one, too; NEW's takes a choice.

    Those of torch take any; what took those of a part of a net takes none of the whole's own."""
    holders: dict[str, set[str]] = defaultdict(set)  # an attribute -> classes that have it
    for site in (*sites.given_attributes, *sites.given_members):
        holders[site.name] |= {site.owner, site.within}
    new: list[tuple[int, str]] = []
    choosing: list[tuple[int, Any]] = []
    for part, owner in _with_class(tree, ""):
        if isinstance(part, Only) and part.is_new and _calls(part.node, PARAMETER):
            new.append((part.atom, owner))
        elif isinstance(part, ast.Call):
            for argument in (*_as_list(part.args), *_as_list(part.keywords)):
                choosing += _choosing(argument, part)
        elif isinstance(part, Swap) and isinstance(part.old, ast.Assign | ast.Call):
            calls = [piece for piece in walk(part.old) if isinstance(piece, ast.Call)]
            choosing += [choice for call in calls for choice in _choosing(part, call)]
    for parameter, owner in new:
        for choice, of in choosing:
            holding = holders.get(of.attr, ()) if isinstance(of, ast.Attribute) else ()
            if owner not in holding:
                yield parameter, choice


def _choosing(part: Any, call: ast.Call) -> list[tuple[int, Any]]:
    """The atom that takes all parameters of something from an optimizer's call, and of what."""
    part = part.value if isinstance(part, ast.keyword) else part
    is_choice = isinstance(part, Swap) and not _calls(part.new, EVERY)
    if not is_choice or _is_of_torch(call.func) or called(call.func) in EVERY:
        return []
    every = [p for p in walk(part.old) if isinstance(p, ast.Call) and called(p.func) in EVERY]
    return [(part.atom, getattr(p.func, "value", None)) for p in every]


def _is_of_torch(func: Any) -> bool:
    """Whether a call is of one of torch's own optimizers: torch.optim.Adam(...)."""
    return isinstance(func, ast.Attribute) and called(func.value) == "optim"


def _with_class(part: Any, owner: str) -> Iterator[tuple[Any, str]]:
    """Every part with the class that it is in."""
    if isinstance(part, ast.ClassDef):
        owner = part.name
    yield part, owner
    for piece in inside(part):
        yield from _with_class(piece, owner)


def used(tree: Any, sites: Sites) -> Iterator[Edge]:
    """A parameter is used in every variant that has it: else it has no gradient.

    Where its use goes in one line it comes in another, a new one is used, one without use goes."""
    uses: dict[str, list[Site]] = defaultdict(list)
    others: dict[str, list[Site]] = defaultdict(list)
    for site in sites.asked_attributes:
        if any(scope.name == "__init__" for scope in _around(site.scope)):
            continue
        is_in_class = any(scope.kind == "class" for scope in _around(site.scope))
        (uses if is_in_class else others)[site.name].append(site)
    for name, made in _made(tree, sites).items():
        conditions = {site.condition for site in uses[name]}
        if not conditions or None in conditions:
            continue
        olds = sorted({c[0] for c in conditions if c is not None and not c[1]})
        news = sorted({c[0] for c in conditions if c is not None and c[1]})
        makers = {c[1]: c[0] for c in made if c is not None}  # is it NEW's -> the atom
        is_always = None in made or len(makers) == 2
        ends = {news[0], *sorted(_takers((news[0], True), sites))[:1]} if news else set()
        starts: set[int] = set()
        if is_always and len(olds) == 1:
            starts = {olds[0], *_takers((olds[0], False), sites)}
        elif not is_always and True in makers and len(news) == 1:
            starts = {makers[True]}
        elif not is_always and False in makers and len(olds) == 1:
            yield olds[0], makers[False]
        for site in others[name]:  # an optimizer is handed it
            if site.condition is not None and site.condition[1]:
                starts.add(site.condition[0])
        for start in starts:
            yield from ((start, end) for end in ends - {start})


def _takers(condition: tuple[int, bool], sites: Sites) -> set[int]:
    """The atoms that take what lines under this give, where no others do."""
    takers: set[int] = set()
    for given in sites.given:
        if given.condition != condition:
            continue
        asking = [s for s in sites.asked if s.name == given.name and s.scope is given.scope]
        conditions = {site.condition for site in asking if site.order > given.order}
        if all(c is not None and c[1] == condition[1] for c in conditions):
            takers |= {atom_of(c) for c in conditions}
    return takers - {condition[0]}


def _made(tree: Any, sites: Sites) -> dict[str, set[Condition]]:
    """Attributes that are parameters and modules, with what each is made under."""
    made: dict[str, set[Condition]] = defaultdict(set)
    for site in sites.given_members:
        made[site.name].add(site.condition)
    for part, condition in conditioned(tree):
        if isinstance(part, ast.Assign) and _makes_module(part.value):
            for name in own_attributes(part.targets):
                made[name].add(condition)
    return made


def _makes_module(value: Any) -> bool:
    """Whether a value is made by a class: nn.Parameter(...), Linear(...)."""
    calls = [called(part.func) or "" for part in walk(value) if isinstance(part, ast.Call)]
    return any(name[:1].isupper() for name in calls)


def _as_list(part: Any) -> list[Any]:
    return part if isinstance(part, list) else [part]


def _around(scope: Any) -> Iterator[Any]:
    while scope is not None:
        yield scope
        scope = scope.outer


def _calls(part: Any, names: tuple[str, ...]) -> bool:
    return any(isinstance(p, ast.Call) and called(p.func) in names for p in walk(part))
