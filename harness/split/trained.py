"""New parameters: the optimizer that takes them, and where they are used."""

import ast
from collections.abc import Iterator
from typing import Any

from harness.split.calls import Edge, called
from harness.split.merged import Only, Swap, walk
from harness.split.names import Sites, atom_of

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


def used_and_handed_over(tree: Any, sites: Sites) -> Iterator[Edge]:
    """Who hands a new parameter to an optimizer needs where it is used: there are its gradients."""
    names = set()
    for part in walk(tree):
        if isinstance(part, Only) and part.is_new and isinstance(part.node, ast.Assign):
            target = part.node.targets[0]
            if isinstance(target, ast.Attribute) and _calls(part.node.value, PARAMETER):
                names.add(target.attr)
    for name in names:
        asking = [site for site in sites.asked_attributes if site.name == name]
        using = [s for s in asking if any(scope.kind == "class" for scope in _around(s.scope))]
        if not using or any(site.condition is None for site in using):
            continue
        for site in asking:
            if site.condition is not None and site.condition[1] and site not in using:
                yield site.condition[0], atom_of(using[0].condition)


def _around(scope: Any) -> Iterator[Any]:
    while scope is not None:
        yield scope
        scope = scope.outer


def _calls(part: Any, names: tuple[str, ...]) -> bool:
    return any(isinstance(p, ast.Call) and called(p.func) in names for p in walk(part))
