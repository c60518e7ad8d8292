"""The sabotages: cosmic-ray's operators and one that drops a statement, drawn at random over places of the code."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import Keyword, Name, Newline, String

ARITHMETIC = ("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow")
ORDER = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
IDENTITY = ("Is", "IsNot")
# what a module does as a program, which processes alone start, and imports for type checkers
NOT_TRIED = ("if __name__", "if TYPE_CHECKING")
OTHERS = (
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr"),
    *("ReplaceOrWithAnd", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
    *("NumberReplacer", "ZeroIterationForLoop", "ReplaceUnaryOperator_USub_UAdd"),
    *("ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_USub"),
)


class DropStatement(Operator):
    """A call, an assignment into an object, an addition to a name, or a raise is left out."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and self._counts(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    @staticmethod
    def _counts(statement: Any) -> bool:
        if statement.type == "expr_stmt":
            target, operator = statement.children[0], statement.children[1]
            augmented = operator.type == "operator" and operator.value != "="
            return target.type == "atom_expr" or augmented
        return statement.type in ("atom_expr", "raise_stmt")

    def mutate(self, node: Any, index: int) -> Any:
        first = node.children[0].get_first_leaf()
        node.children[0] = Keyword("pass", first.start_pos, first.prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


@cache
def operators() -> dict[str, Operator]:
    """By name. Those of cosmic-ray without the ones that every import notices: types, decorators, bits of numbers."""
    names = [
        *(f"ReplaceBinaryOperator_{a}_{b}" for a in ARITHMETIC for b in ARITHMETIC if a != b),
        *(f"ReplaceComparisonOperator_{a}_{b}" for a in ORDER for b in ORDER if a != b),
        *(f"ReplaceComparisonOperator_{a}_{b}" for a in IDENTITY for b in IDENTITY if a != b),
        *OTHERS,
    ]
    known = OperatorProvider()
    return {name: known[name]() for name in names} | {"DropStatement": DropStatement()}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    path: str
    line: int
    column: int
    operator: str
    occurrence: int  # of the operator in the file

    def code(self, source: str) -> str:
        """The file's text with the sabotage."""
        changed = mutate_code(source, operators()[self.operator], self.occurrence)
        assert changed is not None
        return str(changed)

    def is_code(self, source: str) -> bool:
        """Whether Python reads it: the stars of `{**x}` are no power."""
        try:
            compile(self.code(source), self.path, "exec")
        except SyntaxError:
            return False
        return True

    def change(self, source: str) -> tuple[str, str]:
        """The first line that differs, before and after."""
        old, new = source.splitlines(), self.code(source).splitlines()
        at = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), self.line - 1)
        return old[at].strip(), new[at].strip()


def of_file(path: str, source: str) -> list[Mutant]:
    """Every sabotage of a file, in the order of its places."""
    nodes = [n for n in ast_nodes(get_ast(source)) if not isinstance(n, (Name, Newline, String))]
    lines, found = source.splitlines(), []
    for name, operator in operators().items():
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, (line, column) in enumerate(places):
            if lines[line - 1].startswith(NOT_TRIED) or lines[line - 1].startswith("*,", column):
                continue  # the asterisk of `def f(*, x)` is no product
            found.append(
                Mutant(path=path, line=line, column=column, operator=name, occurrence=occurrence)
            )
    return sorted(found, key=lambda m: (m.line, m.column, m.operator, m.occurrence))


def drawn(root: Path, paths: Sequence[str], n: int, seed: int) -> list[Mutant]:
    """n sabotages, or all if there are fewer: a place of the code at random, then one of what can be done there."""
    source = {path: (root / path).read_text(encoding="utf-8") for path in paths}
    every = [m for path in paths for m in of_file(path, source[path])]
    places = [list(ms) for _, ms in groupby(every, key=lambda m: (m.path, m.line, m.column))]
    chance, found = random.Random(seed), list[Mutant]()
    for place in chance.sample(places, len(places)):
        if len(found) == n:
            break
        mutant = chance.choice(place)
        if mutant.is_code(source[mutant.path]):
            found.append(mutant)
    return found
