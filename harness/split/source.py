"""A script as it is compared: its syntax tree, written out in one way."""

import ast

from harness.errors import UserError

MAX_LINES = 20_000  # of one script: the public ones have 2,000
MAX_BYTES = 4 << 20  # of one script
OPENS = ("open", "io.open", "Path", "pathlib.Path")
SETTLES_IN = 4  # rounds of writing out until a text stays as it is


def decoded(content: bytes, where: str) -> str:
    """The normal form of a script's bytes; raises UserError for what cannot be taken apart.

    where: what errors call it."""
    if len(content) > MAX_BYTES:
        raise UserError(f"{where}: is larger than {MAX_BYTES >> 20} MiB: name one script")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{where}: is not UTF-8 text: name a Python script") from None
    return normal(text, where=where)


def normal(text: str, *, where: str) -> str:
    """The text without comments and in one formatting; raises UserError naming `where`.

    text: of a Python script. Writing the result out again changes nothing."""
    n_lines = text.count("\n") + 1
    if n_lines > MAX_LINES:
        raise UserError(f"{where}: has {n_lines} lines: at most {MAX_LINES} are taken apart")
    try:
        tree = ast.parse(text)
        _refuse_twice(tree, where)
        for _ in range(SETTLES_IN):
            written = ast.unparse(tree) + "\n"
            if written == text:
                return text
            text = written
            tree = ast.parse(text)
    except SyntaxError as error:
        line = error.lineno or 1
        raise UserError(
            f"{where}, line {line}: is not Python as this Python reads it ({error.msg}): "
            "`split` takes Python scripts apart"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        said = str(error) or "it is nested too deeply"
        raise UserError(f"{where}: cannot be read as Python: {said}: mend the script") from None
    raise UserError(f"{where}: its normal form does not settle: simplify its quoted texts")


def _refuse_twice(tree: ast.Module, where: str) -> None:
    """Raises UserError for a text that was pasted twice."""
    middle, odd = divmod(len(tree.body), 2)
    if odd or middle < 2:
        return
    first, second = tree.body[:middle], tree.body[middle:]
    for one, other in zip(first, second, strict=True):
        if ast.dump(one) != ast.dump(other):
            return
    line = second[0].lineno
    raise UserError(f"{where}, line {line}: holds the same text twice: remove one of them")


def reads_itself(text: str) -> bool:
    """Whether a script opens its own file, which in an arm is the normal form, and another one."""
    for node in ast.walk(ast.parse(text)):
        is_opened = isinstance(node, ast.Call) and ast.unparse(node.func) in OPENS
        if is_opened and any(name in ast.unparse(node) for name in ("__file__", "sys.argv[0]")):
            return True
    return False


def refuse_empty(old: str, new: str) -> None:
    """Raises UserError where two normal forms leave nothing to take apart."""
    for side, text in (("OLD", old), ("NEW", new)):
        if not text.strip():
            raise UserError(f"{side}: has no statement: name a script that trains")
    if old == new:
        raise UserError(
            "OLD and NEW are the same program, but for formatting and comments: "
            "there is nothing to take apart"
        )
