"""Where a merged tree gives names, and where it asks for them, and in which variants it does."""

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from harness.split.merged import (
    HOLDERS,
    Condition,
    Only,
    Parameter,
    Parameters,
    Swap,
    inside,
    parameters_of,
)
from harness.split.sites import Scope, Site, Sites

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)
GIVE_ATTRIBUTE = ("setattr", "register_buffer", "register_parameter", "add_module")


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
        self.in_block = False
        self.is_holder = False  # whether arguments are those of a ModuleDict
        self.are_members = False  # whether keywords are names of its members

    def _site(self, name: str, scope: Scope | None = None) -> Site:
        self.order += 1
        where = self.scope if scope is None else scope
        return Site(
            name=name,
            scope=where,
            condition=self.condition,
            order=self.order,
            in_block=self.in_block,
        )

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
        else:
            for piece in inside(part):
                if isinstance(piece, HOLDERS):
                    self.visit(piece)

    # ------------------------------------------------------------ nodes with a meaning

    def swap(self, part: Any) -> None:
        """What has two forms."""
        self._under((part.atom, False), part.old)
        self._under((part.atom, True), part.new)

    def only(self, part: Any) -> None:
        """What only one of the scripts has."""
        self.in_block = isinstance(part.node, BLOCKS)
        self._under((part.atom, part.is_new), part.node)
        self.in_block = False

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
        """A call; some give an attribute by a word in quotes, or by keywords of a dictionary."""
        called = _called(node.func)
        self.visit(node.func)
        before = self.is_holder, self.are_members
        self.are_members = self.is_holder and called == "dict"
        self.is_holder = called == "ModuleDict"
        self.visit([node.args, node.keywords])
        self.is_holder, self.are_members = before
        if called in GIVE_ATTRIBUTE and isinstance(node.args, list):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    self._give_attribute(argument.value, getattr(node.func, "value", node.func))

    def keyword(self, node: Any) -> None:
        """A keyword argument: some give an attribute of what is made of them."""
        if self.are_members:
            self._give_attribute(node.arg, node)
            self.sites.given_members.append(self.sites.given_attributes[-1])
        before, self.are_members = self.are_members, False
        self.visit(node.value)
        self.are_members = before


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
    ast.keyword: _Walker.keyword,
    **dict.fromkeys(FUNCTIONS, _Walker.function),
    **dict.fromkeys(COMPREHENSIONS, _Walker.comprehension),
}
