"""The static check of a variant: its names and attributes are given, its calls fit."""

import ast
import re
import warnings
from collections.abc import Collection, Iterator
from typing import Any

from harness.split.names import sites_of
from harness.split.numbers import broken_assertions
from harness.split.signatures import Signature, Signatures, called

SEVERAL = ("star", "double")
# how a line begins that goes on with a statement of the script
GOES_ON = (" ", "\n", "else:", "elif ", "except:", "except ", "except*", "finally:")
OF_THE_WHOLE = re.compile("^(?:from __future__|global) ", re.MULTILINE)  # where it stands matters


class Checker:
    """What a variant lacks that neither of the scripts lacks."""

    def __init__(self, old: str, new: str) -> None:
        trees = [ast.parse(text) for text in (old, new)]
        self.compile = all(_compiles(tree) for tree in trees)
        given = [site for tree in trees for site in sites_of(tree).given_attributes]
        self.own = {site.name for site in given}
        self.owned = {(site.owner, site.name) for site in given if site.owner}
        self.known = set().union(*(self._lacks(tree) for tree in trees))
        self.checked: dict[str, list[str]] = {}  # variants, and what they lack
        self.read: dict[str, list[ast.stmt]] = {}  # statements of variants, by their text

    def problems(self, text: str) -> list[str]:
        """What a variant lacks, in words; nothing where it passes."""
        if text not in self.checked:
            self.checked[text] = self._problems(text)
        return self.checked[text]

    def _problems(self, text: str) -> list[str]:
        try:
            tree = self._tree_of_pieces(text)
        except SyntaxError:  # of a line of the whole, or a text in quotes looked like statements
            try:
                tree = self._tree(text)
            except SyntaxError as error:
                return [f"line {error.lineno}: {error.msg}"]
        return sorted(self._lacks(tree) - self.known)

    def _tree_of_pieces(self, text: str) -> ast.Module:
        """The same as of the whole; a statement that other variants have too is read once."""
        if OF_THE_WHOLE.search(text):
            return self._tree(text)
        body: list[ast.stmt] = []
        for piece in pieces_of(text):
            if piece not in self.read:
                self.read[piece] = self._tree(piece).body
            body += self.read[piece]
        return ast.Module(body, [])

    def _tree(self, text: str) -> ast.Module:
        """The syntax tree of a text. Raises SyntaxError."""
        tree = ast.parse(text)
        if self.compile:
            _compiled(tree)
        return tree

    def _lacks(self, tree: ast.AST) -> set[str]:
        sites = sites_of(tree)
        lacks = set()
        for site, answers in sites.resolved_names():
            if not answers:
                lacks.add(f"the name '{site.name}' is given nowhere")
            elif all(a.scope is site.scope and a.order > site.order for a in answers):
                where = f"'{site.scope.name}'" if site.scope.name else "the script"
                lacks.add(f"the name '{site.name}' is asked for before {where} gives it")
        for site, answers in sites.resolved_attributes():
            if not answers and site.name in self.own:
                lacks.add(f"the attribute '{site.name}' is given nowhere")
            is_own = (site.owner, site.name) in self.owned
            if is_own and not any(answer.owner == site.owner for answer in answers):
                lacks.add(f"class '{site.owner}' does not give its attribute '{site.name}'")
        return lacks | set(_misfits(tree)) | set(broken_assertions(tree))


def pieces_of(text: str) -> list[str]:
    """The statements of a script in normal form, each as text."""
    pieces: list[str] = []
    is_decorated = is_quoted = False
    for line in text.splitlines(keepends=True):
        if pieces and (is_decorated or is_quoted or line.startswith(GOES_ON)):
            pieces[-1] += line
        else:
            pieces.append(line)
        is_decorated = line.startswith("@")
        is_quoted ^= line.count('"""') % 2 == 1
    return pieces


def _compiled(tree: ast.Module) -> None:
    """Raises SyntaxError for what parses and is no program: a parameter twice, a lost `await`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(tree, "variant", "exec", dont_inherit=True)


def _compiles(tree: ast.Module) -> bool:
    try:
        _compiled(tree)
    except SyntaxError:
        return False
    return True


def _misfits(tree: ast.AST) -> Iterator[str]:
    """Calls of the script's own functions that fit none of those that they may be of."""
    table = Signatures(tree)
    for call in table.calls:
        name = called(call.func)
        signatures = table.of(name)
        if signatures and not any(_fits(call, signature) for signature in signatures):
            n = len(call.args)
            names = " ".join(sorted(str(keyword.arg) for keyword in call.keywords))
            yield f"a call of '{name}' with {n} arguments and [{names}] does not fit it"


def _fits(call: ast.Call, signature: Signature) -> bool:
    """Whether a call gives what a function asks for."""
    parameters = [parameter for parameter, _ in signature.parameters]
    kinds = {parameter.kind for parameter in parameters}
    plain = [p.name for p in parameters if p.kind in ("positional", "plain")]
    keywords = {keyword.arg for keyword in call.keywords}
    is_open = None in keywords or any(isinstance(arg, ast.Starred) for arg in call.args)
    if len(call.args) > len(plain) and "star" not in kinds and not is_open:
        return False
    by_name = {p.name for p in parameters if p.kind in ("plain", "keyword")}
    if "double" not in kinds and not keywords - {None} <= by_name:
        return False
    if is_open:
        return True
    given = {*plain[: len(call.args)], *keywords}
    return all(_is_given(parameter, given) for parameter in parameters)


def _is_given(parameter: Any, given: Collection[str | None]) -> bool:
    has_default = parameter.default is not None or parameter.kind in SEVERAL
    return has_default or parameter.name in given
