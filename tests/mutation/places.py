"""Where a line of a file lies: its function, its statement, and which functions name what it defines."""

import ast
from dataclasses import dataclass
from hashlib import sha256

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
MODULE = "<module>"  # lines outside every function: they run at import, which is no test's


@dataclass(frozen=True, kw_only=True)
class Function:
    name: str  # dotted
    head: int  # the line of its first decorator or of its def
    first: int  # that of its body
    last: int
    digest: str  # of its text
    names: frozenset[str] = frozenset()  # every name and attribute that its text reads


class Places:
    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        self.tree = ast.parse(source)
        self.functions: list[Function] = []
        self._walk(self.tree, ())
        self.module = Function(name=MODULE, head=1, first=1, last=len(self.lines), digest="")

    def _walk(self, node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, FUNCTION | ast.ClassDef):
                inner = (*names, child.name)
            if isinstance(child, FUNCTION):
                self.functions.append(self._function(child, ".".join(inner)))
            self._walk(child, inner)

    def _function(self, node: FUNCTION, name: str) -> Function:
        head = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        first, last = node.body[0].lineno, node.end_lineno or node.body[-1].lineno
        text = "\n".join(self.lines[first - 1 : last])
        digest = sha256(text.encode()).hexdigest()[:12]
        nodes = list(ast.walk(node))
        read = {n.id for n in nodes if isinstance(n, ast.Name)}
        read |= {n.attr for n in nodes if isinstance(n, ast.Attribute)}
        read |= {n.arg for n in nodes if isinstance(n, ast.keyword) and n.arg}
        return Function(
            name=name, head=head, first=first, last=last, digest=digest, names=frozenset(read)
        )

    def function(self, line: int) -> Function:
        """The innermost around a line."""
        around = [f for f in self.functions if f.first <= line <= f.last]
        return max(around, key=lambda f: f.first) if around else self.module

    def statement(self, line: int) -> range:
        """The lines of the innermost statement around a line; of one that holds others, its head."""
        best = range(line, line + 1)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
                body = getattr(node, "body", None)
                last = body[0].lineno - 1 if body else node.end_lineno
                if line <= max(last or line, node.lineno):
                    best = range(node.lineno, max(last or line, node.lineno) + 1)
        return best

    def users(self, line: int) -> list[str]:
        """The functions that read a name which the statement of a line defines; of a function's head, that function."""
        of_head = [f.name for f in self.functions if f.head <= line < f.first]
        if of_head:
            return of_head
        defined = set[str]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and (
                node.lineno <= line <= (node.end_lineno or 0)
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                defined |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        return [f.name for f in self.functions if f.names & defined]
