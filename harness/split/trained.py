"""Parameters and modules: the optimizer that takes them, and where they are used."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from harness.split.calls import Edge
from harness.split.merged import Condition, Only, Swap, conditioned, walk
from harness.split.signatures import called
from harness.split.sites import Site, Sites, atom_of
from harness.split.taken_over import own_attributes

PARAMETER = ("Parameter",)
EVERY = ("parameters", "named_parameters")  # calls that give all of a module's


def handed_over(tree: Any) -> Iterator[Edge]:
    """An optimizer that took all parameters would take a new one, too; NEW's takes a choice."""
    new, choosing = set(), set()
    for part in walk(tree):
        if isinstance(part, Only) and part.is_new and _calls(part.node, PARAMETER):
            new.add(part.atom)
        elif isinstance(part, Swap) and _calls(part.old, EVERY) and not _calls(part.new, EVERY):
            choosing.add(part.atom)
    yield from ((parameter, choice) for parameter in new for choice in choosing)


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
        if is_always and len(olds) == 1 and news and olds[0] not in news:
            yield olds[0], news[0]
        elif not is_always and True in makers and len(news) == 1:
            yield makers[True], news[0]
        elif not is_always and False in makers and len(olds) == 1:
            yield olds[0], makers[False]
        for site in others[name]:  # an optimizer is handed it
            if site.condition is not None and site.condition[1] and news:
                yield atom_of(site.condition), news[0]


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


def _around(scope: Any) -> Iterator[Any]:
    while scope is not None:
        yield scope
        scope = scope.outer


def _calls(part: Any, names: tuple[str, ...]) -> bool:
    return any(isinstance(p, ast.Call) and called(p.func) in names for p in walk(part))
