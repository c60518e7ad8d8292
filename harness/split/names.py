"""Where a merged tree gives names, and where it asks for them, and in which variants it does."""

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from harness.split.merged import Condition, Only, Parameter, Parameters, Swap, inside, parameters_of

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
GIVE_ATTRIBUTE = ("setattr", "register_buffer", "register_parameter", "add_module")


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


def sites_of(tree: Any) -> Sites:
    """Look through a merged tree, or a plain one."""
    walker = _Walker()
    walker.visit(tree)
    return walker.sites


class _Walker:
    """Visits the parts of a tree in the order of the text."""

    def __init__(self) -> None:
        self.sites = Sites()
        self.scope = Scope(kind="module", name="")
        self.condition: Condition = None
        self.order = 0

    def _site(self, name: str, scope: Scope | None = None) -> Site:
        self.order += 1
        where = self.scope if scope is None else scope
        return Site(name=name, scope=where, condition=self.condition, order=self.order)

    def _give(self, name: str) -> None:
        scope = self.scope
        if name in scope.elsewhere:
            while scope.outer is not None:
                scope = scope.outer
        self.sites.given.append(self._site(name, scope))
        if scope.kind == "class":
            self._give_attribute(name)

    def _ask(self, name: str) -> None:
        self.sites.asked.append(self._site(name))

    def _attribute_site(self, name: str, of: Any) -> Site:
        """A site of an attribute of what `of` is; None: of the class around."""
        scope: Scope | None = self.scope
        while scope is not None and scope.kind != "class":
            scope = scope.outer
        is_own = of is None or (isinstance(of, ast.Name) and of.id == "self")
        around = "" if scope is None else scope.name
        if is_own:
            return replace(self._site(name), owner=around)
        return replace(self._site(name), within=around)

    def _give_attribute(self, name: str, of: Any = None) -> None:
        self.sites.given_attributes.append(self._attribute_site(name, of))

    def _under(self, condition: Condition, part: Any) -> None:
        before = self.condition
        self.condition = condition
        self.visit(part)
        self.condition = before

    def _in_scope(self, scope: Scope, parts: Iterable[Any]) -> None:
        before = self.scope
        self.scope = scope
        for part in parts:
            self.visit(part)
        self.scope = before

    def visit(self, part: Any) -> None:
        """Note what a part gives and asks for."""
        special = SPECIAL.get(type(part))
        if special is not None:
            special(self, part)
        elif isinstance(part, ast.AST | list | Parameters):
            for piece in inside(part):
                self.visit(piece)

    # ------------------------------------------------------------ nodes with a meaning

    def swap(self, part: Any) -> None:
        """What has two forms."""
        self._under((part.atom, False), part.old)
        self._under((part.atom, True), part.new)

    def only(self, part: Any) -> None:
        """What only one of the scripts has."""
        self._under((part.atom, part.is_new), part.node)

    def arguments(self, node: Any) -> None:
        """The parameters of a plain tree."""
        self.visit(Parameters(list(parameters_of(node))))

    def parameter(self, part: Any) -> None:
        """A parameter gives its name."""
        self._give(part.name)
        self.visit(part.arg.annotation)
        self.visit(part.default)

    def function(self, node: Any) -> None:
        """A definition: its name outside, its parameters and body inside."""
        self._give(node.name)
        self.visit(node.decorator_list)
        self._in_scope(
            Scope(kind="function", name=node.name, outer=self.scope), (node.args, node.body)
        )
        self.visit(node.returns)

    def lambda_(self, node: Any) -> None:
        """A lambda: all of it inside."""
        self._in_scope(
            Scope(kind="function", name="lambda", outer=self.scope), (node.args, node.body)
        )

    def comprehension(self, node: Any) -> None:
        """A comprehension: what it goes over gives the names."""
        element = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        parts = (*_as_list(node.generators), *element)
        self._in_scope(Scope(kind="function", name="comprehension", outer=self.scope), parts)

    def class_(self, node: Any) -> None:
        """A class: what its body gives are attributes, too."""
        self._give(node.name)
        self.visit(node.decorator_list)
        self.visit([node.bases, node.keywords])
        self._in_scope(Scope(kind="class", name=node.name, outer=self.scope), (node.body,))

    def name(self, node: Any) -> None:
        """A name: given where it is stored."""
        if isinstance(node.ctx, ast.Load):
            self._ask(node.id)
        else:
            self._give(node.id)

    def attribute(self, node: Any) -> None:
        """An attribute: likewise."""
        self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            self.sites.asked_attributes.append(self._attribute_site(node.attr, node.value))
        else:
            self._give_attribute(node.attr, node.value)

    def subscript(self, node: Any) -> None:
        """An entry by a word in quotes: given where it is stored."""
        self.visit([node.value, node.slice])
        key, array = node.slice, _called(node.value)
        is_word = isinstance(key, ast.Constant) and isinstance(key.value, str)
        if array is not None and is_word:
            there = self.sites.asked_keys
            if isinstance(node.ctx, ast.Store):
                there = self.sites.given_keys
            there.append(self._site(f"{array}[{key.value!r}]"))

    def assignment(self, node: Any) -> None:
        """An assignment: its value is there before what it is put into."""
        self.visit(node.value)
        self.visit(node.targets if isinstance(node, ast.Assign) else node.target)
        self.visit(getattr(node, "annotation", None))

    def loop(self, node: Any) -> None:
        """A loop: what it goes over comes first."""
        self.visit([node.iter, node.target, node.body, node.orelse])

    def changed_in_place(self, node: Any) -> None:
        """An assignment that adds: what it changes was there."""
        self.visit(node.value)
        target = node.target
        if isinstance(target, ast.Name):
            self._ask(target.id)
        elif isinstance(target, ast.Attribute):
            self.visit(target.value)
            self.sites.asked_attributes.append(self._attribute_site(target.attr, target.value))
        else:
            self.visit(target)

    def alias(self, node: Any) -> None:
        """An import."""
        self._give((node.asname or node.name).partition(".")[0])

    def global_(self, node: Any) -> None:
        """Names that are those of the module."""
        self.scope.elsewhere.update(node.names)

    def handler(self, node: Any) -> None:
        """An exception that is caught under a name."""
        self.visit(node.type)
        if node.name is not None:
            self._give(node.name)
        self.visit(node.body)

    def call(self, node: Any) -> None:
        """A call; some give an attribute by a word in quotes."""
        self.visit([node.func, node.args, node.keywords])
        called = _called(node.func)
        if called in GIVE_ATTRIBUTE and isinstance(node.args, list):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    self._give_attribute(argument.value, getattr(node.func, "value", node.func))


def _as_list(part: Any) -> list[Any]:
    return part if isinstance(part, list) else [part]


def _called(func: Any) -> str | None:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else None


SPECIAL: dict[type[Any], Callable[[_Walker, Any], None]] = {
    Swap: _Walker.swap,
    Only: _Walker.only,
    Parameter: _Walker.parameter,
    ast.arguments: _Walker.arguments,
    ast.Lambda: _Walker.lambda_,
    ast.ClassDef: _Walker.class_,
    ast.Name: _Walker.name,
    ast.Attribute: _Walker.attribute,
    ast.Subscript: _Walker.subscript,
    ast.AugAssign: _Walker.changed_in_place,
    **dict.fromkeys((ast.Assign, ast.AnnAssign, ast.NamedExpr), _Walker.assignment),
    **dict.fromkeys((ast.For, ast.AsyncFor), _Walker.loop),
    ast.alias: _Walker.alias,
    ast.Global: _Walker.global_,
    ast.ExceptHandler: _Walker.handler,
    ast.Call: _Walker.call,
    **dict.fromkeys(FUNCTIONS, _Walker.function),
    **dict.fromkeys(COMPREHENSIONS, _Walker.comprehension),
}
