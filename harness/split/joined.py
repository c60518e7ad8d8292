"""A script and modules of its own folder as one text: what it imports stands where it did."""

import ast
from collections.abc import Iterator, Mapping

from harness.errors import UserError

FUTURE = "__future__"


def joined(script: bytes, modules: Mapping[str, bytes], *, where: str) -> bytes:
    """The script with these modules in place of its imports from them; raises UserError.

    modules: file name -> content, each imported by `from NAME import ...` at the script's top;
    where: what errors call the script."""
    joiner = _Joiner({name.removesuffix(".py"): text for name, text in modules.items()}, where)
    tree = joiner.parsed(script, where)
    body = [*joiner.statements(tree)]
    tree.body = [*body[: _is_docstring(body)], *joiner.promises(), *body[_is_docstring(body) :]]
    return (ast.unparse(tree) + "\n").encode()


class _Joiner:
    """Writes modules out where they are imported first."""

    def __init__(self, modules: Mapping[str, bytes], where: str) -> None:
        self.modules = modules
        self.where = where
        self.written: set[str] = set()
        self.given: dict[str, tuple[str, str]] = {}  # a name -> the file that gives it, and what
        self.future: set[str] = set()  # what files import from __future__

    def parsed(self, text: bytes, where: str) -> ast.Module:
        """Its syntax tree."""
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UserError(f"{where}: cannot be read as Python: {error}") from None

    def statements(self, tree: ast.Module, file: str = "") -> Iterator[ast.stmt]:
        """Those of a script, or of a module, with what it imports.

        file: the module's name; '': the script."""
        for statement in tree.body:
            module = getattr(statement, "module", None) or ""
            if isinstance(statement, ast.ImportFrom) and module == FUTURE:
                self.future.update(alias.name for alias in statement.names)
                continue
            if not isinstance(statement, ast.ImportFrom) or module not in self.modules:
                self._check(statement, file)
                yield statement
                continue
            if module not in self.written:
                self.written.add(module)
                inner = self.parsed(self.modules[module], f"{module}.py")
                inner.body = [part for part in inner.body if not _is_main(part)]
                yield from self.statements(inner, module)
            for alias in statement.names:
                if alias.asname is not None:
                    yield ast.parse(f"{alias.asname} = {alias.name}").body[0]

    def promises(self) -> list[ast.stmt]:
        """The import from __future__ of all the files: it holds for a whole text."""
        names = [ast.alias(name=name) for name in sorted(self.future)]
        return [ast.ImportFrom(module=FUTURE, names=names, level=0)] if names else []

    def _check(self, statement: ast.stmt, file: str) -> None:
        """Raises UserError where a statement cannot stand in one text with the others."""
        for part in ast.walk(statement):
            named = [alias.name for alias in part.names] if isinstance(part, ast.Import) else []
            if isinstance(part, ast.ImportFrom):
                named = [part.module or ""]
            for name in named:
                if name in self.modules:
                    raise self._refusal(f"by its import of {name}: write `from NAME import ...`")
        for name, giver in _given(statement):
            before = self.given.setdefault(name, (file, giver))
            if before[0] != file and (not giver or before[1] != giver):
                raise self._refusal(f"since both give '{name}': rename one of them")

    def _refusal(self, why: str) -> UserError:
        names = ", ".join(f"{name}.py" for name in self.modules)
        return UserError(
            f"{self.where}: {names} differs too between OLD and NEW, and cannot be put into the "
            f"script {why}, or give both the same module"
        )


def _is_docstring(body: list[ast.stmt]) -> bool:
    """Whether a text begins with what says what it is: an import from __future__ comes after it."""
    return bool(body) and ast.get_docstring(ast.Module(body=body[:1], type_ignores=[])) is not None


def _is_main(statement: ast.stmt) -> bool:
    """Whether it is run where a module is the script alone."""
    return isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)


def _given(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """The names that a statement at the top gives, each with what is imported by it, else ''."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name, ""
    elif isinstance(statement, ast.Assign):
        for part in ast.walk(ast.Tuple(elts=statement.targets)):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id, ""
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            top = alias.name.partition(".")[0]
            yield alias.asname or top, alias.name if alias.asname else top
    elif isinstance(statement, ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name, f"{statement.module}.{alias.name}"
