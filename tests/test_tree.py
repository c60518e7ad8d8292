"""Laws of the tree: imports point downwards, files stay one idea long, every YAML loads."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.config import RunConfig, flat
from harness.experiment import load_experiment
from harness.presets import load_scale, preset_values
from harness.validate import check_config

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("model", "optim", "harness", "reports")
FILES = {str(p.relative_to(ROOT)): p.read_text() for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))}
MAX_LINES = 350
BOUNDARY_ONLY = {"pydantic", "pandas", "rich", "typer"}  # a bare GPU image trains without them
CORE = (
    *("train", "core", "clock", "config", "plugins", "validate", "presets", "parity", "errors", "records", "writer", "yamlfile"),
    *("data/loader", "data/positions", "data/shards", "data/corpora", "data/corpus", "data/config", "data/cache"),
)


def imported(source: str, *, module_level: bool = False) -> Iterator[str]:
    """Dotted names of the modules a file imports: all of them, or those imported when it is."""
    tree = ast.parse(source)
    lazy = (
        {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.Lambda) for n in ast.walk(f)}
        if module_level
        else set()
    )
    for node in ast.walk(tree):
        if id(node) in lazy:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def top(name: str) -> str:
    return name.partition(".")[0]


def offenders(folder: str, bad: Callable[[str], bool]) -> list[str]:
    return [f"{f}: {m}" for f, text in FILES.items() if f.startswith(folder) for m in imported(text) if bad(m)]


@pytest.mark.parametrize("package", ["model", "optim"])
def test_the_mathematics_imports_torch_alone(package: str) -> None:
    allowed = {"torch", package, *sys.stdlib_module_names}
    assert offenders(f"{package}/", lambda m: top(m) not in allowed) == []


def test_reports_see_records_alone() -> None:
    assert offenders("reports/", lambda m: top(m) in ("torch", "model", "optim")) == []
    assert (
        offenders("reports/", lambda m: top(m) == "harness" and not (m + ".").startswith("harness.records.") and m != "harness")
        == []
    )


def test_only_the_command_line_sees_reports() -> None:
    found = offenders("harness/", lambda m: top(m) == "reports")
    assert [f for f in found if not f.startswith("harness/cli/")] == []
    assert found, "the walk sees the command line's imports"


@pytest.mark.parametrize("module", CORE)
def test_the_training_core_needs_no_library_of_the_boundary(module: str) -> None:
    assert f"harness/{module}.py" in FILES
    assert [m for m in imported(FILES[f"harness/{module}.py"], module_level=True) if top(m) in BOUNDARY_ONLY] == []


def string_comparisons(source: str) -> list[int]:
    """Lines of comparisons with a string in methods named forward."""
    return [
        node.lineno
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and function.name == "forward"
        for node in ast.walk(function)
        if isinstance(node, ast.Compare | ast.Match)
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    ]


def test_no_forward_compares_strings() -> None:
    assert string_comparisons("def forward(self, x):\n    return x if self.kind == 'a' else -x") == [2]
    assert [f"{f}:{n}" for f, text in FILES.items() if f.startswith("model/") for n in string_comparisons(text)] == []


def test_no_file_is_longer_than_an_idea() -> None:
    assert {f: n for f, text in FILES.items() if (n := text.count("\n")) > MAX_LINES} == {}


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").rglob("*.yaml")), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_yaml_of_experiments_loads(path: Path) -> None:
    kind = path.parent.name
    if kind == "records":
        values, _ = preset_values(path.stem)
        assert values.keys() == flat(RunConfig()).keys()
    elif kind == "scales":
        assert load_scale(path.stem).name == path.stem
    else:
        assert re.match(r"(#.*\n)*(name: .*\n)?question: .+\?", path.read_text()), "an experiment opens with its question"
        load_experiment(str(path), device="cpu")


def test_the_default_configuration_is_valid() -> None:
    check_config(RunConfig())
