"""Lines are plain: short, one idea each, in functions that fit on a screen."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("model", "optim", "harness", "reports")
LINKS = (ROOT / "harness" / "model", ROOT / "harness" / "optim")
SOURCE = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not any(path.is_relative_to(link) for link in LINKS)
}
INLINE = (
    *(ast.IfExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.Lambda, ast.NamedExpr),
)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
INLINE_SHARE = 0.10  # inline expressions a statement, over the whole
MAX_LINES, MAX_PARAMETERS, MAX_COLUMNS = 60, 8, 100
FEW_PARAMETERS = 4  # more of them are told apart in words
# types that do not say what a value means; one with its shape in its name (loss_nAB) says it there
BARE = {"int", "float", "str", "bool", "Path", "Array", "ndarray", "Tensor", "DataFrame", "object"}
SHAPED = re.compile(r"[A-Za-z0-9]+(_[a-z0-9]+)*_[A-Za-z]*[A-Z][A-Za-z]*")

# what is filled or moved on as it goes, and what a reader may build without names
NOT_FROZEN = {
    "Health",
    "Imported",
    "Job",
    "LogFacts",
    "Merged",
    "Page",
    "Summary",
    "Texts",
    "Until",
}
POSITIONAL = {"Asked", "Experiment", "Network"}
# where a zip is told that one side may be longer
OF_TWO_LENGTHS = [
    "harness/bench/kernel_check.py",
    "harness/experiment/parents.py",
    "harness/provenance/machine.py",
    "harness/provenance/redact.py",
    "harness/run/guarded.py",
    "harness/split/numbers.py",
    "harness/split/signatures.py",
    "harness/training/clock.py",
    "reports/inputs/load.py",
    "reports/verify/markup.py",
]


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(text)))


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (node for node in nodes(text) if isinstance(node, FUNCTION))


def counts(parts: Iterable[ast.AST]) -> tuple[int, int]:
    """Inline expressions and statements in a piece of code."""
    inline = statements = 0
    for part in parts:
        inline += isinstance(part, INLINE)
        statements += isinstance(part, ast.stmt)
    return inline, statements


def n_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without self or cls."""
    names = [a.arg for a in function.args.posonlyargs + function.args.args]
    names += [a.arg for a in function.args.kwonlyargs]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_there_is_at_most_one_inline_expression_in_ten_statements() -> None:
    total, dense = [0, 0], []
    for file, text in SOURCE.items():
        inline, statements = counts(nodes(text))
        total = [total[0] + inline, total[1] + statements]
        for function in functions(text):
            inline, statements = counts(ast.walk(function))
            excess = inline - INLINE_SHARE * statements
            dense.append(
                (excess, f"{file}:{function.lineno} {function.name}: {inline}/{statements}")
            )
    worst = "\n".join(line for _, line in sorted(dense, reverse=True)[:10])
    share = total[0] / total[1]
    assert share <= INLINE_SHARE, f"{share:.3f} inline expressions a statement; the worst:\n{worst}"


def test_no_line_is_longer_than_a_hundred_columns() -> None:
    long = [
        f"{file}:{number}"
        for file, text in SOURCE.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if len(line) > MAX_COLUMNS
    ]
    assert long == []


def test_the_formatter_is_nowhere_told_to_look_away() -> None:
    assert [f for f, text in SOURCE.items() if re.search(r"#\s*fmt:\s*(skip|off)", text)] == []


def test_no_ternary_stands_in_another() -> None:
    nested = []
    for file, text in SOURCE.items():
        for node in nodes(text):
            if isinstance(node, ast.IfExp):
                inside = (node.test, node.body, node.orelse)
                if any(isinstance(part, ast.IfExp) for part in inside):
                    nested.append(f"{file}:{node.lineno}")
    assert nested == []


def test_functions_fit_on_a_screen() -> None:
    long = []
    for file, text in SOURCE.items():
        for function in functions(text):
            lines = (function.end_lineno or 0) - function.lineno + 1
            if lines > MAX_LINES:
                long.append(f"{file}:{function.lineno} {function.name}: {lines} lines")
    assert long == []


def test_functions_have_few_parameters() -> None:
    many = []
    for file, text in SOURCE.items():
        for function in functions(text):
            if (n := n_parameters(function)) > MAX_PARAMETERS:
                many.append(f"{file}:{function.lineno} {function.name}: {n} parameters")
    assert many == []


def untold(function: ast.FunctionDef | ast.AsyncFunctionDef, of_class: str = "") -> list[str]:
    """Parameters whose type says nothing of what they are, nor does the docstring, or the class's."""
    said = f"{ast.get_docstring(function) or ''} {of_class}"
    parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    bare = []
    for parameter in parameters:
        words = set(re.findall(r"\w+", ast.unparse(parameter.annotation or ast.Name("Any"))))
        if words & BARE and not SHAPED.fullmatch(parameter.arg):
            bare.append(parameter.arg)
    return [name for name in bare if not re.search(rf"\b{name}\b", said)]


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether --help tells its parameters."""
    return "typer." in ast.unparse(function.args) or any(
        "command" in ast.unparse(decorator) for decorator in function.decorator_list
    )


def test_more_than_four_parameters_are_told_apart_in_the_docstring() -> None:
    silent = []
    for file, text in SOURCE.items():
        made_by = {}  # a class's __init__ -> what the class says
        for node in nodes(text):
            if isinstance(node, ast.ClassDef):
                made_by.update(dict.fromkeys(node.body, ast.get_docstring(node) or ""))
        for function in functions(text):
            many = n_parameters(function) > FEW_PARAMETERS
            private = function.name.startswith("_") and function.name != "__init__"
            if not many or private or is_command(function):
                continue
            if names := untold(function, made_by.get(function, "")):
                silent.append(f"{file}:{function.lineno} {function.name}: {names}")
    assert not silent, "\n".join(silent)


def test_only_the_command_line_imports_inside_functions() -> None:
    inside = []
    for file, text in SOURCE.items():
        for function in functions(text):
            for node in ast.walk(function):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    inside.append(f"{file}:{node.lineno}")
    assert [place for place in inside if not place.startswith("harness/cli/")] == []


# Types that two files define, with the reason.
SEVERAL = {
    "Tokens": "what model and data mean by it, as neither may import the other",
    "Group": "of torch's optimizers, and of a worker's processes",
    "Experiment": "what a file asks for, and what was recorded of it: the word of both sides, which never meet",
}


def test_a_type_is_defined_once() -> None:
    places = defaultdict(set)
    for file, text in SOURCE.items():
        for name in top_level_names(text):
            if name[:1].isupper() and not name.isupper():  # a class, or a name for a type
                places[name].add(file)
    several = {name: sorted(files) for name, files in places.items() if len(files) > 1}
    assert set(several) == set(SEVERAL), several


# What has no fixed shape is a name's business: what a file or `--json` holds, what torch groups.
UNTYPED = re.compile(r"\b(?:dict|Mapping)\[str, Any\]")
ALIAS = re.compile(rf"^(\w+) = {UNTYPED.pattern}", re.MULTILINE)
# in what training executes, where another annotation makes every run stale; and hooks of plug-ins
STILL_UNTYPED = {
    "harness/config/plugins.py": 2,
    "harness/config/run.py": 1,
    "harness/training/fork.py": 2,
    "harness/training/train.py": 1,
}
MOST_USES = 8.5  # of the names for what has no fixed shape, for 1,000 lines; may only fall


def test_what_has_no_fixed_shape_bears_a_name_and_is_rare() -> None:
    aliases, bare = set(), {}
    for file, text in SOURCE.items():
        names = set(ALIAS.findall(text))
        aliases |= names
        if n := len(UNTYPED.findall(text)) - len(names):
            bare[file] = n
    assert bare == STILL_UNTYPED, "give it a dataclass, or a name of harness/run/document.py"
    n_uses = n_lines = 0
    for text in SOURCE.values():
        n_lines += text.count("\n")
        n_uses += sum(isinstance(node, ast.Name) and node.id in aliases for node in nodes(text))
    uses = n_uses / n_lines * 1000
    assert uses <= MOST_USES, (
        f"{uses:.2f} uses of {', '.join(sorted(aliases))}: give it a dataclass"
    )


SILENT = {"own", "words", "found", "known"}  # names of a value that say nothing of it
# in what training executes, where another name makes every run stale: until that moves anyway
STILL_SILENT = {
    "harness/config/plugins.py _check_hooks found",
    "harness/config/plugins.py _check_hooks own",
    "harness/config/plugins.py switched_on found",
    "harness/data/documents.py _starts found",
    "harness/training/hooks.py rules own",
    "optim/build.py build_optimizers own",
}


def test_parameters_and_local_names_say_what_they_are() -> None:
    silent = set()
    for file, text in SOURCE.items():
        for function in functions(text):
            for node in ast.walk(function):
                name = node.arg if isinstance(node, ast.arg) else None
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    name = node.id
                if name in SILENT:
                    silent.add(f"{file} {function.name} {name}")
    assert silent == STILL_SILENT


# Names that `ablate verify` defines once more, as its path shares no code with what it checks.
SECOND_PATH = {"ALIKE", "ALPHA", "LOSSES", "TOO_NOISY", "WORDS", "block_means", "kind_of"}


def top_level_names(text: str) -> Iterator[str]:
    for node in parsed(text).body:
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_a_name_of_the_reports_is_defined_in_one_file() -> None:
    places = defaultdict(set)
    for file, text in SOURCE.items():
        if file.startswith("reports/") and not file.endswith("__init__.py"):
            for name in top_level_names(text):
                places[name].add(file)
    several = {name: sorted(files) for name, files in places.items() if len(files) > 1}
    assert set(several) == SECOND_PATH | {"__all__"} & set(several), several
    for name in SECOND_PATH:
        assert any(file.startswith("reports/verify/") for file in several[name])


def test_the_first_line_of_a_docstring_is_a_whole_sentence() -> None:
    broken = []
    for file, text in SOURCE.items():
        for node in nodes(text):
            if isinstance(node, (*FUNCTION, ast.ClassDef, ast.Module)):
                first = (ast.get_docstring(node) or ".").splitlines()[0]
                if not first.endswith((".", "?", "!", ":")):
                    broken.append(f"{file}:{getattr(node, 'lineno', 1)} {first}")
    assert broken == []


def test_what_flows_is_frozen_and_built_by_name() -> None:
    found = defaultdict(set)
    for text in SOURCE.values():
        for node in nodes(text):
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue  # a module's own
            for mark in node.decorator_list:
                if "dataclass" in ast.unparse(mark).partition("(")[0]:
                    given = {k.arg: ast.unparse(k.value) for k in getattr(mark, "keywords", ())}
                    for name in ("frozen", "kw_only"):
                        found[name, given.get(name)].add(node.name)
    assert found.keys() <= {(n, v) for n in ("frozen", "kw_only") for v in ("True", None)}
    assert found["frozen", None] == NOT_FROZEN
    assert found["kw_only", None] - NOT_FROZEN == POSITIONAL


def test_what_is_walked_side_by_side_is_as_long_but_where_it_may_not_be() -> None:
    loose = []
    for file, text in SOURCE.items():
        for node in nodes(text) if "strict=" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "zip":
                given = {k.arg: ast.unparse(k.value) for k in node.keywords}
                loose += [file] * (given.get("strict") == "False")
    assert sorted(loose) == OF_TWO_LENGTHS
